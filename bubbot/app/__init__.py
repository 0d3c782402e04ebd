"""The composition of a running bot."""
