"""The feature: searching the whole tape of a chat."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.search.commands import SearchCommands

SEARCH_RULE = "Use tape_search to find what was said before the window you are shown."


def search_feature() -> Feature:
    """Build the record."""
    return Feature(name="search", tools=make_tools(SearchCommands, SearchCommands), rules=(SEARCH_RULE,))
