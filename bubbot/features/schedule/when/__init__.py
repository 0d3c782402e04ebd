"""When jobs are due: the rules that are stored, and the times that people type, in English and in Chinese."""
