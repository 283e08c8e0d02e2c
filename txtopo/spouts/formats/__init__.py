"""Formats of files: each says how bytes become records, which records are rejected, and where a record stands."""
