"""The references that the facts of bubbot and of its features declare."""

from __future__ import annotations

from bubbot.app.own_features import own_events
from bubbot.features.schedule.events import SCHEDULE_EVENTS
from bubbot.tape.events import KERNEL_REFERENCES

OWN_REFERENCES = KERNEL_REFERENCES.with_events({**own_events(), **SCHEDULE_EVENTS})
"""What bubbot's own entries name, those of its features included."""
