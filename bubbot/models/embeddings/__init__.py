"""The extra `embeddings`: finds passages of a tape by meaning instead of words."""
