"""The feature: searching the whole tape of a chat."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.search.commands import SearchCommands
from bubbot.settings.loader import Settings

SEARCH_RULE = "Use tape_search to find what was said before the window you are shown."


def create(_kernel: Kernel | None = None, _settings: Settings | None = None) -> Feature:
    """Build the feature, which takes nothing."""
    return Feature(name="search", tools=make_tools(SearchCommands, SearchCommands), prompt=(SEARCH_RULE,))
