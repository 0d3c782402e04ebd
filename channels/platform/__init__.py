"""Parts that the chat platforms share."""
