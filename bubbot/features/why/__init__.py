"""Why: explanations of answers."""
