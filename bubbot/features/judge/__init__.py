"""Judging: labels, judges, and evaluations, as facts beside what they judge."""
