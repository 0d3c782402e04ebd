"""`bubbot init`: from nothing to a `config.toml` that loads."""
