"""The feature: searching the whole tape of a chat."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.search.tools import tape_search

SEARCH_RULE = "Use tape_search to find what was said before the window you are shown."


def search_feature() -> Feature:
    """Build the record."""
    return Feature(name="search", tools=(tape_search,), rules=(SEARCH_RULE,))
