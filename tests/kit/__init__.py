"""Fixtures and helpers by subject; tests/conftest.py registers them."""
