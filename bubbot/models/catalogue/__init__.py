"""Facts about the models of providers, from the files that come with litellm; litellm itself is never imported here."""
