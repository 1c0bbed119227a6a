"""Benchmarks against the design's budgets and the peers; see `__main__.py`."""
