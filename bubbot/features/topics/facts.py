"""The facts about topics; what anchors say of them is in `docs/reference/tape-format.md`."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId


class TopicBound(Fact):
    """The topic of a thread goes on in another chat, too: that of its group, or one that may be read.

    Attributes:
        topic: the key of the topic.
        title: its title.
        session: the other chat.
    """

    EVENTS = ("topics/bound",)
    topic: str
    title: str
    session: SessionId
