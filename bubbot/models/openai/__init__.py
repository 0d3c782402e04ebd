"""Models whose providers speak the OpenAI chat protocol."""
