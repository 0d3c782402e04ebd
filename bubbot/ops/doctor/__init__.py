"""What `bubbot doctor` looks at: a module for each concern. Nothing here writes, takes the lock, or loads a model."""
