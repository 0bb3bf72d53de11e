"""Models from data: label costs from network output, weights from labelled images."""
