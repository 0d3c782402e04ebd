"""The facts about topics; what anchors say of them is in `docs/reference/tape-format.md`."""

from __future__ import annotations

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId


class TopicBound(Fact):
    """The topic of this key goes on in another session, too: that of the group of a thread, or one that may be read."""

    EVENTS = ("topics/bound",)
    topic: str
    title: str
    session: SessionId


FACTS: tuple[type[Fact], ...] = (TopicBound,)
