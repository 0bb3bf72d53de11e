"""Dense CRFs beside other refinements, on labelled images."""
