"""The context: the part of a tape that a model sees."""
