"""`bubbot init`: makes a `config.toml` that loads."""
