"""Tuple bolts in Spark: one exchange for each level of tasks, and how the driver processes their messages."""
