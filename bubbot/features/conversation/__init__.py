"""The conversation: commands about windows, answers, models and the tape itself."""
