"""Reads CSV and text files in pieces, and sets apart each record that does not parse."""
