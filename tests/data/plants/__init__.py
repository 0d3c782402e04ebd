"""A feature that bubbot does not have: `tests/unit/app/test_one_folder.py` puts it into a copy."""
