"""What bubbot costs, beside plain baselines in the same run: see `__main__.py` and docs/reference/benchmarks.md."""
