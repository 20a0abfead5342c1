"""How often a ranking says that a metric explains more than chance, where the truth is known."""
