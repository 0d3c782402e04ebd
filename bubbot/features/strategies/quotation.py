"""Entries of the conversation as quotations: dated, with id and author, so that no line of them looks like a mark."""

from __future__ import annotations

from datetime import tzinfo

from bubbot.features.strategies.reader import OpenedEntry
from bubbot.runtime.context.quoting import INDENT, escape_people_text
from bubbot.runtime.context.tokens import BYTES_PER_TOKEN
from bubbot.tape.entry import Kind
from bubbot.tape.query import format_date
from bubbot.texts import Texts


def format_head(entry: OpenedEntry, zone: tzinfo, texts: Texts) -> str:
    """Write the line before a quotation: id, date, author, kind; or that its words are gone."""
    date = format_date(entry.date, zone, undated=texts.say("undated"))
    if entry.gone:
        name = "read_erased" if entry.gone == "erased" else "read_hidden"
        return texts.say(name, entry=entry.id, date=date, kind=entry.kind)
    marks = texts.say("hit_superseded", entry=entry.superseded_by) if entry.superseded_by else ""
    return texts.say(
        "read_entry", entry=entry.id, date=date, author=_author(entry, texts), kind=entry.kind, marks=marks
    )


def _author(entry: OpenedEntry, texts: Texts) -> str:
    if entry.author:
        return entry.author
    if entry.is_person:
        return texts.say("read_by_person")
    return texts.say("read_by_tool" if entry.kind == Kind.TOOL_RESULT else "read_by_bot")


def indent_quotation(text: str) -> str:
    """Write a text so that none of its lines looks like the line before a quotation, or like a mark of the bot."""
    return f"{INDENT}{escape_people_text(text, INDENT)}" if text.strip() else ""


def clip_text(text: str, tokens: int) -> str:
    """Return the beginning of a text that has about so many tokens; never nothing of a text."""
    return text.encode(errors="replace")[: tokens * BYTES_PER_TOKEN].decode(errors="ignore") or text[:1]
