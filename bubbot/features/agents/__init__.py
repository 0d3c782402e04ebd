"""Sub-tasks: a model works on a part of a turn in a fork of its own."""
