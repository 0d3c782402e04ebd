"""Compaction: reading less of a window, without deleting anything; the strategies `compact` and `summary`.

If a window no longer fits, long results of tools become pointers first, oldest first; then whole exchanges go, oldest
first. Both go on until half of the budget is free, so that a cut holds for a while and consecutive requests keep
extending each other. What is cut is a fact (`context/cut`), and what is left out is named to the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from itertools import accumulate, pairwise
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.strategies.facts import CUT, ContextCut
from bubbot.runtime.calls import move_pointer
from bubbot.runtime.context.quoting import quote_text
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
from bubbot.runtime.context.strategy import ContextInput, ContextStrategy, ModelContext
from bubbot.runtime.context.tokens import (
    BYTES_PER_TOKEN,
    MESSAGE_TOKENS,
    estimate_context_tokens,
    estimate_message_tokens,
    estimate_tokens,
)
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, event, objects_of, text_field
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
HINT_CHARS = 80
"""Characters of one message that a hint of the first version cites."""
HINT_MESSAGES = 20
"""The number of newest messages that such a hint cites."""


Select: TypeAlias = Callable[[Sequence[TapeEntry]], tuple[ContextMessage, ...]]
"""Makes messages of entries."""


def fold_compact(source: ContextInput) -> ModelContext:
    """Show a window so that it fits into the budget: some results as pointers, and without its oldest exchanges."""
    return compact_messages(source, lambda entries: select_messages(entries, source.style))


def fold_compact_whole(source: ContextInput) -> ModelContext:
    """Do the same by all entries of the window, as version 2 did."""
    return compact_messages(source, lambda entries: select_messages(entries, source.style), has_floor=False)


def compact_messages(source: ContextInput, select: Select, *, has_floor: bool = True) -> ModelContext:
    """Compact the messages that `select` makes of entries: of all of the source, or of those from some entry on.

    What it makes of the latter must not depend on the entries before them. With `has_floor`, what is built does not
    depend on entries before `find_floor`.
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
    return ModelContext(compaction.show(extended), (extended.to_entry(),))


def read_cut(opening: TapeEntry | None, entries: Sequence[TapeEntry]) -> ContextCut:
    """Read what the newest usable fact says is cut of this window."""
    first = 0 if opening is None else opening.id
    for entry in reversed(entries):
        if entry.name == CUT and entry.id > first:
            cut = ContextCut.try_of(entry)
            if cut and (cut.start is None or 0 < cut.start < entry.id):
                return cut
    return ContextCut(results=())


class _Compaction(Struct, frozen=True):
    source: ContextInput
    select: Select

    def show(self, cut: ContextCut) -> tuple[ContextMessage, ...]:
        """Build the messages that a cut leaves; they depend on nothing before its start."""
        messages = _point(self._messages_from(cut.start), cut.results, self.source.entries)
        if cut.left_out and cut.start is not None and self.source.style.tools:  # else it could not open them
            messages = _prepend_line(_format_left_out(cut, self.source.style), messages)
        return prepend_opening(self.source.opening, messages, self.source.style)

    def skip(self, cut: ContextCut) -> ContextCut:
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

    def extend(self, cut: ContextCut, budget: int) -> ContextCut:
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
        left = {entry_id for message in messages for entry_id in message.ids}
        results = tuple([entry_id for entry_id in results if entry_id in left])
        return replace(cut, results=results) if not place or start is None else self._leave_out(cut, start, results)

    def _messages_from(self, start: int | None) -> tuple[ContextMessage, ...]:
        entries = self.source.entries
        if start is not None and entries and entries[0].id < start:
            entries = [entry for entry in entries if entry.id >= start]
        return self.select(entries)

    def _leave_out(self, cut: ContextCut, start: int, results: tuple[int, ...]) -> ContextCut:
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
        return ContextCut(start=start, results=results, left_out=_join_ranges(spans), since=since, until=until)


def _add_results(
    messages: Sequence[ContextMessage],
    results: tuple[int, ...],
    limit: int,
    entries: Sequence[TapeEntry],
    *,
    with_newest: bool = False,
) -> tuple[int, ...]:
    """Add the entries with long results that have to become pointers, too, until the messages have `limit` tokens.

    The results of the newest calls, which no answer of the model follows yet, stay, except `with_newest`.
    """
    end = len(messages)
    while not with_newest and end and messages[end - 1].message["role"] == "tool":
        end -= 1
    total = _total(_point(messages, results, entries))
    before, chosen = frozenset(results), set(results)
    sources = {entry.id: entry for entry in entries}
    for message in messages[:end]:
        if total <= limit:
            break
        pointer = _pointer(message, sources)
        if pointer is not message and message.ids[0] not in before:
            chosen.add(message.ids[0])
            total += estimate_message_tokens(pointer) - estimate_message_tokens(message)
    return tuple(sorted(chosen))


def _point(
    messages: Sequence[ContextMessage], results: tuple[int, ...], entries: Sequence[TapeEntry]
) -> tuple[ContextMessage, ...]:
    """Replace the long results of these entries by pointers."""
    if not results:
        return tuple(messages)
    pointed = frozenset(results)
    sources = {entry.id: entry for entry in entries if entry.id in pointed}
    return tuple([_pointer(message, sources) for message in messages])


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


def _format_left_out(cut: ContextCut, style: MessageStyle) -> str:
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


# The first version, with which requests on older tapes are built again


def fold_compact_first(source: ContextInput) -> ModelContext:
    """Cut whole exchanges, oldest first, until the rest fits into the budget."""
    return _compact_first(source, has_hint=False)


def fold_with_hint(source: ContextInput) -> ModelContext:
    """Cut as `fold_compact_first` does, and begin with a hint that names what was cut."""
    return _compact_first(source, has_hint=True)


def _compact_first(source: ContextInput, *, has_hint: bool) -> ModelContext:
    body = select_messages(source.entries, source.style)
    if source.budget is None:
        return ModelContext(prepend_opening(source.opening, body, source.style))
    rest = _from_entry(body, _recorded_cut(source.entries))
    new_cut = find_cut(rest, source.budget)
    rest = _from_entry(rest, new_cut)
    hint = _build_hint(body[: len(body) - len(rest)]) if has_hint else ()
    facts = () if new_cut is None else (event("context/cut", {"from": new_cut}),)
    return ModelContext(prepend_opening(source.opening, (*hint, *rest), source.style), facts)


def _from_entry(body: tuple[ContextMessage, ...], cut: int | None) -> tuple[ContextMessage, ...]:
    """Return the messages from the entry `cut` on. A result stays with its call, however late it came."""
    if cut is None:
        return body
    positions = (
        (place, message.ids[-1])
        for place, message in enumerate(body)
        if message.ids and message.message["role"] != "tool"
    )
    return body[next((place for place, entry_id in positions if entry_id >= cut), len(body)) :]


def _recorded_cut(entries: Sequence[TapeEntry]) -> int | None:
    cuts = [entry.data.get("from") for entry in entries if entry.name == CUT]
    return max((cut for cut in cuts if type(cut) is int), default=None)


def _build_hint(cut_messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Build a user message that cites the cut messages of people, each with its entry id.

    It only points: the model reads the entries if it needs more. Equal cuts give equal hints.
    """
    messages = [message for message in cut_messages if message.message["role"] == "user" and message.ids]
    if not messages:
        return ()
    lines = [
        f"#{message.ids[-1]} {quote_text(_shorten(message.message['content']))}"
        for message in messages[-HINT_MESSAGES:]
    ]
    before = f" and {len(messages) - HINT_MESSAGES} before them" if len(messages) > HINT_MESSAGES else ""
    text = "\n".join([f"[Earlier in this window, not shown in full{before}; tape_search finds them:", *lines]) + "]"
    return (
        ContextMessage(
            {"role": "user", "content": text}, tuple(message.ids[-1] for message in messages[-HINT_MESSAGES:])
        ),
    )


def _shorten(content: object) -> str:
    text = " ".join(content.split()) if isinstance(content, str) else "(attachments)"
    return text if len(text) <= HINT_CHARS else text[: HINT_CHARS - 1] + "…"


COMPACT = ContextStrategy(
    "compact",
    fold_compact,
    version=3,
    is_compacting=True,
    events=ContextCut.EVENTS,
    start_event=CUT,
    find_floor=find_floor,
    earlier={1: fold_compact_first, 2: fold_compact_whole},
    help="the window, and when it gets too long without its oldest part",
)
SUMMARY = dataclasses.replace(
    COMPACT,
    name="summary",
    earlier={1: fold_with_hint, 2: fold_compact_whole},
    help="the window, and before it gets too long a new one that begins with a summary; between them as compact",
)
"""Compaction between summaries, which `make_summary` adds."""
