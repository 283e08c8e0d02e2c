"""Decisions without I/O: values, plans, the machine that orders batches. No clock, no randomness, no threads."""
