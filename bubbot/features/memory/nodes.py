"""Nodes of a memory view outside the zones: what a topic, an anchor or another chat brings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, time, timedelta, tzinfo
from typing import Literal, TypeAlias

from msgspec import Struct, field, structs

from bubbot.errors import AccessError, ConfigError, EntryNotFound
from bubbot.features.memory.settings import CURRENT_TOPIC
from bubbot.ports.memory import MemoryCandidate, MemoryNode
from bubbot.runtime.context.evidence import EVIDENCE_KINDS, author_of, choose_quotable, quotable_text, write_quotation
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.context.view import records_view
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.provenance import most_foreign, source_of
from bubbot.tape.query import IdRanges, OpeningAnchor, Slice, Span, TapeQuery, WholeTape, parse_moment

MAX_NODE_ENTRIES = 200
"""The newest entries of a node that are read; no budget has room for more."""
MAX_STEPS_READ = 8
"""The newest steps among which that of the conversation is looked for: sub-tasks and summaries write some, too."""

Refusal: TypeAlias = Literal["", "grant", "elsewhere", "missing", "main_line"]
"""Why a node brings nothing: this chat may not read it; the answer goes to another chat; there is no such topic, anchor or
chat; the chat is on no topic."""
FindTopic: TypeAlias = Callable[[TapeHandle, str], Awaitable["tuple[Span, ...] | None"]]
"""Return the id ranges of a topic, by its name as people write it; None if there is no such topic."""
FindCurrentTopic: TypeAlias = Callable[[TapeHandle], Awaitable[str]]
"""Return the name of the topic that a chat is on; empty for its main line."""
OpenSession: TypeAlias = Callable[[str], Awaitable[TapeHandle]]
"""Open the tape of another session that may be read here now. Raises `AccessError`, `ConfigError` or `EntryNotFound`."""


class NodeReading(Struct, frozen=True):
    """What a node brings.

    Attributes:
        node: the node.
        candidates: what may be shown, the most important first.
        refusal: why there is nothing; empty if the node was read.
        too_old: how many entries are too old.
        in_window: how many entries the window shows anyway.
        tape: the tape that was read, if it is another one; empty for the own one.
        session: the session of that tape.
    """

    node: MemoryNode
    candidates: tuple[MemoryCandidate, ...] = ()
    refusal: Refusal = ""
    too_old: int = 0
    in_window: int = 0
    tape: str = ""
    session: str = ""


class ShownAlready(Struct, frozen=True):
    """What the window of a chat shows.

    Attributes:
        first: its first entry; None if there is no window.
        recalled: what it recalls from before.
        elsewhere: what the newest request of this window showed of other tapes, as ids by tape.
        quoted: what it showed of this tape from before the window.
    """

    first: int | None = None
    recalled: tuple[Span, ...] = ()
    elsewhere: Mapping[str, frozenset[int]] = field(default_factory=dict)
    quoted: frozenset[int] = frozenset()

    def is_in_window(self, entry: int) -> bool:
        """Return true for an entry of this tape that the window shows anyway."""
        is_after = self.first is not None and entry >= self.first
        return is_after or any(low <= entry <= (high or entry) for low, high in self.recalled)

    def is_quoted(self, tape: str, entry: int) -> bool:
        """Return true for an entry that is quoted beside an earlier message; an empty tape is this one."""
        return entry in (self.elsewhere.get(tape, frozenset()) if tape else self.quoted)


async def read_shown(tape: TapeHandle) -> ShownAlready:
    """Read what the window of a tape shows."""
    steps = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=MAX_STEPS_READ)
    openings, found = await tape.fetch([TapeQuery(tape.name, OpeningAnchor(), missing="empty"), steps])
    if not openings:
        return ShownAlready()
    opening, elsewhere, quoted = openings[0], dict[str, frozenset[int]](), set[int]()
    for step in found:
        data = step.data
        if step.id > opening.id and step.is_shown_to("") and records_view(data) and not data.get("purpose"):
            for span in data.get("shown", ()):
                if type(span[0]) is str:
                    elsewhere[span[0]] = frozenset(_ids(span[1]))
                else:
                    quoted.update(number for number in _ids([span]) if number < opening.id)
            break
    return ShownAlready(opening.id, tuple(recalled_ranges(opening)), elsewhere, frozenset(quoted))


def _ids(spans: Sequence[Sequence[int]]) -> list[int]:
    return [number for low, high in spans for number in range(low, high + 1)]


class NodeReader:
    """Reads the nodes of one chat's memory view, at one moment."""

    def __init__(
        self,
        tape: TapeHandle,
        *,
        now: datetime,
        zone: tzinfo,
        open_session: OpenSession,
        find_topic: FindTopic | None = None,
        find_current_topic: FindCurrentTopic | None = None,
        replies_elsewhere: bool = False,
    ) -> None:
        """Take the tape of the chat, the time in its zone, and what knows other chats and topics.

        If the answer goes to another chat, no third one is read: its grant is for this chat.
        """
        self._replies_elsewhere = replies_elsewhere
        self._tape = tape
        self._now = now
        self._zone = zone
        self._open_session = open_session
        self._find_topic = find_topic
        self._find_current = find_current_topic

    async def read(self, node: MemoryNode, shown: ShownAlready) -> NodeReading:
        """Read a node: what it may show, and what it leaves out."""
        tape, other = self._tape, node.other_session
        if other and other != self._tape.session:
            if self._replies_elsewhere:
                return NodeReading(node, refusal="elsewhere", session=other)
            try:
                tape = await self._open_session(other)
            except AccessError:
                return NodeReading(node, refusal="grant", session=other)
            except (ConfigError, EntryNotFound):
                return NodeReading(node, refusal="missing", session=other)
        is_own = tape.name == self._tape.name
        reading = NodeReading(node) if is_own else NodeReading(node, tape=tape.name, session=tape.session)
        found, refusal = await self._find_entries(node, tape)
        if refusal:
            return structs.replace(reading, refusal=refusal)
        since = self._find_start(node)
        fresh = [entry for entry in found if not _is_older(entry, since)]
        wanted = [entry for entry in fresh if not (is_own and shown.is_in_window(entry.id))]
        return structs.replace(
            reading,
            candidates=tuple(await self._build_candidates(node, tape, wanted)),
            too_old=len(found) - len(fresh),
            in_window=len(fresh) - len(wanted),
        )

    def _find_start(self, node: MemoryNode) -> datetime | None:
        """Return when the oldest day begins that counts, in the zone of the chat."""
        if node.max_age_days is None:
            return None
        day = self._now.astimezone(self._zone).date() - timedelta(days=node.max_age_days)
        return datetime.combine(day, time(), self._zone)

    async def _find_entries(self, node: MemoryNode, tape: TapeHandle) -> tuple[list[TapeEntry], Refusal]:
        """Find the entries of a node that may be quoted, the most important first."""
        if node.kind == "anchor":
            return await self._find_handed_over(node, tape)
        part: Slice = WholeTape()
        if node.kind == "topic":
            name = node.name
            if name == CURRENT_TOPIC:
                name = await self._find_current(tape) if self._find_current else ""
                if not name:
                    return [], "main_line"
            visits = await self._find_topic(tape, name) if self._find_topic else None
            if visits is None:
                return [], "missing"
            part = IdRanges(visits)
        # Of another chat only what people and the bot said there: it may hand over what it was told by a third one.
        kinds = EVIDENCE_KINDS if node.kind == "topic" and tape is self._tape else (Kind.MESSAGE,)
        query = TapeQuery(tape.name, part, kinds=kinds, newest=True, limit=MAX_NODE_ENTRIES)
        (found,) = await tape.fetch([query])
        return [entry for entry in found if quotable_text(entry)], ""

    async def _find_handed_over(self, node: MemoryNode, tape: TapeHandle) -> tuple[list[TapeEntry], Refusal]:
        """Find the newest anchor of a name, then what it recalls and cites, newest first."""
        query = TapeQuery(tape.name, kinds=(Kind.ANCHOR,), names=(node.name,), newest=True, limit=1)
        (anchors,) = await tape.fetch([query])
        if not anchors:
            return [], "missing"
        anchor, state = anchors[0], anchors[0].payload.get("state")
        cited = state.get("source_ids") if isinstance(state, Mapping) else ()
        sources = cited if isinstance(cited, tuple) else ()
        spans = [*recalled_ranges(anchor), *((one, one) for one in sources if type(one) is int and 0 < one < anchor.id)]
        found: Sequence[TapeEntry] = ()
        if spans:
            part = IdRanges(tuple(sorted(spans)))
            (found,) = await tape.fetch(
                [TapeQuery(tape.name, part, kinds=EVIDENCE_KINDS, newest=True, limit=MAX_NODE_ENTRIES)]
            )
        return [entry for entry in (anchor, *found) if quotable_text(entry)], ""

    async def _build_candidates(
        self, node: MemoryNode, tape: TapeHandle, entries: Sequence[TapeEntry]
    ) -> list[MemoryCandidate]:
        if not entries:
            return []
        first = min(entry.id for entry in entries)
        query = TapeQuery(tape.name, IdRanges(((first, None),)), kinds=(Kind.EVENT,), names=(CORRECTION,))
        (events,) = await tape.fetch([query])
        quotable = choose_quotable(entries, events)
        return [
            _build_candidate(node, tape, entry, quotable.corrections.get(entry.id))
            for entry in entries
            if entry.id in quotable.entries
        ]


def _build_candidate(
    node: MemoryNode, tape: TapeHandle, entry: TapeEntry, correction: TapeEntry | None
) -> MemoryCandidate:
    words, source = quotable_text(entry), source_of(entry)
    if correction is not None:
        words, source = str(correction.data.get("content", words)), most_foreign(source, source_of(correction))
    tokens = estimate_tokens(write_quotation(entry, correction))
    return MemoryCandidate(node, tape.name, entry.id, entry.date, author_of(entry), words, tokens, source=source)


def _is_older(entry: TapeEntry, since: datetime | None) -> bool:
    moment = parse_moment(entry.date)
    return since is not None and moment is not None and moment < since
