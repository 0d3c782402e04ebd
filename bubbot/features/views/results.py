"""What the commands about views take, and what they say."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller
from bubbot.features.views.facts import ViewKind
from bubbot.ports.agents import AGENT_NAME, AGENT_NAME_FORM
from bubbot.shell_command import IsoTime

MAX_COUNT = 50

SessionArg = Annotated[str, Meta(description="the chat that is viewed, such as telegram:42", max_length=1_000)]
ChatArg = Annotated[
    str, Meta(description="the chat that is shown it (default: this one); another one is for owners", max_length=1_000)
]


class ChatViewArgs(Args, frozen=True):
    """The view to add."""

    session: SessionArg
    what: Annotated[
        ViewKind,
        Meta(
            description="newest messages, anchors with their states, or search: messages that share words with the newest one here"
        ),
    ] = "newest"
    count: Annotated[
        int,
        Meta(description="how many at most (default: 10 messages, 3 anchors, 4 found)", ge=0, le=MAX_COUNT),
    ] = 0
    start: Annotated[
        str, Meta(description="only messages after the newest anchor of this name; for newest", max_length=200)
    ] = msgspec.field(default="", name="from")
    agent: Annotated[
        str,
        Meta(
            description="only for turns of this named agent",
            pattern=rf"^({AGENT_NAME})?\Z",
            extra={"form": AGENT_NAME_FORM},
        ),
    ] = ""
    chat: ChatArg = ""


class ViewPlaceArgs(Args, frozen=True):
    """A chat."""

    chat: Annotated[
        str, Meta(description="the chat whose views are listed; another one is for owners", max_length=1_000)
    ] = ""


class RemoveViewArgs(Args, frozen=True):
    """The views to remove."""

    session: SessionArg
    what: Annotated[Literal["", "anchors", "newest", "search"], Meta(description="only this kind (default: all)")] = ""
    agent: Annotated[str, Meta(description="only those for this named agent", max_length=64)] = ""
    chat: ChatArg = ""


class ViewRow(Struct, frozen=True):
    """A view.

    Attributes:
        chat: the session that is shown it.
        session: the session that is viewed.
        what: newest, anchors or search.
        count: how many anchors or messages at most.
        start: the name of the anchor after which messages count; empty for all.
        agent: the named agent whose turns are shown it; empty for all turns.
        granted: the chat may read there now; if not, the view shows nothing.
        by: who added it.
        added: when that was.
    """

    chat: str
    session: str
    what: str
    count: int
    start: str
    agent: str
    granted: bool
    by: str
    added: IsoTime

    def describe(self, caller: Caller) -> str:
        """Write it in a line."""
        texts, surface = caller.texts, caller.surface
        name = f"ViewRow.{self.what}"
        values = {"chat": self.chat, "session": self.session, "count": self.count, "start": self.start}
        if name not in texts:
            return texts.say_on(surface, "ViewRow.unknown", kind=self.what, **values)
        parts = [texts.say_on(surface, "ViewRow.from" if self.start else name, **values)]
        parts += [texts.say("ViewRow.agent", agent=self.agent)] if self.agent else []
        parts += [] if self.granted else [texts.say_on(surface, "ViewRow.refused", **values)]
        return " ".join(parts)


class ViewChange(Struct, frozen=True):
    """A view after a change.

    Attributes:
        chat: the session that is shown it.
        session: the session that is viewed.
        what: newest, anchors or search.
        agent: the named agent whose turns are shown it; empty for all turns.
        changed: false if it was so before.
    """

    chat: str
    session: str
    what: str
    agent: str
    changed: bool = True

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        if not self.changed:
            return "unchanged"
        return "agent" if self.agent else "added"


class ViewsRemoved(Struct, frozen=True):
    """Views that are gone.

    Attributes:
        chat: the session that was shown them.
        session: the session that was viewed.
        count: how many.
    """

    chat: str
    session: str
    count: int
