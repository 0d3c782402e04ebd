"""The feature: searching the whole tape of a chat."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.search.commands import FindTopic, SearchCommands

SEARCH_RULE = "Use tape_search to find what was said before the window you are shown."


def search_feature(find_topic: FindTopic | None = None) -> Feature:
    """Build the feature. `find_topic` knows the topics of a chat; None if nothing does."""
    tools = make_tools(SearchCommands, lambda: SearchCommands(find_topic))
    return Feature(name="search", tools=tools, prompt=(SEARCH_RULE,))
