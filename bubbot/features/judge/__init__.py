"""Judging: labels of people, judges, and evaluations, as facts beside what they judge that no model is shown."""
