"""What a program is shown: the tapes of the chats that it was granted, and nothing of any other tape.

The boundary of reading keeps the store from being asked for another tape at all. What a granted tape holds of others is kept back
here: words that rest on entries of a chat that was not granted, and the names of tapes and chats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from bubbot.errors import AccessError
from bubbot.features.mcp.serve.answers import (
    Anchor,
    Anchors,
    AnswerExplanation,
    ChatMemoryArgs,
    ChatTopicsArgs,
    DayNote,
    ExplainAnswerArgs,
    Hit,
    Hits,
    ListAnchorsArgs,
    Memory,
    Message,
    Messages,
    ReadMessagesArgs,
    SearchMessagesArgs,
    Topic,
    Topics,
)
from bubbot.features.mcp.serve.results import MessageState, SendMessageArgs
from bubbot.features.mcp.serve.views import FoundTopic, QuotedEntry, TapeViews
from bubbot.ports.agents import writer_of
from bubbot.runtime.context.copies import find_copies, list_withheld
from bubbot.runtime.context.selectors import format_agent, format_sender, is_in_context, text_of
from bubbot.tape.anchor import CitedEntry, find_parents, find_sources
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.withheld import reading_for_model

MAX_TEXT_CHARS = 8_000
"""Characters of one text in an answer."""
MAX_PAGE_CHARS = 40_000
"""Characters of all texts of a page, after its first one."""
MAX_HITS = 100
"""Hits of one chat, over all pages."""
MAX_ANCHORS = 1_000
MAX_TOPICS = 500
MAX_LISTED = 200
"""Steps, tools and entries that an explanation lists."""
MAX_NAMED_SESSIONS = 20
MAX_DEPTH = 5
"""How many copies of copies are followed; words that rest on more are not shown."""
CUT = "…"


AskToSend: TypeAlias = Callable[[SendMessageArgs], Awaitable[MessageState]]
"""Ask the running bot about a message for a chat that is named. Raise `BubbotError` if it refuses, or none runs."""


class GrantedTapes(Struct, frozen=True):
    """The tapes of the chats that a program may read now.

    Attributes:
        boundary: the store, as the program may read it.
        views: the views of other features.
        sessions: the chats.
        targets: those of them to which it may ask to send messages.
        ask_to_send: asks the running bot to ask an owner about a message for one of these.
    """

    boundary: TapeBoundary
    views: TapeViews
    sessions: tuple[str, ...]
    targets: tuple[str, ...] = ()
    ask_to_send: AskToSend | None = None

    async def search(self, args: SearchMessagesArgs) -> Hits:
        """Find messages in a chat, or in all that are granted."""
        sessions = (self._choose(args.session),) if args.session.strip() else self.sessions
        if not sessions:
            raise self._refuse("")
        found, is_incomplete = list[Hit](), False
        for session in sessions:
            tape = self._open(session)
            with reading_for_model():
                hits, is_cut = await self.views.search(tape, args, MAX_HITS)
                shown = await self._find_shown(tape, [hit.id for hit in hits])
            found += [structs.replace(hit, session=session) for hit in hits if hit.id in shown]
            is_incomplete = is_incomplete or is_cut
        found.sort(key=lambda hit: hit.date, reverse=True)
        found.sort(key=lambda hit: ("phrase", "words", "part", "spelling").index(hit.match))
        page = found[args.place : args.place + args.limit]
        end = args.place + len(page)
        return Hits(hits=tuple(page), is_incomplete=is_incomplete, next_cursor=str(end) if end < len(found) else "")

    async def read(self, args: ReadMessagesArgs) -> Messages:
        """Read messages of a chat, the newest if none are named."""
        session = self._choose(args.session)
        tape, before = self._open(session), args.place or args.before
        if before == 1:
            return Messages(session=session, messages=())
        with reading_for_model():
            quoted = await self.views.read_messages(tape, args.limit, before)
            entries = [entry for each in quoted for entry in (each.entry, each.correction) if entry is not None]
            withheld = await self._find_withheld(tape, entries)
        page, size = list[Message](), 0
        for each in reversed(quoted):
            message = _show_message(each, withheld)
            size += len(message.text) + len(message.correction)
            if page and size > MAX_PAGE_CHARS:
                break
            page.insert(0, message)
        first = page[0].id if page else 0
        return Messages(session=session, messages=tuple(page), next_cursor=str(first) if first > 1 else "")

    async def anchors(self, args: ListAnchorsArgs) -> Anchors:
        """List the anchors of a chat."""
        session = self._choose(args.session)
        tape = self._open(session)
        with reading_for_model():
            ids = await self.views.list_anchors(tape, MAX_ANCHORS)
            older = [number for number in ids if number < args.place or not args.place]
            entries = await _fetch(tape, older[: args.limit])
            withheld = await self._find_withheld(tape, entries)
        page = [self._show_anchor(tape.name, entry, withheld) for entry in sorted(entries, key=_newest)]
        has_more = bool(page) and len(older) > len(page)
        return Anchors(session=session, anchors=tuple(page), next_cursor=str(page[-1].id) if has_more else "")

    async def memory(self, args: ChatMemoryArgs) -> Memory:
        """Read what a chat remembers."""
        session = self._choose(args.session)
        with reading_for_model():
            found = await self.views.read_memory(self._open(session))
        page, size = list[DayNote](), 0
        for note in found.notes[args.place : args.place + args.limit]:
            size += len(note.text)
            if page and size > MAX_PAGE_CHARS:
                break
            page.append(DayNote(note.date, _cut(note.text, MAX_PAGE_CHARS)))
        end = args.place + len(page)
        return Memory(
            session=session,
            version=found.version,
            entry=found.entry,
            long_term="" if args.place else _cut(found.long_term, MAX_PAGE_CHARS),
            notes=tuple(page),
            next_cursor=str(end) if page and end < len(found.notes) else "",
        )

    async def why(self, args: ExplainAnswerArgs) -> AnswerExplanation:
        """Explain the newest answer of a chat, or a turn."""
        session = self._choose(args.session)
        with reading_for_model():
            found = await self.views.explain(self._open(session), args.turn.strip())
        left_out = max(len(found.steps) - MAX_LISTED, 0) + max(len(found.tools) - MAX_LISTED, 0)
        return structs.replace(
            found,
            session=session,
            steps=tuple([structs.replace(step, shown=step.shown[:MAX_LISTED]) for step in found.steps[:MAX_LISTED]]),
            tools=found.tools[:MAX_LISTED],
            window=found.window[:MAX_LISTED],
            foreign=found.foreign[:MAX_LISTED],
            left_out=left_out,
        )

    async def topics(self, args: ChatTopicsArgs) -> Topics:
        """List the topics of a chat."""
        session = self._choose(args.session)
        tape = self._open(session)
        with reading_for_model():
            found = (await self.views.list_topics(tape))[:MAX_TOPICS]
            page = [await self._show_topic(tape.name, topic) for topic in found[args.place : args.place + args.limit]]
        end = args.place + len(page)
        return Topics(session=session, topics=tuple(page), next_cursor=str(end) if page and end < len(found) else "")

    async def send(self, args: SendMessageArgs) -> MessageState:
        """Ask an owner if a message is sent, or say how it stands. Nothing is written here: the running bot does."""
        if self.ask_to_send is None or not self.targets:
            raise AccessError("this program may not ask to send messages")
        alone = len(self.targets) == 1 and not args.session.strip()
        session = self.targets[0] if alone else self._choose(args.session)
        if session not in self.targets:
            named = ", ".join(self.targets[:MAX_NAMED_SESSIONS])
            raise AccessError(f"session is {session!r}, which this program may read; it may ask to send to {named}")
        return await self.ask_to_send(structs.replace(args, session=session))

    def _choose(self, named: str) -> str:
        """Return the chat that is named, or the only one. Raise `AccessError`, the same for one that does not exist."""
        name = named.strip()
        if not name and len(self.sessions) == 1:
            return self.sessions[0]
        for session in self.sessions:
            if name in (session, session.removeprefix("stdin:")):
                return session
        raise self._refuse(name)

    def _refuse(self, name: str) -> AccessError:
        granted = ", ".join(self.sessions[:MAX_NAMED_SESSIONS]) or "none"
        more = f" and {len(self.sessions) - MAX_NAMED_SESSIONS} more" if len(self.sessions) > MAX_NAMED_SESSIONS else ""
        which = f"session is {name[:200]!r}, which is" if name else "session is missing: it has to be"
        return AccessError(
            f"{which} {'not ' if name else ''}one of the chats that this program may read: {granted}{more}"
        )

    def _open(self, session: str) -> TapeHandle:
        return self.boundary.open_session(session)

    async def _find_heads(self, tapes: Mapping[str, str]) -> Mapping[str, int]:
        """Return how far other tapes may be read: those that are granted, whole."""
        return {name: await self.boundary.head(name) if self.boundary.may_read(name) else 0 for name in tapes}

    async def _find_withheld(self, tape: TapeHandle, entries: Sequence[TapeEntry], depth: int = 0) -> frozenset[int]:
        """Return the ids of entries whose words rest on what may not be read, however many copies lie between."""
        ordered = sorted(entries, key=lambda entry: entry.id)
        copies = find_copies(tape.name, ordered)
        withheld = {*await list_withheld(tape, copies, self._find_heads)}
        originals: dict[int, list[CitedEntry]] = {
            entry.id: [*find_sources(entry.payload.get("state"), tape.name, entry.id)]
            for entry in ordered
            if entry.kind == Kind.ANCHOR
        }
        for copy in copies:
            if copy.entry.id not in withheld:
                found = [(name, number) for name, spans in copy.sources.items() for number in ids_of(spans, 0)]
                originals.setdefault(copy.entry.id, []).extend(found)
        gone = await self._find_withheld_among([each for found in originals.values() for each in found], depth)
        return frozenset(withheld | {number for number, found in originals.items() if not gone.isdisjoint(found)})

    async def _find_withheld_among(self, cited: Sequence[CitedEntry], depth: int) -> frozenset[CitedEntry]:
        """Return those of these entries whose words may not be shown, on whatever tape they stand."""
        by_tape: dict[str, list[int]] = {}
        for name, number in cited:
            by_tape.setdefault(name, []).append(number)
        gone = set[CitedEntry]()
        for name, numbers in by_tape.items():
            if not self.boundary.may_read(name) or depth >= MAX_DEPTH:
                gone |= {(name, number) for number in numbers}
                continue
            other = self.boundary.open_tape(name)
            inner = await self._find_withheld(other, await _fetch(other, sorted({*numbers})), depth + 1)
            gone |= {(name, number) for number in inner}
        return frozenset(gone)

    async def _find_shown(self, tape: TapeHandle, ids: Sequence[int]) -> frozenset[int]:
        """Return which of these messages may be shown."""
        entries = await _fetch(tape, ids)
        withheld = await self._find_withheld(tape, entries)
        return frozenset([entry.id for entry in entries if entry.id not in withheld and _is_shown(entry)])

    @staticmethod
    def _show_anchor(tape: str, entry: TapeEntry, withheld: frozenset[int]) -> Anchor:
        state = entry.payload.get("state")
        state = state if isinstance(state, Mapping) else {}
        sources, parents = find_sources(state, tape, entry.id), find_parents(entry, tape)
        is_withheld = entry.id in withheld
        shown: JsonObject = {} if is_withheld else state
        return Anchor(
            entry.id,
            _cut(entry.name or "", 200),
            entry.date,
            entry.opens_window,
            _text(shown, "phase"),
            _text(shown, "summary"),
            _texts(shown, "next_steps"),
            tuple([number for name, number in sources if name == tape][:MAX_LISTED]),
            tuple([number for name, number in parents if name == tape][:MAX_LISTED]),
            len([name for name, _ in (*sources, *parents) if name != tape]),
            is_withheld,
        )

    async def _show_topic(self, tape: str, topic: FoundTopic) -> Topic:
        is_withheld = bool(await self._find_withheld_among(find_sources(topic.state, tape), 0))
        shown: JsonObject = {} if is_withheld else topic.state
        return Topic(
            topic.name,
            topic.anchor,
            topic.date,
            topic.messages,
            topic.is_current,
            _text(shown, "summary"),
            _texts(shown, "next_steps"),
            is_withheld,
        )


async def _fetch(tape: TapeHandle, ids: Sequence[int]) -> list[TapeEntry]:
    if not ids:
        return []
    (entries,) = await tape.fetch([TapeQuery(tape.name, IdRanges(tuple(spans_of(sorted(ids)))))])
    return [entry for entry in entries if not entry.erased]


def _is_shown(entry: TapeEntry) -> bool:
    return entry.kind == Kind.MESSAGE and is_in_context(entry) and entry.is_shown_to("") and not entry.erased


def _newest(entry: TapeEntry) -> int:
    return -entry.id


def _show_message(quoted: QuotedEntry, withheld: frozenset[int]) -> Message:
    entry, correction = quoted.entry, quoted.correction
    role = entry.payload.get("role")
    is_withheld = entry.id in withheld
    text = "" if is_withheld else text_of(entry.payload.get("content"))
    corrected = None if correction is None or correction.id in withheld else correction.data.get("content")
    return Message(
        entry.id,
        entry.date,
        _author(entry),
        role if isinstance(role, str) else "",
        _cut(text, MAX_TEXT_CHARS),
        len(text) > MAX_TEXT_CHARS,
        is_withheld,
        0 if correction is None else correction.id,
        _cut(corrected, MAX_TEXT_CHARS) if isinstance(corrected, str) else "",
    )


def _author(entry: TapeEntry) -> str:
    if entry.payload.get("role") == "assistant":
        writer = writer_of(entry)
        return format_agent(writer) if writer else ""
    sender = entry.meta.get("sender")
    return format_sender(sender) if isinstance(sender, Mapping) else ""


def _text(state: JsonObject, key: str) -> str:
    value = state.get(key)
    return _cut(value, MAX_TEXT_CHARS) if isinstance(value, str) else ""


def _texts(state: JsonObject, key: str) -> tuple[str, ...]:
    values = state.get(key)
    items = values if isinstance(values, (list, tuple)) else ()
    return tuple([_cut(each, 1_000) for each in items if isinstance(each, str)][:50])


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}{CUT}"
