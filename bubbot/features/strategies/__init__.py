"""Context strategies that fit a long conversation into a model's context."""
