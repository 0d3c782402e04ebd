"""People: a person is forgotten, on every tape and in every file of the home."""
