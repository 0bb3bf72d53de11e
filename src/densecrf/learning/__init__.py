"""Models from data: label costs from unlabelled network output, all weights from labelled images."""
