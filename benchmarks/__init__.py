"""Speed beside the alternatives, all sides in one run: ``python -m benchmarks.run``."""
