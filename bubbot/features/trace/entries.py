"""An entry as the page shows it: who or what, and its words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bubbot.features.trace.words import Excerpt
from bubbot.runtime.context.attachments import FILE, IMAGE, is_attached
from bubbot.runtime.turns import CallRecord, read_calls, read_results
from bubbot.tape.entry import THOUGHTS, JsonObject, Kind, TapeEntry, encode, text_field, thaw

ROW_CHARS = 600
"""Characters of one text in a list."""
MAX_PARTS = 20
"""Texts of one entry in a list."""
CALL_CHARS = 1000
"""Characters of the arguments and of the result of a call."""
COMMAND_EVENT = "command"
FILE_KINDS = (IMAGE, "audio", "voice", "video", FILE)


WordForm: TypeAlias = Literal["plain", "markdown", "code"]
"""How a text is drawn: as it was typed, as the Markdown of a model, or as JSON and arguments."""


class MessageFile(Struct, frozen=True):
    """An image, a recording or another file of a message.

    Attributes:
        kind: `image`, `voice`, `audio`, `video` or `file`.
        name: of the file; empty if it has none.
        size: bytes; None if unknown.
        note: what the platform says of it, such as how long it is.
        written_by: the model that transcribed it; empty for none.
    """

    kind: str
    name: str
    size: int | None
    note: str
    written_by: str


class WordPart(Struct, frozen=True):
    """A text of an entry.

    Attributes:
        label: what it is, such as the name of a tool; empty for the words of a message.
        words: the text.
        form: how it is drawn.
        is_error: it tells that something went wrong.
        file: the file that it stands in; None for none.
    """

    label: str
    words: Excerpt
    form: WordForm = "plain"
    is_error: bool = False
    file: MessageFile | None = None

    @property
    def is_code(self) -> bool:
        """True if it is JSON or arguments, and no prose."""
        return self.form == "code"


class EntryRow(Struct, frozen=True):
    """An entry in a list.

    Attributes:
        id: its id.
        kind: its kind.
        name: of an anchor or event; the role of a message.
        date: when, ISO 8601; empty if unknown.
        turn: the id of its turn; empty for none.
        author: who wrote it, as shown; empty if no person did.
        model: the model that wrote it; empty for none.
        parts: its texts.
        provenance: `own`, `people`, `world`, or empty.
        origin: who it comes from besides people: a job, a sub-task; empty for people.
        erased: its content was erased.
        is_cut: the list does not show all of it.
    """

    id: int
    kind: str
    name: str
    date: str
    turn: str
    author: str
    model: str
    parts: tuple[WordPart, ...]
    provenance: str
    origin: str
    erased: bool
    is_cut: bool

    @property
    def is_detail(self) -> bool:
        """True if it is a fact that a list shows closed."""
        is_talk = self.kind in (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ERROR)
        return not is_talk and self.name != COMMAND_EVENT


def describe_entry(entry: TapeEntry, limit: int = ROW_CHARS) -> EntryRow:
    """Describe an entry in at most `limit` characters for each of its texts."""
    texts = list(_list_parts(entry, limit))
    parts = tuple(texts[:MAX_PARTS])
    sender, origin = entry.meta.get("sender"), text_field(entry.meta, "origin")
    return EntryRow(
        entry.id,
        str(entry.kind),
        entry.name or (text_field(entry.payload, "role") if entry.kind == Kind.MESSAGE else ""),
        entry.date,
        text_field(entry.meta, "turn"),
        text_field(sender, "name") or text_field(sender, "id") if isinstance(sender, Mapping) else "",
        text_field(entry.meta, "model"),
        parts,
        text_field(entry.meta, "provenance"),
        "" if origin == "human" else origin,
        entry.erased,
        any(part.words.rest for part in parts) or len(texts) > MAX_PARTS,
    )


def pretty(value: Any) -> str:
    """Write a value for reading."""
    return json.dumps(thaw(value), ensure_ascii=False, indent=2)


def _readable(value: Any, limit: int) -> str:
    """Write a value for reading; one that is cut anyway as it is stored, which takes a fraction of the time."""
    text = encode(value) if isinstance(value, Mapping) else ""
    return text if len(text) > limit else pretty(value)


def pretty_arguments(text: str) -> str:
    """Write the arguments of a call for reading; as they are if they are not JSON."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def excerpt_arguments(call: CallRecord) -> Excerpt:
    """Write the beginning of the arguments of a call."""
    return Excerpt.of(pretty_arguments(call.arguments), CALL_CHARS)


def excerpt_result(call: CallRecord) -> Excerpt:
    """Write the beginning of the result of a call that has one."""
    content = (call.result or {}).get("content")
    return Excerpt.of(content if isinstance(content, str) else pretty(content), CALL_CHARS)


def _list_parts(entry: TapeEntry, limit: int) -> Iterator[WordPart]:
    payload = entry.payload

    def part(text: str, label: str = "", form: WordForm = "plain", *, is_error: bool = False) -> WordPart:
        return WordPart(label, Excerpt.of(text, limit), form, is_error)

    thoughts = [part(text, THOUGHTS)] if (text := text_field(payload, THOUGHTS)) else []
    match entry.kind:
        case _ if entry.erased:
            return
        case Kind.MESSAGE:
            # What people type is shown as they typed it; models write Markdown.
            yield from _message_parts(payload, "markdown" if payload.get("role") == "assistant" else "plain", limit)
            yield from thoughts
        case Kind.TOOL_CALL:
            if text := text_field(payload, "content"):
                yield part(text, form="markdown")
            yield from thoughts
            yield from (part(pretty_arguments(call.arguments), call.name, "code") for call in read_calls(entry))
        case Kind.TOOL_RESULT:
            for result in read_results(entry):
                call, is_error = text_field(result, "tool_call_id"), result.get("is_error") is True
                texts = content_texts(result.get("content"))
                yield from (part(text, label or call, is_error=is_error) for label, text in texts)
        case Kind.ERROR:
            yield part(text_field(payload, "message"), text_field(payload, "kind"), is_error=True)
        case Kind.SYSTEM if "content" in payload:
            yield part(text_field(payload, "content"))
        case Kind.EVENT if entry.name == COMMAND_EVENT and text_field(entry.data, "raw"):
            status, output = text_field(entry.data, "status"), text_field(entry.data, "output")
            told = [part(output, "" if status == "ok" else status, "markdown", is_error=status == "error")]
            yield from (part(text_field(entry.data, "raw")), *(told if output else ()))
        case _:
            shown = {Kind.ANCHOR: "state", Kind.EVENT: "data"}.get(Kind(entry.kind)) if entry.name else None
            yield part(_readable(payload.get(shown, {}) if shown else payload, limit), form="code")


def _message_parts(payload: JsonObject, form: WordForm, limit: int) -> Iterator[WordPart]:
    content = payload.get("content")
    for each in content if isinstance(content, Sequence) and not isinstance(content, str) else (content,):
        if isinstance(each, Mapping) and is_attached(each):
            kind = text_field(each, "kind") if each["type"] == FILE else IMAGE
            size = each.get("size")
            file = MessageFile(
                kind if kind in FILE_KINDS else FILE,
                text_field(each, "name"),
                size if isinstance(size, int) else None,
                text_field(each, "note"),
                text_field(each, "by"),
            )
            yield WordPart("", Excerpt.of(text_field(each, "text"), limit), file=file)
        else:
            for label, text in content_texts(each if isinstance(each, str) or each is None else (each,)):
                yield WordPart(label, Excerpt.of(text, limit), form)


def content_texts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield label and text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        yield "", content
    elif isinstance(content, Sequence):
        for part in content:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield text_field(part, "name"), part["text"]
            elif isinstance(part, Mapping):
                yield text_field(part, "name") or text_field(part, "type"), _describe_part(part)
            else:
                yield "", pretty(part)
    elif content is not None:
        yield "", pretty(content)


def _describe_part(part: JsonObject) -> str:
    """Describe a part that is no text; addresses that hold whole files are not shown."""
    address = part.get("image_url")
    url = text_field(address, "url") if isinstance(address, Mapping) else ""
    if url.startswith("data:"):
        return f"{url.partition(',')[0]}, … ({len(url)} characters)"
    return pretty(part)
