"""Explanations: questions about what happened, answered from the tape with citations."""
