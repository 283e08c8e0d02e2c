"""Reads CSV files in pieces, and separates each record that does not parse."""
