"""Are planted causes found: scores of explanations, page."""
