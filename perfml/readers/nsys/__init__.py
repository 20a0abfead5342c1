"""Nsight Systems: what ``nsys export --type sqlite`` makes of a report."""
