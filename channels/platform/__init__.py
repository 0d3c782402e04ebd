"""Code that the chat platforms share."""
