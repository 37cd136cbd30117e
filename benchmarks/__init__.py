"""Measurements against other tools and against the product itself. Results go to results/."""
