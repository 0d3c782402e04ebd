"""Newer weights: exports when enough turns were rated, models that owners offer, and the rule that lets sessions use them."""
