"""Conversion of entries to chat messages that all providers accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from operator import attrgetter
from typing import Any

from msgspec import Struct

from bubbot.formatting import clean_label
from bubbot.ports.agents import speaker_name
from bubbot.ports.channel import AGENT_ORIGIN
from bubbot.runtime.context.attachments import (
    MAX_REQUEST_IMAGE_BYTES,
    describe_files,
    is_attached,
    render_images,
    select_images,
)
from bubbot.runtime.context.pairing import PairedCall, count_results, pair_calls
from bubbot.runtime.context.quoting import (
    INDENT,
    clean_name,
    escape_json,
    escape_people_text,
    escape_tags,
    indent_lines,
    quote_text,
)
from bubbot.tape.entry import THOUGHTS, JsonObject, Kind, TapeEntry, canonical, encode, int_field, text_field, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import parse_moment

ANCHOR_NAME_LIMIT = 200
"""Characters of an anchor's name in its line."""
OWN_PART_KEY = "own"
"""The key that marks a text part as the bot's, not the person's."""
BLANK_MESSAGE_TEXT = "[no text]"
"""The replacement of a blank message, which providers refuse."""
EVIDENCE = "evidence"
"""The key of the evidence beside a message, in the cache of its entry; see `runtime.context.evidence`."""
PLACED_EVIDENCE = "evidence at its place"
"""The key of the evidence that stands at the place of its fact, in the cache of the fact's entry."""
SPEAKER = "speaker"
"""The key of the agent that speaks, in the cache of its message; see `runtime.context.speakers`."""
_AGENT_CALL = re.compile(r"\[(?:The same message|[a-z][a-z0-9_-]* \(agent\)) asks you, [a-z][a-z0-9_-]*\]")
"""All that the message says with which an agent asks another one."""
CONTINUES_MESSAGE = "[The conversation goes on]"
"""The user message if a provider needs one and no person wrote one."""


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """The form of messages.

    Attributes:
        stamps: the zone of the time in front of each user message; None: no time.
        first_assistant: the conversation may open with an assistant message.
        bootstrap: `session/start` gets a line.
        images: how many of the newest images to show; 0 for a model that cannot see.
        image_bytes: the most bytes of these images together.
        tools: the model can call tools, such as those that open entries.
    """

    stamps: tzinfo | None = None
    first_assistant: bool = True
    bootstrap: bool = True
    images: int = 0
    image_bytes: int = MAX_REQUEST_IMAGE_BYTES
    tools: bool = True


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A chat message and the ids of its entries.

    Attributes:
        message: as a provider accepts it.
        ids: its entries.
        deletes: the entry before the window whose deletion the message reports; 0 for other messages.
        text: canonical JSON, encoded once, since every step needs it.
        size: bytes of `text`.
        is_nested: true if the message holds more than texts.
        has_parts: true if its content is not a text.
        calls: the ids of its calls.
    """

    message: JsonObject
    ids: tuple[int, ...]
    deletes: int = 0
    text: bytes = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    is_nested: bool = field(init=False, repr=False, compare=False)
    has_parts: bool = field(init=False, repr=False, compare=False)
    calls: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = canonical(self.message).encode()
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "size", len(text))
        object.__setattr__(self, "is_nested", {*map(type, self.message.values())} != {str})
        object.__setattr__(self, "has_parts", type(self.message["content"]) is not str)
        calls = self.message.get("tool_calls", ())
        object.__setattr__(self, "calls", tuple([call["id"] for call in calls]) if calls else ())


# Every step reads these fields of all messages of a window: `attrgetter` runs no Python code for each.
HAS_PARTS: Callable[[ContextMessage], bool] = attrgetter("has_parts")
CALLS: Callable[[ContextMessage], tuple[str, ...]] = attrgetter("calls")
_DELETES: Callable[[ContextMessage], int] = attrgetter("deletes")


def format_anchor_line(entry: TapeEntry) -> str:
    state = escape_json(encode(entry.payload.get("state") or {}))
    return f"[Anchor created: {clean_label(entry.name or '', ANCHOR_NAME_LIMIT)}]: {state}"


def select_messages(entries: Sequence[TapeEntry], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """Convert entries to messages.

    `message` payloads stay unchanged, corrections stand at their own position, and tool calls come with their results
    in call order. A call without a result gets a note as its result; a result without a call is skipped. So are hidden,
    empty and unreadable messages.
    """
    entries, stamps = tuple(entries), style.stamps
    if not entries:
        return ()
    cache = entries[0].cache  # lives as long as the window
    cached: _SelectedMessages | None = cache.get(("selected", stamps))
    selected = cached.continued(entries, stamps) if cached else None
    selected = cache["selected", stamps] = selected or _select_all(entries, stamps)
    return _limit_images(selected.messages, style)


class _SelectedMessages(Struct, frozen=True):
    """The messages of entries, cached on the first entry; `after` has the other entries.

    Most windows continue with messages and with calls and their results, which do not change earlier messages. `calls`
    has the ids of all calls so far.
    """

    after: tuple[TapeEntry, ...]
    hidden: frozenset[int]
    calls: frozenset[str]
    messages: tuple[ContextMessage, ...]

    def continued(self, entries: tuple[TapeEntry, ...], stamps: tzinfo | None) -> _SelectedMessages | None:
        """Extend the messages by those of new entries; None if these may change earlier messages."""
        size = 1 + len(self.after)
        rest = entries[size:]
        if entries[1:size] != self.after or any(map(find_correction, rest)):
            return None
        hidden = self.hidden.union([entry.id for entry in rest if not is_in_context(entry)])
        exchanges = pair_calls(rest, hidden)
        calls = [call for exchange in exchanges.values() for call in exchange]
        ids = {call.id for call in calls}
        # Otherwise a result may belong to an earlier call, or a call may need another id.
        if count_results(rest) != len(calls) or not all(call.source for call in calls) or ids & self.calls:
            return None
        messages = _convert(rest, hidden, exchanges, stamps)
        return _SelectedMessages(entries[1:], hidden, self.calls | ids, (*self.messages, *messages))


def _select_all(entries: tuple[TapeEntry, ...], stamps: tzinfo | None) -> _SelectedMessages:
    corrections = [data for entry in entries if (data := find_correction(entry))]
    hidden = frozenset(
        [data["corrects"] for data in corrections if data.get("hide")]
        + [entry.id for entry in entries if not is_in_context(entry)]
    )
    exchanges = pair_calls(entries, hidden)
    calls = frozenset(call.id for exchange in exchanges.values() for call in exchange)
    return _SelectedMessages(entries[1:], hidden, calls, tuple(_convert(entries, hidden, exchanges, stamps)))


def _convert(
    entries: Sequence[TapeEntry],
    hidden: frozenset[int],
    exchanges: Mapping[int, Sequence[PairedCall]],
    stamps: tzinfo | None,
) -> list[ContextMessage]:
    """Convert entries to messages; `exchanges` pairs their calls with results."""
    ids = {entry.id for entry in entries}
    messages: list[ContextMessage] = []
    for entry in entries:
        if entry.id in hidden or entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            messages += _exchange(entry, exchanges[entry.id])
        elif entry.kind == Kind.MESSAGE:
            messages += convert_message(entry, stamps)
        elif PLACED_EVIDENCE in entry.cache:
            messages.append(ContextMessage({"role": "user", "content": entry.cache[PLACED_EVIDENCE]}, (entry.id,)))
        elif data := find_correction(entry):
            messages += _correction(entry, data, is_here=data["corrects"] in ids)
    return messages


def convert_message(entry: TapeEntry, stamps: tzinfo | None) -> list[ContextMessage]:
    """Convert a message entry to one message or none; cache it on the entry."""
    messages: list[ContextMessage] | None = entry.cache.get(("message", stamps))
    if messages is None:
        messages = _message(entry, stamps)
        if EVIDENCE in entry.cache:
            messages = [_with_evidence(each, entry.cache[EVIDENCE]) for each in messages]
        entry.cache["message", stamps] = messages
    return messages


def _with_evidence(message: ContextMessage, block: str) -> ContextMessage:
    content = message.message["content"]
    joined = f"{block}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": block}, *content]
    return ContextMessage({**message.message, "content": joined}, message.ids)


def _limit_images(context_messages: tuple[ContextMessage, ...], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """Keep the newest images as references that become images; describe the others in words."""
    if not any(map(HAS_PARTS, context_messages)):
        return context_messages
    messages = [context_message.message for context_message in context_messages]
    places = select_images(messages, style.images, style.image_bytes) if style.images else frozenset()
    result: list[ContextMessage] = []
    for place, context_message in enumerate(context_messages):
        message = render_images(context_message.message, place, places, can_see=style.images > 0)
        result.append(
            context_message if message is context_message.message else ContextMessage(message, context_message.ids)
        )
    return tuple(result)


def is_in_context(entry: TapeEntry) -> bool:
    """Return false for an entry whose meta excludes it from every context."""
    return entry.meta.get("context") is not False


def text_of(content: Any, describe: Callable[[Mapping[str, Any]], str] | None = None) -> str:
    """Return the text of a message's content on a tape; empty if it has none.

    Args:
        describe: writes parts that are not text, such as files; None skips them.
    """
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, tuple) else []
    lines = []
    for part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            lines.append(part["text"])
        elif describe is not None:
            lines.append(describe(part))
    return "\n".join(lines)


def is_agent_call(entry: TapeEntry) -> bool:
    """Return true for the message with which an agent asks another one. An imported message may have any origin."""
    if entry.meta.get("origin") != AGENT_ORIGIN:
        return False
    content = entry.payload.get("content")
    return isinstance(content, str) and _AGENT_CALL.fullmatch(content) is not None


def find_correction(entry: TapeEntry) -> JsonObject | None:
    """Return the data of a correction; None for other entries and for one that names no entry (imports)."""
    if entry.kind != Kind.EVENT or entry.name != CORRECTION:
        return None
    return entry.data if int_field(entry.data, "corrects") else None


def prepend_opening(
    opening: TapeEntry | None, messages: tuple[ContextMessage, ...], style: MessageStyle
) -> tuple[ContextMessage, ...]:
    """Put the opening anchor's line first: as an assistant message, or within the first user message.

    Report deletions from before the window only if the anchor cites the entry.
    """
    if any(map(_DELETES, messages)):
        cited = _find_sources(opening)
        messages = tuple([message for message in messages if not message.deletes or message.deletes in cited])
    if opening is None:
        if style.first_assistant or not messages or messages[0].message["role"] == "user":
            return messages
        return (ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()), *messages)
    first = messages[0] if messages else None
    if style.first_assistant:
        return (_opening_message(opening, None), *messages)
    if first is None or first.message["role"] != "user" or not isinstance(first.message["content"], str):
        return (_opening_message(opening, None, "user"), *messages)
    return (_opening_message(opening, first, "user"), *messages[1:])


def _find_sources(opening: TapeEntry | None) -> frozenset[int]:
    state = None if opening is None else opening.payload.get("state")
    sources = state.get("source_ids") if isinstance(state, Mapping) else None
    return frozenset([each for each in sources if type(each) is int]) if isinstance(sources, tuple) else frozenset()


def _opening_message(opening: TapeEntry, first: ContextMessage | None, role: str = "assistant") -> ContextMessage:
    """Write the opening anchor's line as a message, or in front of the first message; cache it on the anchor."""
    cached: tuple[ContextMessage | None, ContextMessage] | None = opening.cache.get(("line", role))
    if cached is not None and cached[0] is first:
        return cached[1]
    line = format_anchor_line(opening)
    if first is None:
        message = ContextMessage({"role": role, "content": line}, (opening.id,))
    else:
        joined = {**first.message, "content": f"{line}\n\n{first.message['content']}"}
        message = ContextMessage(joined, (opening.id, *first.ids))
    opening.cache["line", role] = first, message
    return message


def ensure_user_last(messages: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
    """Append a user message if there is none or the last one is the assistant's."""
    if messages and messages[-1].message["role"] != "assistant":
        return messages
    return (*messages, ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()))


_NOT_SENT = frozenset({"role", "content", "tool_calls", THOUGHTS})
"""The keys of a message's payload that are not sent unchanged."""


_COMMAND_BLOCK = re.compile(
    r"""(<command name=(?:"[^"<>]*"|'[^'<>]*') status="[^"<>]*">\n)(.*)(\n</command>)""", re.DOTALL
)
"""A failed command, as `CommandOutcome.for_model` writes it."""


def _message(entry: TapeEntry, stamps: tzinfo | None) -> list[ContextMessage]:
    payload = entry.payload
    role, content = payload.get("role"), _content(payload.get("content"))
    is_ours = role == "system" or entry.meta.get("origin") == "system" or is_agent_call(entry)
    if role == "system":
        role, content = "user", f"[system] {content}" if content and isinstance(content, str) else content
    if role not in ("user", "assistant"):
        return []
    if isinstance(content, str) and not content.strip():
        content, is_ours = BLANK_MESSAGE_TEXT if content and role == "user" else None, True
    if not content:
        return []
    if role == "user":
        content = _plain(_escape_own(content)) if is_ours else _quote_people(content)
        content = _with_head(_head(entry, stamps), content, INDENT if entry.meta.get("group") else "")
    elif isinstance(content, list):
        content = _plain(content)
    extra = {key: thaw(value) for key, value in payload.items() if key not in _NOT_SENT}
    return [ContextMessage({"role": role, "content": content, **extra}, (entry.id,))]


def _head(entry: TapeEntry, stamps: tzinfo | None) -> str:
    """Write the time of a message, its author if several people write, and the quote it replies to."""
    at = parse_moment(entry.date) if stamps is not None else None
    head = f"[{at.astimezone(stamps):%Y-%m-%d %H:%M}] " if at is not None else ""
    if is_agent_call(entry):  # an agent asks, and not the person for whom it works
        return head
    if speaker := entry.cache.get(SPEAKER):
        return f"{head}{format_agent(speaker)}: "
    is_shared = SPEAKER in entry.meta
    if entry.meta.get("group") and isinstance(sender := entry.meta.get("sender"), Mapping):
        head += f"{format_sender(sender)}: "
    elif is_shared:  # an imported message, or the bot's own: its words may begin like those of an agent
        head += "system: " if entry.meta.get("origin") == "system" else "user: "
    if isinstance(quote := entry.meta.get("quote"), Mapping) and isinstance(sender := quote.get("sender"), Mapping):
        author = "you" if quote.get("own") else format_sender(sender)
        if is_shared and quote.get("own"):
            author = format_agent(text_field(quote, "agent"))
        head += f"[in reply to {author}: {quote_text(str(quote.get('text', '')))}] "
    return head


def format_sender(sender: Mapping[str, Any]) -> str:
    """Write a display name on one line with the id, since a name proves nothing."""
    return f"{clean_name(str(sender.get('name', '')))} (#{clean_name(str(sender.get('id', '')))})".strip()


def format_agent(name: str) -> str:
    """Write the name of an agent (empty: the bot itself) as that of a speaker. An imported entry may have any name."""
    return f"{clean_name(speaker_name(name))} (agent)"


def _quote_people(content: str | list[Any]) -> str | list[Any]:
    """Quote the texts of people; keep the bot's texts between them."""
    if isinstance(content, str):
        return escape_people_text(content)
    parts = [
        {**part, "text": escape_people_text(part["text"])}
        if part["type"] == "text" and not part.get(OWN_PART_KEY)
        else part
        for part in content
    ]
    return _plain(parts)


def _escape_own(content: str | list[Any]) -> str | list[Any]:
    """Escape the tags in a message of the bot but those around a command: only imports and a person's words in it have any."""
    if not isinstance(content, str):
        return content
    block = _COMMAND_BLOCK.fullmatch(content)
    return f"{block[1]}{escape_tags(block[2])}{block[3]}" if block else escape_tags(content)


def _plain(content: str | list[Any]) -> str | list[Any]:
    """Write the content in a provider's form: files in words, parts without our marks."""
    if isinstance(content, str):
        return content
    parts = [{key: value for key, value in part.items() if key != OWN_PART_KEY} for part in content]
    return describe_files(parts) if any(is_attached(part) for part in parts) else parts


def _with_head(head: str, content: str | list[Any], indent: str) -> str | list[Any]:
    """Put the head before the first text.

    `indent` precedes the further lines, so that none of them looks like another person's message.
    """
    if isinstance(content, str):
        return f"{head}{indent_lines(content, indent)}" if indent else f"{head}{content}"
    opening = [{"type": "text", "text": head.rstrip()}] if head else []
    if not indent:
        return [*opening, *content]
    if head and content[0]["type"] == "text":  # one part: no part may begin with a speaker's words
        opening, content = [{"type": "text", "text": head + indent_lines(content[0]["text"], indent)}], content[1:]
    further = [
        {**part, "text": indent + indent_lines(part["text"], indent)} if part["type"] == "text" else part
        for part in content
    ]
    return [*opening, *further]


def _content(value: Any) -> str | list[Any] | None:
    """Return the text or the readable content parts; None if there is neither."""
    if isinstance(value, str):
        return value
    if not isinstance(value, tuple):
        return None
    parts = [part for part in value if isinstance(part, Mapping) and isinstance(part.get("type"), str)]
    return [thaw(part) for part in parts if part["type"] != "text" or _has_text(part.get("text"))]


def _has_text(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _correction(entry: TapeEntry, data: JsonObject, *, is_here: bool) -> list[ContextMessage]:
    """Write the correction with its author, if known. A deletion is written only if its entry is not here."""
    if data.get("hide") and not is_here:
        content = f"[#{data['corrects']}, which is cited above, was deleted since: do not use or repeat it]"
        return [ContextMessage({"role": "user", "content": content}, (entry.id,), data["corrects"])]
    if data.get("hide") or not isinstance(data.get("content"), str):
        return []
    author = f", by {format_sender(sender)}" if isinstance(sender := entry.meta.get("sender"), Mapping) else ""
    content = f"[corrects #{data['corrects']}{author}] {escape_people_text(data['content'], INDENT)}"
    return [ContextMessage({"role": "user", "content": content}, (entry.id,))]


def _exchange(entry: TapeEntry, calls: Sequence[PairedCall]) -> list[ContextMessage]:
    """Write the assistant message with its calls, then one tool message for each call, in order."""
    if not calls:
        return []
    cached_calls, messages = entry.cache.get("exchange", ((), ()))
    if cached_calls != calls:
        messages = _exchange_messages(entry, calls)
        entry.cache["exchange"] = calls, messages
    return list(messages)


def _exchange_messages(entry: TapeEntry, calls: Sequence[PairedCall]) -> list[ContextMessage]:
    content = entry.payload.get("content")
    text = content if isinstance(content, str) else ""
    replay = {"replay": thaw(entry.payload["replay"])} if "replay" in entry.payload else {}
    message = {"role": "assistant", "content": text, "tool_calls": [call.as_json() for call in calls], **replay}
    messages = [ContextMessage(message, (entry.id,))]
    for call in calls:
        ids = (call.source,) if call.source else ()
        messages.append(ContextMessage({"role": "tool", "tool_call_id": call.id, "content": call.result}, ids))
    return messages
