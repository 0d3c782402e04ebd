"""The tools that open entries of a chat's tape by their ids."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

from pydantic import Field, field_validator

from bubbot.errors import ToolRetry
from bubbot.features.strategies.quotation import clip_text, format_head, indent_quotation
from bubbot.features.strategies.reader import (
    EntriesView,
    NeighboursView,
    OpenedEntries,
    OpenedEntry,
    format_ids,
    format_spans,
    merge_spans,
    parse_spans,
    split_spans,
)
from bubbot.ports.tool import READS_PEOPLE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.runtime.context.quoting import INDENT
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.texts import Texts

READ_TOKENS = 2_000
"""Tokens that one call shows by default."""
MAX_READ_TOKENS = 5_000
"""Tokens that one call shows at most: in Chinese, Japanese and Korean still less than a result may have."""
READ_SHARE = 8
"""One call shows at most one eighth of a model's context."""
MIN_PIECE_TOKENS = 40
"""The least that is shown of an entry: each call goes on."""

FindContextSize = Callable[[Turn], Awaitable[int | None]]
"""Return the tokens of the context of a turn's model; None if unknown."""


class ReadEntriesArgs(ToolArgs):
    """The arguments of `tape.read`."""

    ids: tuple[str, ...] = Field(description="entry ids and ranges of them, such as 12 or 15-20")
    offset: int = Field(default=0, ge=0, description="the character of the first entry to go on from")
    limit: int = Field(default=READ_TOKENS, ge=100, le=MAX_READ_TOKENS, description="how many tokens, about")

    @field_validator("ids", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Take a text, a number, or a list of them."""
        items = value if isinstance(value, (list, tuple)) else [value]
        words = [
            word
            for item in items
            for word in (item.replace(",", " ").replace("，", " ").split() if isinstance(item, str) else [item])
        ]
        return [str(word) if type(word) is int else word for word in words]


class AroundArgs(ToolArgs):
    """The arguments of `tape.around`."""

    id: str = Field(description="the entry's id", coerce_numbers_to_str=True)
    number: int = Field(default=4, ge=1, le=50, description="how many entries before and after it")
    limit: int = Field(default=READ_TOKENS, ge=100, le=MAX_READ_TOKENS, description="how many tokens, about")


def reading_tools(find_size: FindContextSize) -> list[Tool]:
    """Return `tape.read` and `tape.around`."""

    @tool(
        "tape.read",
        commands=["read"],
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.HISTORY, "Read what was said, by its numbers", (",read 12", ",read 12,15-20")),
    )
    async def tape_read(turn: Turn, args: ReadEntriesArgs) -> str:
        """Open entries of this chat by their ids, word for word: what a summary, a search hit or evidence cites (#7)."""
        spans = _parse(args.ids, turn.result_texts)
        return await _read(turn, spans, args.offset, await _limit(turn, args.limit))

    @tool(
        "tape.around",
        commands=["around"],
        effect=READS_PEOPLE,
        is_rare=True,
        help=CommandHelp(
            HelpTopic.HISTORY, "Read what was said around an entry", (",around 12", ",around 12 number=8")
        ),
    )
    async def tape_around(turn: Turn, args: AroundArgs) -> str:
        """Open an entry of this chat with what was said and done just before and after it."""
        texts, head = turn.result_texts, await turn.tape.head()
        spans = _parse((args.id,), texts)
        entry = spans[0][0]
        if len(spans) > 1 or spans[0][1] != entry:
            raise ToolRetry(texts.say("read_one_id", ids=args.id))
        if not 1 <= entry <= head:
            raise ToolRetry(_missing(turn.result_texts, spans, head))
        ids = await turn.tape.read(NeighboursView(entry, args.number))
        return await _read(turn, merge_spans(ids, ()), 0, await _limit(turn, args.limit))

    async def _limit(turn: Turn, wanted: int) -> int:
        size = None if turn.runs_command else await find_size(turn)
        return wanted if size is None else max(min(wanted, size // READ_SHARE), 2 * MIN_PIECE_TOKENS)

    return [tape_read, tape_around]


def _parse(items: Sequence[str], texts: Texts) -> tuple[tuple[int, int], ...]:
    try:
        spans = parse_spans(items)
    except ValueError as error:
        raise ToolRetry(texts.say("read_no_ids", ids=str(error))) from error
    if not spans:  # entry 0, or no word at all
        raise ToolRetry(texts.say("read_no_ids", ids=" ".join(items)))
    return spans


def _missing(texts: Texts, spans: Sequence[tuple[int, int]], head: int) -> str:
    if head == 0:
        return texts.say("read_empty")
    return texts.say("read_missing", ids=format_spans(spans), last=head)


async def _read(turn: Turn, spans: Sequence[tuple[int, int]], offset: int, limit: int) -> str:
    """Quote the entries of these ranges, as many as the limit of tokens allows."""
    texts, head = turn.result_texts, await turn.tape.head()
    ids, rest = split_spans(spans, head)
    if not ids:
        raise ToolRetry(_missing(texts, spans, head))
    opened = await turn.tape.read(EntriesView(tuple(merge_spans(ids, ()))))
    page = _Page(turn, limit, [texts.say("read_quoted")])
    cut_at = next_offset = 0
    for entry in opened.entries:
        start = offset if entry.id == ids[0] else 0
        end = page.add(entry, start)
        if end != 0:
            cut_at, next_offset = entry.id, start if end is None else end
            rest = merge_spans([entry_id for entry_id in ids if entry_id >= cut_at], rest)
            break
    return "\n".join([*page.lines, *_remarks(turn, opened, cut_at, spans, head), *_read_on(turn, rest, next_offset)])


def _remarks(turn: Turn, opened: OpenedEntries, cut_at: int, spans: Sequence[tuple[int, int]], head: int) -> list[str]:
    """Name what was asked for and is not shown: bookkeeping, and ids that the tape does not have."""
    texts, lines = turn.result_texts, []
    skipped = [entry_id for entry_id in opened.bookkeeping if not cut_at or entry_id < cut_at]
    if skipped:
        lines.append(texts.say("read_bookkeeping", ids=format_ids(skipped)))
    beyond = [(max(low, head + 1), high) for low, high in spans if high > head]
    if beyond:
        lines.append(texts.say("read_missing", ids=format_spans(beyond), last=head))
    return lines


def _read_on(turn: Turn, rest: Sequence[tuple[int, int]], offset: int) -> list[str]:
    """Say how to go on, if something is left."""
    if not rest:
        return []
    ids = format_spans(rest)
    if turn.runs_command:
        call = turn.texts.format_commands(f",read {ids}") + (f" offset={offset}" if offset else "")
    else:
        call = f'tape_read(ids=["{ids}"]' + (f", offset={offset})" if offset else ")")
    return [turn.result_texts.say("read_on", call=call)]


@dataclass(slots=True)
class _Page:
    """The quotations so far, and the tokens that they may have."""

    turn: Turn
    limit: int
    lines: list[str] = field(default_factory=list)
    used: int = 0

    def add(self, entry: OpenedEntry, start: int) -> int | None:
        """Add an entry from this character on.

        Returns:
            None if there is no room for it, the character to go on from if it was cut, and 0 if all of it is there.
        """
        head = format_head(entry, self.turn.zone, self.turn.result_texts)
        room = self.limit - self.used - estimate_tokens(head)
        is_first = self.used == 0
        if not is_first and room < MIN_PIECE_TOKENS:
            return None
        text = entry.text[start:]
        body = indent_quotation(text)
        size = estimate_tokens(body) if body else 0
        if size > room and not is_first and size <= self.limit:
            return None  # the next call shows it whole
        end = 0
        if size > room:
            text = clip_text(text, max(room, MIN_PIECE_TOKENS))
            end = start + len(text)
            body = f"{indent_quotation(text)}…"
        if start:
            body = f"{INDENT}…{body.removeprefix(INDENT)}"
        self.lines += [head, body] if body else [head]
        self.used += estimate_tokens(head) + estimate_tokens(body)
        return end
