"""Phrases of the corpora that bubbot reads in another way on purpose, or refuses, each with its reason."""

from __future__ import annotations

DIFFERENCES: dict[tuple[str, str], str] = {}
