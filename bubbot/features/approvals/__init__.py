"""Approvals: which calls run, which need a person's yes, and how that is asked and given."""
