"""DataFrame bolts: plans made with users' functions, the checks around them, and the search for a bad row."""
