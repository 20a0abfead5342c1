"""The sections of a report, each built from typed results."""
