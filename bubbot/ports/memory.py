"""Memory views: from which nodes what the model remembers is assembled, and what a package may choose among."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.tape.provenance import Source

NodeKind: TypeAlias = Literal["zone", "topic", "anchor", "tape"]
ZONES_VIEW = "zones"
"""The memory view that every bot has: the zones, as `[memory] zones` orders them."""
MEMORY_GROUP = "bubbot.memory"
"""The entry points of packages that choose what a memory view shows."""


class MemoryNode(Struct, frozen=True):
    """A part of a memory view.

    Attributes:
        kind: `zone`: notes of the chat, of the person or of everybody; `topic`: what was said in a topic; `anchor`: what
            was handed over there, with the entries that it cites; `tape`: what was said in another chat.
        name: `chat`, `user` or `workspace`; the name of the topic, or `current`; the name of the anchor; the session.
        session: the chat of a topic or an anchor; empty for the own one.
        weight: its claim to the room, against those of the others.
        max_age_days: older entries are left out; None: none is too old, but of zones as `[memory] recent_days` says.
        max_tokens: tokens that it may have; None: no limit of its own.
    """

    kind: NodeKind
    name: str
    session: str = ""
    weight: float = 1.0
    max_age_days: int | None = None
    max_tokens: int | None = None

    @property
    def label(self) -> str:
        """The node as settings write it, without limits."""
        return f"{self.kind} {self.name} session={self.session}" if self.session else f"{self.kind} {self.name}"

    @property
    def other_session(self) -> str:
        """The other chat that it reads, by grant; empty for the own one."""
        return self.name if self.kind == "tape" else self.session


class MemoryCandidate(Struct, frozen=True):
    """An entry, or a part of a zone, that a memory view may show.

    Attributes:
        node: the node that brings it.
        tape: its tape.
        id: its entry; of a part of a zone the newest one.
        date: of the entry, ISO 8601; of a part of a zone the newest day of its notes, empty for the long-term text.
        author: who wrote it, in English.
        text: the words.
        tokens: what it takes of the budget, by estimate.
        part: the part of a zone: `long_term`, `today`, `ahead` or `recent`; empty for other nodes.
        source: how foreign its words are.
    """

    node: MemoryNode
    tape: str
    id: int
    date: str
    author: str
    text: str
    tokens: int
    part: str = ""
    source: Source = Source.OWN


ChooseMemory: TypeAlias = Callable[[Sequence[MemoryCandidate], int], Iterable[MemoryCandidate]]
"""Choose among candidates for a budget of tokens; return the chosen ones, the most important first.

A pure function: each request calls it. What does not fit into the budget any more, or into that of its node, is left out.
Candidates that it was not given are ignored.
"""


class MemoryStrategy(Struct, frozen=True):
    """A way to choose what a memory view shows. Packages offer one in the group `bubbot.memory`, under its name.

    Attributes:
        name: as `[memory] view`, or `strategy` of a table in `[memory.views]`, names it.
        choose: chooses among the candidates.
        nodes: where they come from, if no table says so; none: the zones.
        help: what it shows, in a few English words.
    """

    name: str
    choose: ChooseMemory
    nodes: Sequence[MemoryNode] = ()
    help: str = ""


class InstalledMemory(Struct, frozen=True):
    """What packages of the group `bubbot.memory` offer.

    Attributes:
        names: their names.
        load: loads one. Raises `ConfigError`.
    """

    names: tuple[str, ...] = ()
    load: Callable[[str], MemoryStrategy] | None = None
