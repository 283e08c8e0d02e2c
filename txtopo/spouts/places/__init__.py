"""Where files are: which there are, whether one is still the same, and its bytes."""
