"""Rich messages, which Telegram keeps beside `text`: their blocks as one text with entities, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from channels.platform.json_values import (
    Raw,
    find_object,
    require_number,
    require_object,
    require_objects,
    require_text,
)

_MARKS = frozenset({"strikethrough", "mention", "text_mention", "bot_command", "date_time"})
"""Types of rich text that are entities of the same name in a plain one; the others only look different."""
_WORDS = {"custom_emoji": "alternative_text", "mathematical_expression": "expression"}
"""Types of rich text whose words are not in `text`, with their field."""
_WORD_FIELDS = ("text", "summary", "expression")
"""Fields of a block with its words."""
_BULLET = "•"
_FILES = frozenset({"animation", "audio", "photo", "video", "voice_note"})
"""Blocks with a file, in a field of the same name."""
_SILENT = frozenset({"anchor", "thinking"})
"""Blocks without anything to read: a place that links lead to, and the sign of a draft that is being written."""


@dataclass(slots=True)
class RichText:
    """A text that is being written, with its entities; offsets count UTF-16 units."""

    pieces: list[str] = field(default_factory=list)
    entities: list[dict[str, Any]] = field(default_factory=list)
    length: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text.encode("utf-16-le", "surrogatepass")) // 2

    def write(self, value: object) -> None:
        """Append a rich text: a string, a list of rich texts, or an object with a type."""
        if isinstance(value, str):
            return self.add(value)
        if isinstance(value, list):
            for part in value:
                self.write(part)
            return None
        part = require_object(value)
        start, kind = self.length, require_text(part["type"])
        if kind in _WORDS:
            return self.add(require_text(part[_WORDS[kind]]))
        self.write(part.get("text", ""))
        if kind == "url":
            self._mark("text_link", start, part)
        elif kind in _MARKS:
            self._mark(kind, start, part)
        return None

    def _mark(self, kind: str, start: int, part: Raw) -> None:
        rest = {name: value for name, value in part.items() if name not in ("type", "text")}
        self.entities.append({**rest, "type": kind, "offset": start, "length": self.length - start})


def read_rich_message(message: Raw) -> RichText:
    """Return the text of a rich message as a person reads it, from top to bottom."""
    text = RichText()
    _write_blocks(text, message["blocks"], "")
    return text


def _write_blocks(text: RichText, blocks: object, indent: str) -> None:
    """Write blocks, each on lines of its own; lines after the first one begin with the indent."""
    begins = True
    for block in require_objects(blocks):
        if block["type"] in _SILENT:
            continue
        if not begins:
            text.add(f"\n{indent}")
        begins = False
        _write_block(text, block, indent)


def _write_block(text: RichText, block: Raw, indent: str) -> None:
    match block["type"]:
        case "heading":
            text.add("#" * min(max(require_number(block["size"]), 1), 6) + " ")
            text.write(block["text"])
        case "pre":
            text.add(f"```{require_text(block.get('language'))}\n")
            text.write(block["text"])
            text.add("\n```")
        case "divider":
            text.add("---")
        case "list":
            _write_items(text, block, indent)
        case "table":
            _write_table(text, block, indent)
        case "blockquote" | "pullquote":
            text.add("> ")
            _write_blocks(text, block.get("blocks", [{**block, "type": "paragraph"}]), f"{indent}> ")
            _write_credit(text, block.get("credit"), f"{indent}> ")
        case kind:  # a paragraph, a file, a map, a group of blocks, or a kind that is newer than this program
            words = [block[name] for name in _WORD_FIELDS if name in block]
            text.write(words or f"[{require_text(kind).replace('_', ' ')}{_place(block)}]")
            if "blocks" in block:
                text.add(f"\n{indent}")
                _write_blocks(text, block["blocks"], indent)
            _write_caption(text, block, indent)


def _place(block: Raw) -> str:
    location = find_object(block, "location")
    return f" {location['latitude']}, {location['longitude']}" if location else ""


def _write_items(text: RichText, block: Raw, indent: str) -> None:
    for index, item in enumerate(require_objects(block["items"])):
        text.add(f"\n{indent}" if index else "")
        box = f"[{'x' if item.get('is_checked') else ' '}] " if item.get("has_checkbox") else ""
        text.add(f"{require_text(item.get('label')) or _BULLET} {box}")
        _write_blocks(text, item["blocks"], f"{indent}  ")


def _write_table(text: RichText, block: Raw, indent: str) -> None:
    if "caption" in block:
        text.write(block["caption"])
        text.add(f"\n{indent}")
    for index, row in enumerate(block["cells"]):
        text.add(f"\n{indent}" if index else "")
        for place, cell in enumerate(require_objects(row)):
            text.add(" | " if place else "")
            text.write(cell.get("text", ""))


def _write_caption(text: RichText, block: Raw, indent: str) -> None:
    if caption := find_object(block, "caption"):
        text.add(f"\n{indent}")
        text.write(caption["text"])
        _write_credit(text, caption.get("credit"), indent)


def _write_credit(text: RichText, credit: object, indent: str) -> None:
    if credit is not None:
        text.add(f"\n{indent}— ")
        text.write(credit)


def find_rich_files(blocks: object) -> Iterator[Raw]:
    """Yield each file of the blocks, as a field of a message, from top to bottom."""
    for block in require_objects(blocks):
        kind = require_text(block["type"])
        if kind in _FILES:
            yield {"voice" if kind == "voice_note" else kind: block[kind]}
        yield from find_rich_files(block.get("blocks"))
        for item in require_objects(block.get("items")):
            yield from find_rich_files(item["blocks"])
