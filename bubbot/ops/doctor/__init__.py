"""The checks of `bubbot doctor`, a module for each concern. No check writes, takes the lock, or loads a model."""
