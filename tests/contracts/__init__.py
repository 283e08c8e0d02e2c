"""Contracts that every implementation of a port passes, in memory and on real services."""
