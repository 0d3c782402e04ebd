"""The extra `embeddings`: which passages of a tape are about what a text is about, whatever their words."""
