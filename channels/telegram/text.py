"""Answers as Telegram takes them: text with entities, in pieces, then the files.

The rules are those of the Bot API: offsets and lengths in UTF-16 code units, 4,096 of them in a message after its
entities are read, at most 100 entities. Entities lie in each other or apart; `pre` and `code` have none around or in
them but a `blockquote`, which is never in another one; links and code do not contain each other. The server takes
white space off both ends of a message, in front only up to the first entity; so do we, that offsets stay true.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.markdown.long_blocks import LongBlockLimits, to_files
from channels.markdown.marked_text import MarkedText, TextMark, part_of, utf16
from channels.markdown.render import PHONE, parse
from channels.markdown.split import split

TELEGRAM_MESSAGE_LIMIT = 4_096
"""UTF-16 code units of a message."""
CAPTION_LIMIT = 1_024
"""UTF-16 code units of the text below a file. Our files have none: their names say enough."""
ENTITIES = 100
"""Marks that Telegram shows in one message."""
_TYPES = {"strike": "strikethrough", "link": "text_link", "quote": "blockquote"}


@dataclass(frozen=True, slots=True)
class TelegramLayout:
    """How answers are laid out. `table_columns`: a table that needs more is shown row by row."""

    table_columns: int = PHONE
    long: LongBlockLimits = field(default_factory=LongBlockLimits)


def parts(outbound: Outbound, layout: TelegramLayout | None = None) -> list[MessagePart]:
    """The parts of an answer in the order they are sent: text, long blocks as files, then its own files.

    An answer in which nothing can be seen has no text part; without files it has none at all.
    """
    layout = layout or TelegramLayout()
    source, blocks = to_files(outbound.text, layout.long, taken=[file.name for file in outbound.files])
    pieces = split(parse(source, table_columns=layout.table_columns), TELEGRAM_MESSAGE_LIMIT, utf16, most=ENTITIES)
    texts = [_part(outbound, piece) for piece in map(_trimmed, pieces) if _visible(piece.text)]
    made = [*texts, *(_file_part(outbound, file) for file in (*blocks, *outbound.files))]
    return [replace(part, reply_to=outbound.reply_to) if not number else part for number, part in enumerate(made)]


def plain(part: MessagePart) -> MessagePart:
    """The same part without its looks, for when Telegram refuses them."""
    return replace(part, markup={})


def entities(marked: MarkedText) -> list[dict[str, Any]]:
    """The marks as the Bot API writes them."""
    offsets = list(accumulate((2 if char > "\uffff" else 1 for char in marked.text), initial=0))
    return list(_entities(marked, offsets))


def _entities(marked: MarkedText, offsets: list[int]) -> Iterator[dict[str, Any]]:
    for mark in marked.marks:
        start, end = _bounds(marked.text, mark)
        if start == end:
            continue
        entity = {"type": _TYPES.get(mark.kind, mark.kind), "offset": offsets[start]}
        entity["length"] = offsets[end] - offsets[start]
        if mark.url:
            entity["url"] = mark.url
        if mark.language:
            entity["language"] = mark.language
        yield entity


def _bounds(text: str, mark: TextMark) -> tuple[int, int]:
    """Without the white space at both ends, which no entity may have; code keeps its own."""
    if mark.kind in ("pre", "code"):
        return mark.start, mark.end
    inner = text[mark.start : mark.end]
    return mark.end - len(inner.lstrip()), mark.start + len(inner.rstrip()) if inner.strip() else mark.end


def _trimmed(marked: MarkedText) -> MarkedText:
    text = marked.text
    first = marked.marks[0].start if marked.marks else len(text)
    start = min(len(text) - len(text.lstrip(" \n")), first)
    return part_of(marked, start, len(text.rstrip()))


def _visible(text: str) -> bool:
    return any(unicodedata.category(char) not in ("Cc", "Cf", "Zs", "Zl", "Zp") for char in text)


def _part(outbound: Outbound, piece: MarkedText) -> MessagePart:
    made = entities(piece)
    return MessagePart(outbound.chat, piece.text, outbound.thread, markup={"entities": made} if made else {})


def _file_part(outbound: Outbound, file: OutboundFile) -> MessagePart:
    return MessagePart(outbound.chat, "", outbound.thread, file=file)
