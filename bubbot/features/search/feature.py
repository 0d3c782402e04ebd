"""The feature: searching the whole tape of a chat."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.search.commands import FindTopic, SearchCommands
from bubbot.runtime.context.copies import FindHeads, find_no_heads

SEARCH_RULE = "Use tape_search to find what was said before the window you are shown."


def search_feature(find_topic: FindTopic | None = None, find_heads: FindHeads = find_no_heads) -> Feature:
    """Build the feature.

    Args:
        find_topic: knows the topics of a chat; None if nothing does.
        find_heads: returns how far a turn may read other tapes now.
    """
    tools = make_tools(SearchCommands, lambda: SearchCommands(find_topic, find_heads))
    return Feature(name="search", tools=tools, prompt=(SEARCH_RULE,))
