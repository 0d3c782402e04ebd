"""Sandboxes of programs: what they may read, write and reach, and what ends them."""
