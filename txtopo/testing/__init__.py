"""Helpers for tests: contract suites to inherit, simulated stores and clocks."""
