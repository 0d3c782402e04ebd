"""The feature: topics of a chat, and reading in another chat."""

from __future__ import annotations

from bubbot.feature import Feature, ReadSession
from bubbot.features.topics.commands import topic_tools
from bubbot.features.topics.settings import TopicSettings

TOPIC_RULE = (
    "If the talk moves to another topic than the current one, topic_propose offers to switch; a person decides."
)


def topics_feature(settings: TopicSettings, read_session: ReadSession) -> Feature:
    """Build the record."""
    return Feature(name="topics", tools=topic_tools(settings, read_session), rules=(TOPIC_RULE,))
