"""The daemon under load, measured: see `__main__.py` and docs/reference/benchmarks.md."""
