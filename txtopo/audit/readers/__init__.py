"""Readers of sources for the audit: one for each kind of files, with no code of the spouts."""
