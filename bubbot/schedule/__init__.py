"""Schedules: when jobs are due, the facts about them, and keeping time over those."""
