"""DataFrame bolts: plans made of the functions of a user, the checks around them, and the search for a bad row."""
