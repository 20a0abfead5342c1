"""Causes as a tree in data, and the engine that reads it."""
