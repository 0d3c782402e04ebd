"""The payloads of the facts about topics; what anchors say of them is in `docs/reference/tape-format.md`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.references import SessionId


class TopicBound(TypedDict):
    """`topics/bound`"""

    topic: str
    title: str
    session: SessionId


TOPIC_EVENTS: Mapping[str, type] = MappingProxyType({"topics/bound": TopicBound})
