"""Answers in Telegram's format: pieces of text with entities, then the files.

The rules are those of the Bot API: offsets and lengths in UTF-16 code units, 4,096 of them in a message after its
entities are parsed, at most 100 entities. Entities are nested or do not overlap; `pre` and `code` have none around or
in them except a `blockquote`, which is never in another one; links and code do not contain each other. The server
strips white space from both ends of a message, in front only up to the first entity; so do we, to keep offsets right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from msgspec import Struct, field, structs

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.markdown.long_blocks import LongBlockLimits, extract_files
from channels.markdown.marked_text import MarkedText, TextMark, count_utf16_units, extract_part, is_visible
from channels.markdown.split import split_marked
from channels.markdown.table import PHONE_COLUMNS
from channels.telegram.dialect import parse_markdown

TELEGRAM_MESSAGE_LIMIT = 4_096
"""UTF-16 code units of a message."""
CAPTION_LIMIT = 1_024
"""UTF-16 code units of the text below a file."""
REPEAT_SENTENCE_ROOM = 64
"""UTF-16 code units that each message leaves free for the sentence which says that it was sent again."""
MAX_ENTITIES = 100
"""Marks that Telegram shows in one message."""
_TYPES = {"strike": "strikethrough", "link": "text_link", "quote": "blockquote"}


class TelegramLayout(Struct, frozen=True):
    """The layout of answers.

    Attributes:
        table_columns: the widest table shown in columns; a wider one is shown row by row.
        long_blocks: limits beyond which a block becomes a file.
    """

    table_columns: int = PHONE_COLUMNS
    long_blocks: LongBlockLimits = field(default_factory=LongBlockLimits)


def make_parts(outbound: Outbound, layout: TelegramLayout | None = None) -> list[MessagePart]:
    """Split an answer into parts in sending order: text, long blocks as files, then the answer's files.

    An answer without visible characters has no text part; without files, too, it has no part at all.
    """
    layout = layout or TelegramLayout()
    source, blocks = extract_files(outbound.text, layout.long_blocks, used_names=[file.name for file in outbound.files])
    pieces = split_marked(
        parse_markdown(source, table_columns=layout.table_columns),
        TELEGRAM_MESSAGE_LIMIT - REPEAT_SENTENCE_ROOM,
        count_utf16_units,
        max_marks=MAX_ENTITIES,
    )
    contents = [piece for piece in map(_trim, pieces) if is_visible(piece.text)] + [*blocks, *outbound.files]
    return [_make_part(outbound, content, is_first=not index) for index, content in enumerate(contents)]


def mark_repeat(part: MessagePart, sentence: str) -> MessagePart:
    """Put a sentence below a part, behind all its entities; return the part itself if there is no room."""
    text = f"{part.text}\n\n{sentence}" if part.text else sentence
    limit = TELEGRAM_MESSAGE_LIMIT if part.file is None else CAPTION_LIMIT
    return structs.replace(part, text=text) if count_utf16_units(text) <= limit else part


def strip_markup(part: MessagePart) -> MessagePart:
    """Remove the markup of a part, for when Telegram refuses it."""
    return structs.replace(part, markup={})


def make_entities(marked: MarkedText) -> list[dict[str, Any]]:
    """Convert marks to entities of the Bot API."""
    if not marked.marks:
        return []
    offsets = list(accumulate((2 if char > "\uffff" else 1 for char in marked.text), initial=0))
    return list(_iterate_entities(marked, offsets))


def _iterate_entities(marked: MarkedText, offsets: list[int]) -> Iterator[dict[str, Any]]:
    for mark in marked.marks:
        start, end = _trim_mark(marked.text, mark)
        if start == end:
            continue
        entity = {"type": _TYPES.get(mark.kind, mark.kind), "offset": offsets[start]}
        entity["length"] = offsets[end] - offsets[start]
        if mark.url:
            entity["url"] = mark.url
        if mark.language:
            entity["language"] = mark.language
        yield entity


def _trim_mark(text: str, mark: TextMark) -> tuple[int, int]:
    """Return start and end without white space at both ends, which no entity may have; code keeps it."""
    if mark.kind in ("pre", "code"):
        return mark.start, mark.end
    inner = text[mark.start : mark.end]
    return mark.end - len(inner.lstrip()), mark.start + len(inner.rstrip()) if inner.strip() else mark.end


def _trim(marked: MarkedText) -> MarkedText:
    text = marked.text
    first = marked.marks[0].start if marked.marks else len(text)
    start = min(len(text) - len(text.lstrip(" \n")), first)
    return extract_part(marked, start, len(text.rstrip()))


def _make_part(outbound: Outbound, content: MarkedText | OutboundFile, *, is_first: bool) -> MessagePart:
    """Make the part of a text or a file; the first one is the reply."""
    reply_to = outbound.reply_to if is_first else ""
    if isinstance(content, OutboundFile):
        return MessagePart(outbound.chat, "", outbound.thread, reply_to, file=content)
    items = make_entities(content)
    return MessagePart(
        outbound.chat, content.text, outbound.thread, reply_to, markup={"entities": items} if items else {}
    )
