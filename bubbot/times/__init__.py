"""Times as people write them, in English, German and Chinese, and the rules that are stored of them. Pure."""
