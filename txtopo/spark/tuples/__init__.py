"""Tuple bolts in Spark: one exchange for each level of tasks, and what the driver makes of their messages."""
