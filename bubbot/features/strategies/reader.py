"""Opening entries of a chat's tape by their ids, as dated quotations: what summaries, evidence and search hits cite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from msgspec import Struct

from bubbot.command import Caller
from bubbot.errors import CommandRefused
from bubbot.formatting import clean_label
from bubbot.ports.agents import THE_BOT, Agent, writer_of
from bubbot.ports.turn import Turn
from bubbot.runtime.context.attachments import FILE, describe_file, describe_image, is_attached
from bubbot.runtime.context.copies import FindHeads, check_copies, find_no_heads, withhold
from bubbot.runtime.context.quoting import INDENT, escape_people_text
from bubbot.runtime.context.selectors import format_agent, format_sender, text_of
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN, estimate_tokens
from bubbot.runtime.turns import read_calls, read_results
from bubbot.tape.corrections import Corrections, hides
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.handle import CORRECTION, spans_of
from bubbot.tape.query import IdRanges, Span, TapeQuery, format_date, union
from bubbot.tape.view import QueryAnswers
from bubbot.texts import Texts

MAX_ENTRIES = 200
"""Entries that one call opens at most."""
MIN_PIECE_TOKENS = 40
"""The least that is shown of an entry: each call goes on."""
MAX_NAME_CHARS = 100
_CONVERSATION = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT)
_RANGE = r"#?(\d{1,12})(?:\s*[-–—~]\s*#?(\d{1,12}))?"
_NOT_AGAIN = "not shown again"


class OpenedEntry(Struct, frozen=True):
    """An entry of the conversation, as a quotation needs it.

    Attributes:
        id: its id.
        kind: its kind; `correction` for a correction.
        date: ISO 8601; empty if unknown.
        author: the shown name and the numeric id of a person, the name of an agent or of an anchor; empty for the bot's own.
        text: its words; not escaped.
        superseded_by: the id of its newest correction; 0 for none.
        is_person: a person wrote it.
        gone: `erased` or `hidden`; such an entry has no text.
    """

    id: int
    kind: str
    date: str
    author: str = ""
    text: str = ""
    superseded_by: int = 0
    is_person: bool = False
    gone: str = ""

    def format_head(self, zone: tzinfo, texts: Texts) -> str:
        """Write the line before its quotation: id, date, author, kind; or that its words are gone."""
        date = format_date(self.date, zone, undated=texts.say("undated"))
        if self.gone:
            name = "read_erased" if self.gone == "erased" else "read_hidden"
            return texts.say(name, entry=self.id, date=date, kind=self.kind)
        marks = texts.say("hit_superseded", entry=self.superseded_by) if self.superseded_by else ""
        author = self.author or texts.say(self._unnamed_author)
        return texts.say("read_entry", entry=self.id, date=date, author=author, kind=self.kind, marks=marks)

    @property
    def _unnamed_author(self) -> str:
        if self.is_person:
            return "read_by_person"
        return "read_by_tool" if self.kind == Kind.TOOL_RESULT else "read_by_bot"


def indent_quotation(text: str) -> str:
    """Write a text so that none of its lines looks like the line before a quotation, or like a mark of the bot."""
    return f"{INDENT}{escape_people_text(text, INDENT)}" if text.strip() else ""


def clip_text(text: str, tokens: int) -> str:
    """Return the beginning of a text that has about so many tokens; never nothing of a text."""
    return text.encode(errors="replace")[: tokens * BYTES_PER_TOKEN].decode(errors="ignore") or text[:1]


class OpenedEntries(Struct, frozen=True):
    """Entries in the order of their ids, and the ids of those that are no part of the conversation."""

    entries: tuple[OpenedEntry, ...]
    bookkeeping: tuple[int, ...]


class EntriesView(Struct, frozen=True):
    """The entries of these id ranges, without what the bot keeps for itself.

    Messages, calls, results, anchors and corrections are opened; the rest is bookkeeping, whose ids are named. Memory is
    read with its own tools: older versions of it may hold what people wanted forgotten. What the agent that reads may not
    look up counts as bookkeeping.
    """

    spans: tuple[Span, ...]
    agent: Agent = THE_BOT
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the entries, and all corrections."""
        return (TapeQuery(tape, IdRanges(self.spans)), TapeQuery(tape, kinds=(Kind.EVENT,), names=(CORRECTION,)))

    def fold(self, answers: QueryAnswers) -> OpenedEntries:
        """Open the entries."""
        entries, events = answers
        corrections = Corrections.of(events)
        opened = {
            entry.id: _open(entry, corrections) if self.agent.may_read(entry) else None
            for entry in sorted(entries, key=lambda entry: entry.id)
        }
        return OpenedEntries(
            tuple(item for item in opened.values() if item is not None),
            tuple(entry_id for entry_id, item in opened.items() if item is None),
        )


class NeighboursView(Struct, frozen=True):
    """The ids of an entry and of the nearest `number` entries of the conversation on each side of it."""

    entry: int
    number: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the nearest messages, calls and results, and the nearest anchors, before and after."""
        before, after = IdRanges(((1, self.entry - 1),)), IdRanges(((self.entry + 1, None),))
        kinds = (*_CONVERSATION, Kind.ANCHOR)
        limit = 4 * self.number + 10  # among the anchors are markers of the memory, which do not count
        return (
            TapeQuery(tape, before, kinds=kinds, newest=True, limit=limit if self.entry > 1 else 0),
            TapeQuery(tape, after, kinds=kinds, limit=limit),
        )

    def fold(self, answers: QueryAnswers) -> tuple[int, ...]:
        """Return the ids, ascending."""
        sides = [[entry.id for entry in side if is_readable(entry)][: self.number] for side in answers]
        return tuple(sorted({self.entry, *sides[0], *sides[1]}))


def is_readable(entry: TapeEntry) -> bool:
    """Return true for an entry of the conversation."""
    if entry.kind == Kind.ANCHOR:
        return not (entry.name or "").startswith("memory/")
    return entry.kind in _CONVERSATION or (entry.kind == Kind.EVENT and entry.name == CORRECTION and not hides(entry))


def parse_spans(items: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Parse ids and ranges of ids, such as `12`, `#12` or `15-20`. Raise `CommandRefused` if one is neither, or there is none."""
    spans = []
    for item in items:
        match = re.fullmatch(_RANGE, item.strip())
        if match is None:
            raise CommandRefused("read_no_ids", ids=item.strip())
        low, high = int(match[1]), int(match[2] or match[1])
        spans.append((min(low, high), max(low, high)))
    if not (joined := union(spans)):  # entry 0, or no word at all
        raise CommandRefused("read_no_ids", ids=" ".join(items))
    return tuple((low, low if high is None else high) for low, high in joined)


def require_spans(spans: Sequence[tuple[int, int]], head: int) -> None:
    """Raise `CommandRefused` if a tape whose newest entry is `head` has nothing of these ranges."""
    if head == 0:
        raise CommandRefused("read_empty")
    if not any(1 <= low <= head for low, _ in spans):
        raise CommandRefused("read_missing", ids=format_spans(spans), last=head)


def split_spans(spans: Sequence[tuple[int, int]], head: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the first ids that the tape has, and the ranges of the others that it has."""
    ids: list[int] = []
    rest: list[tuple[int, int]] = []
    for low, last in spans:
        high = min(last, head)
        end = min(high, low + MAX_ENTRIES - len(ids) - 1)
        ids += range(low, end + 1)
        if end < high:
            rest.append((max(low, end + 1), high))
    return ids, rest


def format_spans(spans: Sequence[tuple[int, int]]) -> str:
    """Write ranges of ids as the tools take them: `12,15-20`."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def format_ids(ids: Sequence[int]) -> str:
    """Write ids as citations: `#12, #15-#20`."""
    return ", ".join(f"#{low}" if low == high else f"#{low}-#{high}" for low, high in spans_of(ids))


def merge_spans(ids: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of these ids and ranges together."""
    return [(low, low if high is None else high) for low, high in union([*spans_of(ids), *spans])]


def _open(entry: TapeEntry, corrections: Corrections) -> OpenedEntry | None:
    """Open an entry; None for one that is no part of the conversation."""
    if entry.erased:
        return OpenedEntry(entry.id, entry.kind, entry.date, gone="erased")
    if not is_readable(entry):
        return None
    kind = CORRECTION if entry.kind == Kind.EVENT else entry.kind
    if entry.id in corrections.hidden:
        return OpenedEntry(entry.id, kind, entry.date, gone="hidden")
    sender = entry.meta.get("sender")
    is_person = entry.payload.get("role") == "user" or kind == CORRECTION
    author = format_sender(sender) if isinstance(sender, Mapping) and is_person else ""
    if writer := "" if is_person else writer_of(entry):
        author = format_agent(writer)
    return OpenedEntry(
        entry.id,
        kind,
        entry.date,
        author=author,
        text=describe_content(entry),
        superseded_by=corrections.superseded.get(entry.id, 0),
        is_person=is_person and entry.meta.get("origin", "human") == "human",
    )


def describe_content(entry: TapeEntry) -> str:
    """Write what an entry of the conversation says, in words; nothing is escaped."""
    payload = entry.payload
    if entry.kind == Kind.ANCHOR:
        return f"{clean_label(entry.name or '', MAX_NAME_CHARS)}: {encode(payload.get('state') or {})}"
    if entry.kind == Kind.EVENT:
        return f"#{entry.data['corrects']}: {entry.data.get('content', '')}" if entry.data else ""
    if entry.kind == Kind.TOOL_CALL:
        calls = [f"{call.name}({call.arguments})" for call in read_calls(entry) if call.name]
        return "\n".join([text for text in (_text(payload.get("content")), *calls) if text])
    if entry.kind == Kind.TOOL_RESULT:
        return "\n".join(_text(result.get("content", result)) for result in read_results(entry))
    return _text(payload.get("content"))


def _text(content: object) -> str:
    """Write a content in words: a text, the parts of a message, or any JSON value."""
    if isinstance(content, str) or (isinstance(content, tuple) and all(isinstance(part, Mapping) for part in content)):
        return text_of(content, _describe_part)
    return "" if content is None else encode(content if isinstance(content, Mapping) else {"content": content})


def _describe_part(part: Mapping[str, Any]) -> str:
    if is_attached(part):
        return describe_file(part) if part["type"] == FILE else describe_image(part, _NOT_AGAIN)
    return encode(part)


class QuotedEntries(Struct, frozen=True):
    """Entries as quotations, with lines about what is not shown."""

    lines: tuple[str, ...]

    def describe(self, _caller: Caller) -> str:
        """Return all of it."""
        return "\n".join(self.lines)


async def quote_entries(
    turn: Turn, spans: Sequence[tuple[int, int]], limit: int, offset: int = 0, *, find_heads: FindHeads = find_no_heads
) -> QuotedEntries:
    """Quote the entries of these ascending ranges, as many as the limit of tokens allows.

    The first one begins with its character `offset`. A model is not shown what an entry copied of a chat that may not be read
    here any more; a person who asks has seen it. Raise `CommandRefused` if the tape has none of them.
    """
    texts, head = turn.result_texts, await turn.tape.head()
    require_spans(spans, head)
    ids, rest = split_spans(spans, head)
    reader = THE_BOT if turn.runs_command else turn.agent
    view = EntriesView(tuple(merge_spans(ids, ())), reader)
    answers: Sequence[Sequence[TapeEntry]] = await turn.tape.fetch(view.queries(turn.tape.name))
    if not turn.runs_command and (withheld := await check_copies(turn, answers, find_heads)):
        answers = [withhold(part, withheld) for part in answers]
    opened = view.fold(answers)
    page = _Page(turn, limit, texts.say("read_quoted"))
    cut_at = next_offset = 0
    for entry in opened.entries:
        start = offset if entry.id == ids[0] else 0
        end = page.add(entry, start)
        if end != 0:
            cut_at, next_offset = entry.id, start if end is None else end
            rest = merge_spans([entry_id for entry_id in ids if entry_id >= cut_at], rest)
            break
    skipped = [entry_id for entry_id in opened.bookkeeping if not cut_at or entry_id < cut_at]
    beyond = [(max(low, head + 1), high) for low, high in spans if high > head]
    remarks = [texts.say("read_bookkeeping", ids=format_ids(skipped))] if skipped else []
    remarks += [texts.say("read_missing", ids=format_spans(beyond), last=head)] if beyond else []
    remarks += [texts.say("read_on", call=_format_next_call(turn, rest, next_offset))] if rest else []
    return QuotedEntries((*page.lines, *remarks))


def _format_next_call(turn: Turn, rest: Sequence[tuple[int, int]], offset: int) -> str:
    ids = format_spans(rest)
    if turn.runs_command:
        return turn.texts.format_commands(f",read {ids}") + (f" offset={offset}" if offset else "")
    return f'tape_read(ids=["{ids}"]' + (f", offset={offset})" if offset else ")")


class _Page:
    """The quotations so far, after a heading, and the tokens that they may have."""

    def __init__(self, turn: Turn, limit: int, heading: str) -> None:
        self.lines = [heading]
        self._turn, self._limit, self._used = turn, limit, 0

    def add(self, entry: OpenedEntry, start: int) -> int | None:
        """Add an entry from this character on.

        Returns:
            None if there is no room for it, the character to go on from if it was cut, and 0 if all of it is there.
        """
        head = entry.format_head(self._turn.zone, self._turn.result_texts)
        room = self._limit - self._used - estimate_tokens(head)
        is_first = self._used == 0
        if not is_first and room < MIN_PIECE_TOKENS:
            return None
        text = entry.text[start:]
        body = indent_quotation(text)
        size = estimate_tokens(body) if body else 0
        if size > room and not is_first and size <= self._limit:
            return None  # the next call shows it whole
        end = 0
        if size > room:
            text = clip_text(text, max(room, MIN_PIECE_TOKENS))
            end = start + len(text)
            body = f"{indent_quotation(text)}…"
        if start:
            body = f"{INDENT}…{body.removeprefix(INDENT)}"
        self.lines += [head, body] if body else [head]
        self._used += estimate_tokens(head) + estimate_tokens(body)
        return end
