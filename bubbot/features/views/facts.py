"""The facts about views: which chat is shown what of which other one."""

from __future__ import annotations

from typing import Literal, TypeAlias

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId

VIEWS_TAPE = "bubbot/views"
ViewKind: TypeAlias = Literal["anchors", "newest", "search"]
"""What a view shows: the newest anchors with their states, the newest messages, or messages that share words with the newest
message here."""


class ChatView(Fact):
    """A chat is shown a view of another one, as long as it may read there.

    Attributes:
        chat: the session that is shown it.
        session: the session that is viewed.
        what: what is shown; a kind that this version does not know shows nothing.
        agent: the named agent whose turns are shown it; empty for all turns.
        count: anchors or messages at most that come at first, and for one message of a search.
        start: the name of the anchor after which messages count; empty for all.
        by: who added it, or removed it: `terminal` or `channel:id`.
    """

    EVENTS = ("views/added", "views/removed")
    chat: SessionId
    session: SessionId
    what: str
    agent: str
    count: int
    start: str
    by: str

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """The chat, and what it is shown: a further one takes the place of the one before."""
        return self.chat, self.session, self.what, self.agent

    @property
    def source(self) -> str:
        """What facts of evidence name as having chosen their entries."""
        return f"{SOURCE_PREFIX}{self.what}" + (f".{self.agent}" if self.agent else "")


SOURCE_PREFIX = "views."
"""The beginning of the `source` of evidence that a view quotes; its kind follows, and after a dot its agent, if it has one."""
FACTS: tuple[type[Fact], ...] = (ChatView,)
