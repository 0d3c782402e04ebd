"""Episodes of tapes, written for those who train or evaluate models."""
