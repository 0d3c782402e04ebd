"""The health of a running bot: snapshot, words, and HTTP server."""
