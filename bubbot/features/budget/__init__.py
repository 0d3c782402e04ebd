"""Budgets: limits of what model calls may cost."""
