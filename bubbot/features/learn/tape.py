"""The tape of what goes on about training: calls that a proxy records, exports that are ready, and newer weights."""

LEARN_TAPE = "bubbot/learn"
