"""Schedules: the due times of jobs, the facts about them, and the timer that fires them."""
