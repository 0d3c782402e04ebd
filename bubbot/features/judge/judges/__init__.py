"""Judges: what gives a run of a case a score, and the settings of each."""
