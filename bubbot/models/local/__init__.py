"""The demonstration model, in a child process."""
