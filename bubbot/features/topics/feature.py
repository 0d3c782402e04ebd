"""The feature: topics of a chat, and reading in another chat."""

from __future__ import annotations

from bubbot.feature import Around, Feature, Kernel, ReadSession
from bubbot.features.topics.bound import BoundTopics
from bubbot.features.topics.commands import topic_tools
from bubbot.features.topics.settings import TopicSettings
from bubbot.settings.loader import Settings

TOPIC_RULE = (
    "If the talk moves to another topic than the current one, topic_propose offers to switch; a person decides."
)


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return topics_feature(settings.section(TopicSettings), kernel.read_session)


def topics_feature(settings: TopicSettings, read_session: ReadSession) -> Feature:
    """Build the record."""
    return Feature(
        name="topics",
        tools=topic_tools(settings, read_session),
        prompt=(TOPIC_RULE,),
        around=Around(turn=(BoundTopics(settings, read_session).around_turn,)),
    )
