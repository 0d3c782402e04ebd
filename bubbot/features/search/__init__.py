"""Search over the whole tape."""
