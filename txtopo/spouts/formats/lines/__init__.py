"""Records that are lines: how lines are cut, and for each line format the pure pair of a fast and an exact path."""
