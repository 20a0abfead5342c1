"""Profilers: build their command lines, run them, keep their raw exports unread."""
