"""One module a library; each has ``session(problem)`` and imports its library there."""
