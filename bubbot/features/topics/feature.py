"""The feature: topics of a chat, and reading in another chat."""

from __future__ import annotations

from bubbot.feature import Feature, ReadSession
from bubbot.features.topics.reading import chat_read_tool
from bubbot.features.topics.settings import TopicSettings
from bubbot.features.topics.tools import topic_tools
from bubbot.features.topics.view import RecallLimits

TOPIC_RULE = (
    "If the talk moves to another topic than the current one, topic_propose offers to switch; a person decides."
)


def topics_feature(settings: TopicSettings, read_session: ReadSession) -> Feature:
    """Build the record."""
    limits = RecallLimits(settings.recall_messages, settings.recall_tokens)
    return Feature(
        name="topics", tools=[*topic_tools(limits, read_session), chat_read_tool(read_session)], rules=(TOPIC_RULE,)
    )
