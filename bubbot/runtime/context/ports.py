"""The ports of a context strategy: what it may ask and read while it prepares the context of a turn, or hands off."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from bubbot.errors import AccessError, EntryInvalid, ModelCallDenied
from bubbot.formatting import clean
from bubbot.ports.session_names import keep_session
from bubbot.ports.turn import Turn
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.context.copies import (
    FindHeads,
    TapeCopy,
    find_copies,
    find_no_heads,
    is_there,
    withhold_copies,
)
from bubbot.runtime.context.evidence import (
    QuotableEntries,
    find_evidence,
    find_sessions,
    read_evidence,
    read_quotable,
    write_quotation,
)
from bubbot.runtime.context.selectors import is_in_context, text_of
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import CORRECTION, TapeHandle, ids_of, spans_of
from bubbot.tape.provenance import Source, find_most_foreign, most_foreign
from bubbot.tape.query import IdRanges, Ranked, Span, TapeQuery, WholeTape, union
from bubbot.tape.withheld import fetch_for_model

MAX_FOUND = 200
"""The most entries that one search or one read returns."""
MAX_CALLS = 16
"""The most model calls of one preparation."""
MAX_HANDOFF_CALLS = 500
"""The most model calls of one handoff: a long window is read in pieces."""
MAX_ASKED_CHARS = 2_097_152
"""The most characters of the messages of one model call; each call is recorded with them."""
_SEARCHED = (Kind.MESSAGE, Kind.ANCHOR)
_PURPOSE = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class MemoryText(Struct, frozen=True):
    """The memory that a chat is shown, as text.

    Attributes:
        source: the most foreign provenance of its lines.
    """

    text: str = ""
    source: Source = Source.OWN


@dataclass(frozen=True, slots=True)
class GrantedEntries:
    """Messages of another session.

    Attributes:
        tape: the name of its tape, with which a reference to an entry begins.
        session: the session.
        entries: oldest first, or best first if words were looked for; their ids are those of the other tape.
    """

    tape: str
    session: str
    entries: tuple[TapeEntry, ...]


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """An entry of another chat, as it may be shown now.

    Attributes:
        tape: the name of its tape.
        session: the chat.
        entry: the entry; its id is that of its tape.
        line: a quotation of it on one line, which begins with its mark.
    """

    tape: str
    session: str
    entry: TapeEntry
    line: str

    @property
    def mark(self) -> str:
        """What cites it in words: its chat and its id there."""
        return f"{self.session}#{self.entry.id}"


ReadMemory: TypeAlias = Callable[[Turn], Awaitable[MemoryText]]
"""Return the memory that the chat of a turn is shown."""
ReadSession: TypeAlias = Callable[[Turn, str], Awaitable[TapeHandle]]
"""Open the tape of another session for reading; see `bubbot.feature.ReadSession`."""


async def read_no_memory(_turn: Turn) -> MemoryText:
    """Return nothing: a bot without memory."""
    return MemoryText()


async def read_no_session(turn: Turn, session: str) -> TapeHandle:
    """Refuse: nobody may read anything."""
    raise AccessError(f"{turn.session} may not read {session}")


class StrategySources(Struct, frozen=True):
    """What the ports of a strategy reach.

    Attributes:
        read_memory: returns the memory that the chat of a turn is shown.
        read_session: opens the tape of another session, by grant.
        find_heads: returns how far other tapes may be read whose words entries of the chat hold.
        find_session: returns the session of a tape; empty if it has none.
    """

    read_memory: ReadMemory = read_no_memory
    read_session: ReadSession = read_no_session
    find_heads: FindHeads = find_no_heads
    find_session: Callable[[str], Awaitable[str]] = keep_session


class PortsClosed(Exception):
    """The preparation or handoff is over, so that its ports answer no more."""


class StrategyPorts:
    """The ports of one preparation or handoff. They write nothing except the records of model calls, and end with it.

    Attributes:
        name: the name of the chat's tape, for queries.
        source: the most foreign provenance of what was given and read so far; what is prepared gets it.
        denial: the newest refusal of a budget or a rate, if any.
        calls: how often it asked the model.
    """

    def __init__(
        self,
        turn: Turn,
        strategy: str,
        sources: StrategySources,
        entries: Sequence[TapeEntry],
        *,
        max_calls: int = MAX_CALLS,
        task: str = "preparation",
    ) -> None:
        """Open them.

        Args:
            entries: what the strategy was given.
            max_calls: the most model calls.
            task: what they are for, as errors name it.
        """
        self._turn = turn
        self._max_calls = max_calls
        self._task = task
        self._strategy = strategy
        self._sources = sources
        self._is_open = True
        self.name = turn.tape.name
        self._known = {entry.id for entry in entries}
        self._granted: dict[str, set[int]] = {}
        self._copies: dict[int, TapeCopy] = {}
        self._note_copies(entries)
        self.source = find_most_foreign(entries)
        self.denial: ModelCallDenied | None = None
        self.calls = 0

    async def ask_model(
        self, messages: Sequence[JsonObject], purpose: str = "prepare", *, system: str = "", shown: Sequence[int] = ()
    ) -> str:
        """Ask the turn's model once and return its text. Budgets and rates apply, and the call is recorded as a step.

        Args:
            messages: `{"role": "user" or "assistant", "content": TEXT}`; the last one is a user's.
            purpose: a word for the record, small letters, digits, `_` and `-`; recorded as `STRATEGY/PURPOSE`, or alone if it
                is the name of the strategy.
            system: the system prompt.
            shown: the entries that the messages show, among those that were given or found.

        Raises:
            EntryInvalid: the messages, the purpose or an id is not of this form.
            ModelError: the call failed or was denied.
        """
        self._require_open()
        if not _PURPOSE.fullmatch(purpose):
            raise EntryInvalid(f"the purpose {purpose!r} is not a word of small letters, digits, _ and -")
        if fault := _find_message_fault(messages):
            raise EntryInvalid(f"ask_model got {fault}")
        if unknown := [entry_id for entry_id in shown if entry_id not in self._known]:
            raise EntryInvalid(f"shown names the entry {unknown[0]!r}, which the strategy was not given")
        if self.calls >= self._max_calls:
            raise EntryInvalid(f"a {self._task} may ask the model {self._max_calls} times")
        self.calls += 1
        label = purpose if purpose == self._strategy else f"{self._strategy}/{purpose}"
        try:
            copies = [self._copies[each] for each in shown if each in self._copies]
            reply = await self._turn.runner.ask(
                self._turn,
                system,
                list(messages),
                purpose=label,
                shown=tuple(shown),
                elsewhere=self._list_foreign(copies),
            )
        except ModelCallDenied as error:
            self.denial = error
            raise
        return route_assistant(clean(reply.text)).text

    async def save(self) -> None:
        """Make what the model calls so far cost durable."""
        self._require_open()
        await self._turn.tape.save()

    async def head(self) -> int:
        """Return the newest id of this chat's tape."""
        self._require_open()
        return await self._turn.tape.head()

    async def read_memory(self) -> str:
        """Return the memory that this chat is shown, as the system prompt has it; empty if there is none."""
        self._require_open()
        memory = await self._sources.read_memory(self._turn)
        self._note(memory.source)
        return memory.text

    async def search(self, words: str, limit: int = 10) -> tuple[TapeEntry, ...]:
        """Find the messages and anchors of this chat that share words with a text, best first, of all its windows.

        Erased and deleted ones, those of sub-tasks and those that no context shows are left out.
        """
        entries = (await self.fetch([self._query(self._turn.tape.name, words, limit)]))[0]
        shown = await _without_hidden(self._turn.tape, entries)
        return shown[: max(limit, 0)]

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return the entries of each query on the tape of this chat. Raise `AccessError` for a query on another tape.

        A note stands in place of words of another chat that may not be shown here any more.
        """
        self._require_open()
        tape = self._turn.tape
        for query in queries:
            if query.tape != tape.name:
                raise AccessError(f"a context strategy may query the tape {tape.name}, not {query.tape}")
        found = await fetch_for_model(tape, queries)
        answers = await withhold_copies(tape, found, partial(self._sources.find_heads, self._turn))
        for entries in answers:
            self._known.update([entry.id for entry in entries])
            self._note_copies(entries)
            self._note(find_most_foreign(entries))
        return [tuple(entries) for entries in answers]

    async def read_granted(self, session: str, words: str = "", limit: int = 20) -> GrantedEntries:
        """Read the newest messages of another session, or those that share words with a text.

        The grant is checked at each call. What is returned is recorded with what is prepared, and with later model calls.

        Raises:
            AccessError: this chat may not read that session now.
            EntryNotFound: there is no such session.
        """
        self._require_open()
        tape = await self._sources.read_session(self._turn, session)
        query = self._query(tape.name, words, limit) if words.strip() else self._newest(tape.name, limit)
        found = await _without_hidden(tape, (await tape.fetch([query]))[0])
        entries = tuple([entry for entry in found if entry.kind == Kind.MESSAGE])[: max(limit, 0)]
        entries = entries if words.strip() else entries[::-1]
        if entries:
            self._note(find_most_foreign(entries))
            self._granted.setdefault(tape.name, set()).update([entry.id for entry in entries])
        return GrantedEntries(tape.name, tape.session or session, entries)

    async def read_beside(self, entries: Sequence[TapeEntry]) -> Mapping[int, Sequence[ForeignEntry]]:
        """Return what is quoted of other chats beside messages among these, by message, as far as it may be shown now."""
        self._require_open()
        facts = find_evidence(entries)
        if not (sessions := find_sessions(facts)):
            return {}
        evidence = await read_evidence(self._turn.tape, facts, await self._sources.find_heads(self._turn, sessions))
        found: dict[int, Sequence[ForeignEntry]] = {}
        for message in dict.fromkeys([quoted.message for _, quoted in facts]):
            shown = evidence.shown_with([message])
            found[message] = [
                self._quote(tape, session, evidence.tapes[tape], number)
                for tape, session in sessions.items()
                for number in ids_of(shown.get(tape, ()), 0)
            ]
        return {message: each for message, each in found.items() if each}

    async def read_cited(self, cited: Sequence[tuple[str, int]], until: str = "") -> Sequence[ForeignEntry]:
        """Return those of these entries of other tapes that may be shown now.

        Args:
            until: the date of what cites them: a later entry is another one, of a tape that began again.
        """
        self._require_open()
        tapes = dict.fromkeys([tape for tape, _ in cited if tape != self.name], "")
        heads = await self._sources.find_heads(self._turn, tapes) if tapes else {}
        found: list[ForeignEntry] = []
        for tape in [tape for tape in tapes if heads.get(tape)]:
            spans = spans_of(sorted({number for name, number in cited if name == tape}))
            quotable = await read_quotable(self._turn.tape, tape, spans, heads[tape])
            dates = {number: entry.date for number, entry in quotable.entries.items()}
            session = await self._sources.find_session(tape)
            ids = [number for number in quotable.entries if is_there(dates, number, until)]
            found += [self._quote(tape, session, quotable, number) for number in ids]
        return found

    def list_copied(self, entry_id: int) -> Sequence[tuple[str, int]]:
        """Return the entries of other tapes whose words an entry holds that was given or found, such as a result of `chat.read`."""
        copy = self._copies.get(entry_id)
        sources = copy.sources.items() if copy is not None else ()
        return tuple([(tape, number) for tape, spans in sources for number in ids_of(spans, 0)])

    def _quote(self, tape: str, session: str, found: QuotableEntries, number: int) -> ForeignEntry:
        """Quote an entry of another tape, which counts as read from then on."""
        entry, correction = found.entries[number], found.corrections.get(number)
        self._note(find_most_foreign([entry] if correction is None else [entry, correction]))
        self._granted.setdefault(tape, set()).update([number] if correction is None else [number, correction.id])
        return ForeignEntry(tape, session, entry, f"{session}{write_quotation(entry, correction)}")

    @property
    def foreign_spans(self) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """The entries of other tapes that were read, or whose words the given and found ones hold, as id ranges by tape."""
        return self._list_foreign(self._copies.values())

    def _list_foreign(self, copies: Iterable[TapeCopy]) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        spans: dict[str, list[Span]] = {tape: [*spans_of([*ids])] for tape, ids in self._granted.items()}
        for copy in copies:
            for tape, sources in copy.sources.items():
                spans.setdefault(tape, []).extend(sources)
        joined = {tape: union(spans[tape]) for tape in sorted(spans)}
        return tuple([(tape, tuple([(low, high or low) for low, high in each])) for tape, each in joined.items()])

    def has_shown(self, cited: object) -> bool:
        """Return true if this is the id of an entry that was given or found, or a pair of a granted tape and an id."""
        if isinstance(cited, (list, tuple)) and len(cited) == 2:
            tape, number = cited
            return type(number) is int and any(
                name == tape and any(low <= number <= high for low, high in spans) for name, spans in self.foreign_spans
            )
        return type(cited) is int and cited in self._known

    def knows(self, spans: Sequence[Sequence[int]]) -> bool:
        """Return true if these are id ranges of entries that were given or found."""
        for span in spans:
            low, high = span
            if type(low) is not int or type(high) is not int or not 0 <= high - low < len(self._known):
                return False
            if not self._known.issuperset(range(low, high + 1)):
                return False
        return True

    def close(self) -> None:
        """End them: later calls raise `PortsClosed`."""
        self._is_open = False

    def _require_open(self) -> None:
        if not self._is_open:
            raise PortsClosed(f"the {self._task} is over")

    def _note_copies(self, entries: Sequence[TapeEntry]) -> None:
        self._copies.update({copy.entry.id: copy for copy in find_copies(self.name, entries)})

    def _note(self, source: Source) -> None:
        self.source = most_foreign(self.source, source)

    def _query(self, tape: str, words: str, limit: int) -> TapeQuery:
        return TapeQuery(tape, Ranked(words), kinds=_SEARCHED, limit=2 * min(max(limit, 0), MAX_FOUND))

    def _newest(self, tape: str, limit: int) -> TapeQuery:
        wanted = 2 * min(max(limit, 0), MAX_FOUND)
        return TapeQuery(tape, WholeTape(), kinds=(Kind.MESSAGE,), newest=True, limit=wanted)


async def _without_hidden(tape: TapeHandle, entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
    """Leave out entries that no context may show: erased, deleted, of sub-tasks, or without words."""
    shown = [entry for entry in entries if not entry.erased and is_in_context(entry) and entry.is_shown_to("")]
    if not shown:
        return ()
    first = min([entry.id for entry in shown])
    changes = TapeQuery(tape.name, IdRanges(((first, None),)), kinds=(Kind.EVENT,), names=(CORRECTION,))
    hidden = Corrections.of((await tape.fetch([changes]))[0]).hidden
    return tuple([entry for entry in shown if entry.id not in hidden and _has_words(entry)])


def _has_words(entry: TapeEntry) -> bool:
    if entry.kind == Kind.MESSAGE:
        return bool(text_of(entry.payload.get("content")).strip())
    state = entry.payload.get("state")
    return isinstance(state, Mapping) and isinstance(state.get("summary"), str)


def _find_message_fault(messages: Sequence[object]) -> str:
    """Describe why these messages cannot be asked; empty if they can."""
    for each in messages:
        if not isinstance(each, Mapping) or each.get("role") not in ("user", "assistant"):
            return "a message that is none of a user or an assistant"
        if each.keys() != {"role", "content"} or not isinstance(each["content"], str) or not each["content"].strip():
            return "a message that is no text"
    if sum([len(str(each["content"])) for each in messages if isinstance(each, Mapping)]) > MAX_ASKED_CHARS:
        return f"more than {MAX_ASKED_CHARS} characters"
    last = messages[-1] if messages else None
    return "" if isinstance(last, Mapping) and last["role"] == "user" else "no message of a user at the end"
