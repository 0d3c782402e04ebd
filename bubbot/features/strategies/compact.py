"""Compaction: reading less of a window, without deleting anything.

If a window no longer fits, long results of tools become pointers first, oldest first; then whole exchanges go, oldest
first. Both go on until half of the budget is free, so that a cut holds for a while and consecutive requests keep
extending each other. What is cut is a fact (`context/cut`), and what is left out is named to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from itertools import accumulate, pairwise
from typing import TypeAlias

from bubbot.features.strategies.events import CUT
from bubbot.records import dataclass
from bubbot.runtime.calls import move_pointer
from bubbot.runtime.context.selectors import (
    ContextMessage,
    MessageStyle,
    convert_message,
    find_correction,
    format_anchor_line,
    is_in_context,
    prepend_opening,
    select_messages,
)
from bubbot.runtime.context.strategy import ContextInput, ModelContext
from bubbot.runtime.context.tokens import (
    BYTES_PER_TOKEN,
    MESSAGE_TOKENS,
    estimate_context_tokens,
    estimate_message_tokens,
    estimate_tokens,
)
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, event, objects_of, text_field
from bubbot.tape.query import parse_moment

LONG_RESULT_CHARS = 1_000
"""A longer result may become a pointer."""
POINTER_HEAD_CHARS = 300
"""Characters of its beginning that a pointer keeps."""
POINTER_TAIL_CHARS = 150
"""Characters of its end."""
MAX_RANGES = 4
"""The ranges that name what is left out."""
FRAME_TOKENS = 80
"""Room for the line that names them, and for the frame of the window's opening."""
RANGE_GAP = 100
"""Entries between two ranges; a smaller gap is bookkeeping of turns."""


Select: TypeAlias = Callable[[Sequence[TapeEntry]], tuple[ContextMessage, ...]]
"""Makes messages of entries."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is cut of a window.

    Attributes:
        start: the oldest entry that is still read; None for all.
        results: the entries whose long results are pointers.
        left_out: inclusive ranges of what is left out; empty if nobody knows them.
        since: the date of the oldest entry that is left out.
        until: the date of the newest one.
    """

    start: int | None = None
    results: frozenset[int] = frozenset()
    left_out: tuple[tuple[int, int], ...] = ()
    since: str = ""
    until: str = ""

    def as_json(self) -> JsonObject:
        """Build the data of the fact, which says everything that is cut by now."""
        start = {} if self.start is None else {"from": self.start}
        left_out = {"left_out": self.left_out, "since": self.since, "until": self.until} if self.left_out else {}
        return {**start, "results": sorted(self.results), **left_out}


def fold_compact(source: ContextInput) -> ModelContext:
    """Show a window so that it fits into the budget: some results as pointers, and without its oldest exchanges."""
    return compact_messages(source, lambda entries: select_messages(entries, source.style))


def fold_compact_whole(source: ContextInput) -> ModelContext:
    """Do the same by all entries of the window, as version 2 did."""
    return compact_messages(source, lambda entries: select_messages(entries, source.style), has_floor=False)


def compact_messages(source: ContextInput, select: Select, *, has_floor: bool = True) -> ModelContext:
    """Compact the messages that `select` makes of entries: of all of the source, or of those from some entry on.

    What it makes of the latter must not depend on the entries before them.

    Args:
        source: the source.
        select: makes the messages.
        has_floor: what is built does not depend on entries before `find_floor`.
    """
    if source.budget is None:
        return ModelContext(prepend_opening(source.opening, select(source.entries), source.style))
    compaction = _Compaction(source, select)
    cut = read_cut(source.opening, source.entries)
    shown = compaction.show(cut)
    if estimate_context_tokens(shown) <= source.budget:
        return ModelContext(shown)
    extended = compaction.extend(compaction.skip(cut) if has_floor else cut, source.budget)
    if extended == cut:  # nothing is left to cut
        return ModelContext(shown)
    return ModelContext(compaction.show(extended), (event(CUT, extended.as_json()),))


def read_cut(opening: TapeEntry | None, entries: Sequence[TapeEntry]) -> Cut:
    """Read what the newest usable fact says is cut of this window."""
    first = 0 if opening is None else opening.id
    for entry in reversed(entries):
        if entry.name == CUT and entry.id > first and (cut := _parse_cut(entry.data, entry.id)) is not None:
            return cut
    return Cut()


def _parse_cut(data: JsonObject, entry_id: int) -> Cut | None:
    start, results, since, until = (data.get(name) for name in ("from", "results", "since", "until"))
    if start is None and results is None:
        return None
    if start is not None and not (type(start) is int and 0 < start < entry_id):
        return None
    return Cut(
        start,
        frozenset(_whole_numbers(results)),
        tuple(_spans(data.get("left_out"))),
        since if isinstance(since, str) else "",
        until if isinstance(until, str) else "",
    )


def _whole_numbers(value: object) -> Iterable[int]:
    return [item for item in value if type(item) is int] if isinstance(value, (list, tuple)) else ()


def _spans(value: object) -> Iterable[tuple[int, int]]:
    for span in value if isinstance(value, (list, tuple)) else ():
        if isinstance(span, (list, tuple)) and len(span) == 2 and len(ids := [*_whole_numbers(span)]) == 2:
            yield ids[0], ids[1]


@dataclass(frozen=True, slots=True)
class _Compaction:
    source: ContextInput
    select: Select

    def show(self, cut: Cut) -> tuple[ContextMessage, ...]:
        """Build the messages that a cut leaves; they depend on nothing before its start."""
        messages = _point(self._messages_from(cut.start), cut.results, self.source.entries)
        if cut.left_out and cut.start is not None and self.source.style.tools:  # else it could not open them
            messages = _prepend_line(_format_left_out(cut, self.source.style), messages)
        return prepend_opening(self.source.opening, messages, self.source.style)

    def skip(self, cut: Cut) -> Cut:
        """Cut what is older than the floor, by nothing but the floor: it need not have been read."""
        source, opening = self.source, self.source.opening
        entries = [entry for entry in source.entries if cut.start is None or entry.id >= cut.start]
        floor = None if source.budget is None else find_floor(entries, source.style, source.budget)
        if floor is None or floor == cut.start:
            return cut
        window = [*(recalled_ranges(opening) if opening else ()), (opening.id + 1 if opening else 1, floor - 1)]
        skipped = [(max(low, cut.start or 1), min(high, floor - 1)) for low, high in window]
        spans = [*cut.left_out, *((low, high) for low, high in skipped if low <= high)]
        date = next(entry.date for entry in entries if entry.id == floor)
        since = cut.since or (opening.date if opening and opening.date < date else date)
        return replace(cut, start=floor, left_out=_join_ranges(spans), since=since, until=date)

    def extend(self, cut: Cut, budget: int) -> Cut:
        """Cut more, until the rest takes half of the budget; equal to `cut` if nothing is left to cut."""
        opening, entries = self.source.opening, self.source.entries
        fixed = estimate_tokens(format_anchor_line(opening)) if opening else 0
        room = max(budget - fixed - FRAME_TOKENS, 1)
        messages, start = self._messages_from(cut.start), cut.start
        results = _add_results(messages, cut.results, room // 2, entries)
        rest = _point(messages, results, entries)
        place = _find_start(rest, room // 2) if _total(rest) > room // 2 else None
        if place:
            start, messages = messages[place].ids[-1], messages[place:]
            rest = rest[place:]
        if _total(rest) > room:  # even what the model has just called for is too long
            results = _add_results(messages, results, room, entries, with_newest=True)
        results &= {entry_id for message in messages for entry_id in message.ids}
        return replace(cut, results=results) if not place or start is None else self._leave_out(cut, start, results)

    def _messages_from(self, start: int | None) -> tuple[ContextMessage, ...]:
        entries = self.source.entries
        if start is not None and entries and entries[0].id < start:
            entries = [entry for entry in entries if entry.id >= start]
        return self.select(entries)

    def _leave_out(self, cut: Cut, start: int, results: frozenset[int]) -> Cut:
        """Name what is left out from now on."""
        opening = self.source.opening
        ids = [message.ids[-1] for message in self._messages_from(cut.start) if message.ids]
        gone = sorted({entry_id for entry_id in ids if entry_id < start})
        dates = {entry.id: entry.date for entry in self.source.entries}
        spans = [*cut.left_out, *((entry_id, entry_id) for entry_id in gone)]
        if cut.start is not None and not cut.left_out:  # version 1 did not say what it left out
            spans = [(opening.id + 1 if opening else 1, start - 1)]
        since = cut.since or next((date for entry_id in gone if (date := dates.get(entry_id))), "")
        until = next((date for entry_id in reversed(gone) if (date := dates.get(entry_id))), cut.until)
        return Cut(start, results, _join_ranges(spans), since, until)


def _add_results(
    messages: Sequence[ContextMessage],
    results: frozenset[int],
    limit: int,
    entries: Sequence[TapeEntry],
    *,
    with_newest: bool = False,
) -> frozenset[int]:
    """Add the entries with long results that have to become pointers, too, until the messages have `limit` tokens.

    The results of the newest calls, which no answer of the model follows yet, stay, except `with_newest`.
    """
    end = len(messages)
    while not with_newest and end and messages[end - 1].message["role"] == "tool":
        end -= 1
    total = _total(_point(messages, results, entries))
    chosen = set(results)
    sources = {entry.id: entry for entry in entries}
    for message in messages[:end]:
        if total <= limit:
            break
        pointer = _pointer(message, sources)
        if pointer is not message and message.ids[0] not in results:
            chosen.add(message.ids[0])
            total += estimate_message_tokens(pointer) - estimate_message_tokens(message)
    return frozenset(chosen)


def _point(
    messages: Sequence[ContextMessage], results: frozenset[int], entries: Sequence[TapeEntry]
) -> tuple[ContextMessage, ...]:
    """Replace the long results of these entries by pointers."""
    if not results:
        return tuple(messages)
    sources = {entry.id: entry for entry in entries if entry.id in results}
    return tuple(
        [_pointer(message, sources) if message.ids and message.ids[0] in results else message for message in messages]
    )


def _pointer(message: ContextMessage, sources: Mapping[int, TapeEntry]) -> ContextMessage:
    """Write a result as a pointer with its head and tail; a short result, or another message, stays as it is."""
    content = message.message["content"]
    if message.message["role"] != "tool" or not message.ids or not isinstance(content, str):
        return message
    source = sources.get(message.ids[0])
    if source is None or len(content) <= LONG_RESULT_CHARS:
        return message
    pointer = move_pointer(content, source, POINTER_HEAD_CHARS) or (
        f'… [shortened: {len(content)} characters in all; tape_read(ids="{message.ids[0]}") opens it]'
    )
    text = f"{content[:POINTER_HEAD_CHARS]}\n{pointer}\n{content[-POINTER_TAIL_CHARS:]}"
    return ContextMessage({**message.message, "content": text}, message.ids)


def find_floor(entries: Sequence[TapeEntry], style: MessageStyle, budget: int) -> int | None:
    """Return the newest entry from which on the entries have no room in the budget; None if there is room for all.

    Each counts with the least that is ever shown of it, long results as pointers. So the older entries would be left out
    anyway, and need not be read. A message of a person is among the newer ones, where a cut can begin.
    """
    hidden, results = set[int](), dict[str, int]()
    total, can_begin = 0, False
    for entry in reversed(entries):
        correction = find_correction(entry)
        if correction and correction.get("hide"):
            hidden.add(correction["corrects"])
        is_shown = entry.id not in hidden and not entry.erased and is_in_context(entry)
        if entry.kind == Kind.TOOL_RESULT:
            _note_results(entry, results, is_shown=is_shown)
        elif entry.kind == Kind.TOOL_CALL:
            tokens = _least_exchange(entry, results)
            total += tokens if is_shown else 0
        elif entry.kind == Kind.MESSAGE and is_shown:
            for message in convert_message(entry, style.stamps):
                total += _least_message(message)
                can_begin = can_begin or message.message["role"] == "user"
        if total > budget and can_begin:
            return entry.id
    return None


def _least_message(message: ContextMessage) -> int:
    if not message.has_parts:
        return estimate_message_tokens(message)
    texts = [part["text"].encode() for part in message.message["content"] if part["type"] == "text"]
    return MESSAGE_TOKENS + sum(map(len, texts)) // BYTES_PER_TOKEN


def _note_results(entry: TapeEntry, results: dict[str, int], *, is_shown: bool) -> None:
    """Note the least that is shown of each result of an entry, by the id of its call, of which an older entry has the call."""
    for result in objects_of(entry.payload.get("results")):
        shown = text_field(result, "content")[: POINTER_HEAD_CHARS + POINTER_TAIL_CHARS] if is_shown else ""
        if call := text_field(result, "tool_call_id"):
            results[call] = min(len(shown) // BYTES_PER_TOKEN, results.get(call, len(shown)))


def _least_exchange(entry: TapeEntry, results: dict[str, int]) -> int:
    """Return the least that is shown of the calls of an entry and of their results, which are taken out of those."""
    calls = [*objects_of(entry.payload.get("calls"))]
    taken = [results.pop(text_field(call, "id"), 0) for call in calls]
    return sum(taken) + MESSAGE_TOKENS * (len(calls) + 1) if calls else 0


def _total(messages: Iterable[ContextMessage]) -> int:
    return sum([estimate_message_tokens(message) for message in messages])


def find_cut(messages: Sequence[ContextMessage], budget: int) -> int | None:
    """Return the entry id from which the rest fits into half the budget; None if everything fits.

    Whole exchanges are cut, oldest first: the rest begins with a user message. The newest exchange always stays.
    """
    if _total(messages) <= budget:
        return None
    start = _find_start(messages, budget // 2)
    return None if start is None else messages[start].ids[-1]


def _find_start(messages: Sequence[ContextMessage], limit: int) -> int | None:
    """Return the place of the first user message from which on the rest fits into the limit, or of the last one."""
    starts = [place for place, message in enumerate(messages) if message.message["role"] == "user" and message.ids]
    if not starts:
        return None
    sizes = [estimate_message_tokens(message) for message in messages]
    rests = [*accumulate(reversed(sizes))][::-1]  # tokens from each place on, in one pass: a window may be long
    return next((place for place in starts if rests[place] <= limit), starts[-1])


def _join_ranges(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join ranges over small gaps, and over further ones until there are few."""
    ordered = sorted(spans)
    gaps = sorted(
        ((after[0] - before[1], place) for place, (before, after) in enumerate(pairwise(ordered), 1)),
        reverse=True,
    )
    breaks = sorted(place for gap, place in gaps[: MAX_RANGES - 1] if gap > RANGE_GAP)
    pieces = [ordered[low:high] for low, high in zip([0, *breaks], [*breaks, len(ordered)], strict=True)]
    return tuple((piece[0][0], max(high for _, high in piece)) for piece in pieces if piece)


def _format_left_out(cut: Cut, style: MessageStyle) -> str:
    ranges = ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in cut.left_out[-MAX_RANGES:])
    days = [
        f"{moment.astimezone(style.stamps or UTC):%Y-%m-%d}"
        for moment in map(parse_moment, (cut.since, cut.until))
        if moment
    ]
    dates = f", {days[0]}" if days and days[0] == days[-1] else f", {days[0]} to {days[-1]}" if days else ""
    return f"[Left out here: {ranges}{dates}; tape_read opens them]"


def _prepend_line(line: str, messages: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
    """Put the line into the first user message, or before all if another message is the first."""
    if not messages or messages[0].message["role"] != "user":
        return (ContextMessage({"role": "user", "content": line}, ()), *messages)
    first, content = messages[0], messages[0].message["content"]
    joined = f"{line}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": line}, *content]
    return (ContextMessage({**first.message, "content": joined}, first.ids), *messages[1:])
