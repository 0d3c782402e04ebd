"""An entry as the page shows it: who or what, and its words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bubbot.features.trace.words import Excerpt
from bubbot.records import dataclass
from bubbot.runtime.turns import CallRecord, read_calls, read_results
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, encode, text_field, thaw

ROW_CHARS = 600
"""Characters of one text in a list."""
MAX_PARTS = 20
"""Texts of one entry in a list."""
CALL_CHARS = 1000
"""Characters of the arguments and of the result of a call."""


@dataclass(frozen=True, slots=True)
class WordPart:
    """A text of an entry.

    Attributes:
        label: what it is, such as the name of a tool; empty for the words of a message.
        words: the text.
        is_code: it is JSON or arguments, and no prose.
        is_error: it tells that something went wrong.
    """

    label: str
    words: Excerpt
    is_code: bool = False
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class EntryRow:
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


def describe_entry(entry: TapeEntry, limit: int = ROW_CHARS) -> EntryRow:
    """Describe an entry in at most `limit` characters for each of its texts."""
    texts = list(_texts(entry, limit))
    parts = tuple(
        WordPart(label, Excerpt.of(text, limit), is_code, is_error)
        for label, text, is_code, is_error in texts[:MAX_PARTS]
    )
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


def _texts(entry: TapeEntry, limit: int) -> Iterator[tuple[str, str, bool, bool]]:
    """Yield label, text, whether it is code and whether it is an error."""
    payload = entry.payload
    match entry.kind:
        case _ if entry.erased:
            return
        case Kind.MESSAGE:
            for label, text in content_texts(payload.get("content")):
                yield label, text, False, False
        case Kind.TOOL_CALL:
            if text := text_field(payload, "content"):
                yield "", text, False, False
            for call in read_calls(entry):
                yield call.name, pretty_arguments(call.arguments), True, False
        case Kind.TOOL_RESULT:
            for result in read_results(entry):
                for label, text in content_texts(result.get("content")):
                    yield label or text_field(result, "tool_call_id"), text, False, result.get("is_error") is True
        case Kind.ERROR:
            yield text_field(payload, "kind"), text_field(payload, "message"), False, True
        case Kind.SYSTEM if "content" in payload:
            yield "", text_field(payload, "content"), False, False
        case _:
            shown = {Kind.ANCHOR: "state", Kind.EVENT: "data"}.get(Kind(entry.kind)) if entry.name else None
            yield "", _readable(payload.get(shown, {}) if shown else payload, limit), True, False


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
