"""Reads CSV and text files in pieces, and separates each record that does not parse."""
