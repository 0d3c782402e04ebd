"""Settings: their models, sources and differences."""
