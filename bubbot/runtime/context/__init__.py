"""The context: what a model is shown of a tape."""
