"""How fast txtopo is next to other systems: `make bench`; docs/benchmarks.md says how to read it."""
