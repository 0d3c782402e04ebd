"""Conversion of answers to Discord messages: pieces of its own Markdown, then the files.

A message has at most 2,000 characters; UTF-16 code units are the stricter reading of that. Discord strips white space
from both ends of a message, and refuses an empty one. Formatting across a cut is closed before it and reopened after it.
"""

from __future__ import annotations

import re

from msgspec import Struct, field, structs

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.discord.dialect import TABLE_COLUMNS, render
from channels.markdown.long_blocks import LongBlockLimits, extract_files
from channels.markdown.marked_text import count_utf16_units, is_visible
from channels.markdown.split import split_source

DISCORD_MESSAGE_LIMIT = 2_000
"""UTF-16 code units of a message."""
REPEAT_SENTENCE_ROOM = 64
"""UTF-16 code units that each message leaves free for the sentence which says that it was sent again."""
MARKS_MARGIN_UTF16 = 24
"""UTF-16 code units reserved for marks that are closed and reopened: more than all of them at once."""
_FENCE = re.compile(r"(?:> )*```")
_BLOCK = re.compile(r"(?:> )*\s*(?:$|- |\d{1,9}[.)] |#{1,3} )")
_LEAD = re.compile(r"(?:> )*\s*")
_SCAN = re.compile(
    r"\\."
    r"|(?P<code>`+)(?:.*?[^`])?(?P=code)(?!`)"
    r"|<https?://[^>\s]*>|\]\([^)\s]*\)|https?://\S*[^\s*_~|]"
    r"|(?P<torn>`+)|(?P<mark>\*\*|\*|~~|\|\||__?)"
)


class DiscordLayout(Struct, frozen=True):
    """The layout of answers. `table_columns`: a wider table is shown row by row; `long_blocks`: limits of long blocks."""

    table_columns: int = TABLE_COLUMNS
    long_blocks: LongBlockLimits = field(default_factory=lambda: LongBlockLimits(columns=TABLE_COLUMNS))


def split_answer(outbound: Outbound, layout: DiscordLayout | None = None) -> list[MessagePart]:
    """Split an answer into parts in sending order: text, long blocks as files, then its own files.

    An answer without visible text has no text part; without files it has no parts at all.
    """
    layout = layout or DiscordLayout()
    source, blocks = extract_files(outbound.text, layout.long_blocks, used_names=[file.name for file in outbound.files])
    limit = DISCORD_MESSAGE_LIMIT - REPEAT_SENTENCE_ROOM
    rendered = split_markdown(render(source, table_columns=layout.table_columns), limit)
    contents: list[str | OutboundFile] = [*filter(is_visible, rendered), *blocks, *outbound.files]
    return [_make_part(outbound, content, is_first=not number) for number, content in enumerate(contents)]


def mark_repeat(part: MessagePart, sentence: str) -> MessagePart:
    """Put a sentence in small letters below a part; return the part itself if there is no room."""
    text = f"{part.text.rstrip()}\n\n-# {sentence}".lstrip("\n")
    return structs.replace(part, text=text) if count_utf16_units(text) <= DISCORD_MESSAGE_LIMIT else part


def _make_part(outbound: Outbound, content: str | OutboundFile, *, is_first: bool) -> MessagePart:
    """Make the part of a text or a file; the first one is the reply."""
    text, file = (content, None) if isinstance(content, str) else ("", content)
    return MessagePart(outbound.chat, text, outbound.thread, outbound.reply_to if is_first else "", file=file)


def split_markdown(source: str, limit: int) -> list[str]:
    """Split rendered Markdown into pieces of at most `limit` UTF-16 code units, in order."""
    if count_utf16_units(source) <= limit:
        return [source] if source.strip() else []
    result: list[str] = []
    open_marks: list[str] = []
    escape = ""
    for part in split_source(source, limit - MARKS_MARGIN_UTF16, count_utf16_units):
        piece = escape + part
        if open_marks and not _FENCE.match(piece):
            lead = _LEAD.match(piece)
            at = lead.end() if lead else 0
            piece = piece[:at] + "".join(open_marks) + piece[at:]
        open_marks, escape = open_at_end(piece)
        result.append(piece.removesuffix(escape) + "".join(reversed(open_marks)))
    if escape:
        result[-1] += escape
    return result


def open_at_end(piece: str) -> tuple[list[str], str]:
    """Return the marks still open, outer ones first, and a final backslash that the cut separates from its sign."""
    marks: list[str] = []
    fenced, line = False, ""
    for line in piece.split("\n"):
        if _FENCE.match(line):
            fenced, marks = not fenced, []
        elif not fenced:
            if _BLOCK.match(line):
                marks = []
            _update_marks(line, marks)
    torn = not fenced and (len(line) - len(line.rstrip("\\"))) % 2
    return marks, "\\" if torn else ""


def _update_marks(line: str, marks: list[str]) -> None:
    for match in _SCAN.finditer(line):
        if match["torn"]:
            marks.append(match["torn"])
            return  # the rest of the line is code
        mark = match["mark"]
        if not mark:
            continue
        if mark in marks:
            del marks[marks.index(mark) :]
        else:
            marks.append(mark)
