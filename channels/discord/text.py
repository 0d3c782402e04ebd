"""Conversion of answers to Discord messages: pieces of its own Markdown, then the files.

A message has at most 2,000 characters; UTF-16 code units are the stricter reading of that. Discord strips white space
from both ends of a message, and refuses an empty one.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.discord.dialect import TABLE_COLUMNS, render
from channels.discord.pieces import split_markdown
from channels.markdown.long_blocks import LongBlockLimits, extract_files

DISCORD_MESSAGE_LIMIT = 2_000
"""UTF-16 code units of a message."""


@dataclass(frozen=True, slots=True)
class DiscordLayout:
    """The layout of answers. `table_columns`: a wider table is shown row by row; `long_blocks`: limits of long blocks."""

    table_columns: int = TABLE_COLUMNS
    long_blocks: LongBlockLimits = field(default_factory=lambda: LongBlockLimits(columns=TABLE_COLUMNS))


def split_answer(outbound: Outbound, layout: DiscordLayout | None = None) -> list[MessagePart]:
    """Split an answer into parts in sending order: text, long blocks as files, then its own files.

    An answer without visible text has no text part; without files it has no parts at all.
    """
    layout = layout or DiscordLayout()
    source, blocks = extract_files(outbound.text, layout.long_blocks, used_names=[file.name for file in outbound.files])
    rendered = split_markdown(render(source, table_columns=layout.table_columns), DISCORD_MESSAGE_LIMIT)
    texts = [MessagePart(outbound.chat, piece, outbound.thread) for piece in rendered if is_visible(piece)]
    result = [*texts, *(_file_part(outbound, file) for file in (*blocks, *outbound.files))]
    return [replace(part, reply_to=outbound.reply_to) if not number else part for number, part in enumerate(result)]


def is_visible(text: str) -> bool:
    """Return true if the text contains a visible character."""
    return any(unicodedata.category(char) not in ("Cc", "Cf", "Zs", "Zl", "Zp") for char in text)


def _file_part(outbound: Outbound, file: OutboundFile) -> MessagePart:
    return MessagePart(outbound.chat, "", outbound.thread, file=file)
