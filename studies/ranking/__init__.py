"""How often `perfml.rank` says that a metric explains more than chance, where the truth is known."""
