"""Models: implementations of the model port, loaded by entry point."""
