"""Models of hosted providers, through litellm."""
