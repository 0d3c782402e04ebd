"""Rules that change a request so that its model accepts it. They are pure: recorded requests are rebuilt with them.

A rule has a name, arguments and a version: `no_tools@1`, `ids:mistral@1`, `rename:max_tokens:max_completion_tokens@1`.
A version never changes, because steps name it. `bubbot.models.fit` decides which model needs which rules.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import compress
from types import MappingProxyType
from typing import Any, TypeAlias

from bubbot.errors import ConfigError
from bubbot.ports.model import ModelRequest
from bubbot.tape.entry import JsonObject, canonical

NOT_SHOWN = "[an image that this model cannot see]"
"""The replacement of an image for a model without image input."""
NO_ANSWER = "[no answer]"
"""The assistant's message if a server requires one and there is none."""
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_FORMS: Mapping[str, tuple[re.Pattern[str], int]] = MappingProxyType(
    {
        "mistral": (re.compile(r"[A-Za-z0-9]{9}"), 9),
        "openai": (re.compile(r".{1,40}", re.DOTALL), 32),
        "word": (_WORD, 32),
    }
)
"""The required forms of call ids, and the length of generated ids."""

_REASONING = ("reasoning_content", "reasoning_details", "thinking_blocks")
"""The keys of reasoning, in a message and in its `replay`."""

_Change: TypeAlias = Callable[[JsonObject], JsonObject]
_Rule: TypeAlias = Callable[..., ModelRequest]


def apply_rule(rule: str, request: ModelRequest) -> ModelRequest:
    """Apply a rule; return the same object if it has nothing to change.

    Raises:
        ConfigError: this version of bubbot does not know the rule.
    """
    if not is_known(rule):
        raise ConfigError(f"this version of bubbot does not know the rule {rule!r} of requests")
    _, *arguments = rule.partition("@")[0].split(":")
    return _RULES[_key(rule)](request, *arguments)


def is_known(rule: str) -> bool:
    """Return true if this version of bubbot knows a rule; a newer one may have stored others."""
    key, form = _key(rule), rule.partition("@")[0].partition(":")[2]
    return key in _RULES and (_RULES[key] is not _fit_ids or form in _ID_FORMS)


def _key(rule: str) -> str:
    """Return the name and the version of a rule, without its arguments."""
    words, _, version = rule.partition("@")
    return f"{words.partition(':')[0]}@{version}"


def apply_rules(rules: Iterable[str], request: ModelRequest) -> ModelRequest:
    """Apply rules in their order; see `apply_rule`."""
    for rule in rules:
        request = apply_rule(rule, request)
    return request


def _change_each(request: ModelRequest, change: _Change) -> ModelRequest:
    messages = tuple([change(message) for message in request.messages])
    if all(map(_is_same, messages, request.messages)):
        return request
    if not request.texts:
        return replace(request, messages=messages)
    pairs = zip(request.messages, messages, request.texts, strict=True)
    texts = tuple([text if new is old else canonical(new).encode() for old, new, text in pairs])
    return replace(request, messages=messages, texts=texts)


def _is_same(new: object, old: object) -> bool:
    return new is old


def _replace_messages(request: ModelRequest, messages: Sequence[JsonObject]) -> ModelRequest:
    """Return the request with other messages; do not encode unchanged ones again."""
    if len(messages) == len(request.messages) and all(map(_is_same, messages, request.messages)):
        return request
    if request.messages and not request.texts:  # it has none encoded
        return replace(request, messages=tuple(messages))
    known = {id(message): text for message, text in zip(request.messages, request.texts, strict=True)}
    texts = tuple([known.get(id(message)) or canonical(message).encode() for message in messages])
    return replace(request, messages=tuple(messages), texts=texts)


def _join_roles(request: ModelRequest) -> ModelRequest:
    """Join consecutive messages of the same role."""
    joined: list[JsonObject] = []
    for message in request.messages:
        last = joined[-1] if joined else None
        is_joined = last is not None and message["role"] == last["role"] in ("user", "assistant")
        if last is None or not is_joined or last.get("tool_calls"):
            joined.append(message)
        else:
            contents = _join_contents(last.get("content"), message.get("content"))
            joined[-1] = {**_without_keys(last, ("name",)), **_without_keys(message, ("name",)), **contents}
    return _replace_messages(request, joined)


def _join_contents(first: Any, second: Any) -> JsonObject:
    if not isinstance(first, (list, tuple)) and not isinstance(second, (list, tuple)):
        return {"content": "\n\n".join(filter(None, (first, second)))}
    parts = [
        part
        for content in (first, second)
        for part in (content if isinstance(content, (list, tuple)) else [_text_part(content)] if content else ())
    ]
    return {"content": parts}


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _open_with_user(request: ModelRequest) -> ModelRequest:
    """Let a conversation begin with a user message."""
    first = request.messages[0] if request.messages else None
    if first is None or first["role"] == "user":
        return request
    if first["role"] == "assistant" and not first.get("tool_calls"):
        return _replace_messages(request, [{**first, "role": "user"}, *request.messages[1:]])
    return _replace_messages(request, [{"role": "user", "content": "[the conversation goes on]"}, *request.messages])


def _without_system(request: ModelRequest) -> ModelRequest:
    """Write the system prompt at the top of the first message, for chat templates without that role."""
    if not request.system.strip():
        return request
    first = request.messages[0] if request.messages else None
    rest = request.messages
    opening: JsonObject = {"role": "user", "content": request.system}
    if first is not None and first["role"] == "user":
        opening, rest = {**first, **_join_contents(request.system, first.get("content"))}, rest[1:]
    return replace(_replace_messages(request, [opening, *rest]), system="")


def _answer_results(request: ModelRequest) -> ModelRequest:
    """Insert an assistant message between the result of a tool and the next user message."""
    messages: list[JsonObject] = []
    for message in request.messages:
        if messages and messages[-1]["role"] == "tool" and message["role"] == "user":
            messages.append({"role": "assistant", "content": NO_ANSWER})
        messages.append(message)
    return _replace_messages(request, messages)


def _alternate(request: ModelRequest) -> ModelRequest:
    """Let the roles alternate, beginning with the user, as simple chat templates require."""
    return _join_roles(_answer_results(_open_with_user(request)))


def _without_equal_calls(request: ModelRequest) -> ModelRequest:
    """Send equal calls of one message as one, with all results: litellm drops the others for Gemini."""
    kept: dict[str, str] = {}
    messages: list[JsonObject] = []
    for message in request.messages:
        if calls := message.get("tool_calls"):
            first: dict[tuple[str, str], str] = {}
            kept = {
                call["id"]: first.setdefault((call["function"]["name"], call["function"]["arguments"]), call["id"])
                for call in calls
            }
            messages.append(_keep_calls(message, [kept[call["id"]] == call["id"] for call in calls]))
        elif (
            message["role"] == "tool" and (call_id := kept.get(message["tool_call_id"], "")) != message["tool_call_id"]
        ):
            place = next((at for at, each in enumerate(messages) if each.get("tool_call_id") == call_id), None)
            if place is None:
                messages.append(message)
            elif messages[place]["content"] != message["content"]:
                messages[place] = {**messages[place], **_join_contents(messages[place]["content"], message["content"])}
        else:
            messages.append(message)
    return _replace_messages(request, messages)


def _keep_calls(message: JsonObject, chosen: Sequence[bool]) -> JsonObject:
    """Keep some of the calls of a message, with the fields that their provider expects back."""
    if all(chosen):
        return message
    replay = message.get("replay")
    kept = {**message, "tool_calls": [*compress(message["tool_calls"], chosen)]}
    if isinstance(replay, Mapping) and len(replay.get("calls") or ()) == len(chosen):
        kept["replay"] = {**replay, "calls": [*compress(replay["calls"], chosen)]}
    return kept


def _fit_ids(request: ModelRequest, form: str) -> ModelRequest:
    """Give calls and results ids of a form; keep ids that have it."""
    pattern, length = _ID_FORMS[form]

    def fit(call_id: str) -> str:
        if pattern.fullmatch(call_id):
            return call_id
        return b32encode(sha256(call_id.encode()).digest()).decode().lower()[:length]

    def change(message: JsonObject) -> JsonObject:
        if calls := message.get("tool_calls"):
            fitted = [fit(call["id"]) for call in calls]
            if all(new == call["id"] for new, call in zip(fitted, calls, strict=True)):
                return message
            return {**message, "tool_calls": [{**call, "id": new} for new, call in zip(fitted, calls, strict=True)]}
        if message["role"] == "tool" and (new := fit(message["tool_call_id"])) != message["tool_call_id"]:
            return {**message, "tool_call_id": new}
        return message

    return _change_each(request, change)


def _with_reasoning(request: ModelRequest) -> ModelRequest:
    """Send reasoning with every message that has calls: its own, else an empty text."""

    def change(message: JsonObject) -> JsonObject:
        if not message.get("tool_calls") or "reasoning_content" in message:
            return message
        return {**message, "reasoning_content": ""}

    return _change_each(request, change)


def _without_reasoning(request: ModelRequest) -> ModelRequest:
    """Send no reasoning back; keep what belongs to a call, such as its signature."""

    def change(message: JsonObject) -> JsonObject:
        replay = message.get("replay")
        bare = _without_keys(message, _REASONING)
        if not isinstance(replay, Mapping) or not any(key in replay for key in _REASONING):
            return bare
        return {**bare, "replay": _without_keys(replay, _REASONING)}

    return _change_each(request, change)


def _without_names(request: ModelRequest) -> ModelRequest:
    """Send no `name` with a message; its text also names the speaker."""
    return _change_each(request, partial(_without_keys, keys=("name",)))


def _without_keys(message: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    if not any(key in message for key in keys):
        return message
    return {key: value for key, value in message.items() if key not in keys}


def _as_plain_text(request: ModelRequest) -> ModelRequest:
    """Send text parts as one text."""

    def change(message: JsonObject) -> JsonObject:
        content = message.get("content")
        if not isinstance(content, (list, tuple)) or not all(part.get("type") == "text" for part in content):
            return message
        return {**message, "content": "".join([part["text"] for part in content])}

    return _change_each(request, change)


def _without_images(request: ModelRequest) -> ModelRequest:
    """Replace images by a note; the name of each precedes it."""

    def change(message: JsonObject) -> JsonObject:
        content = message.get("content")
        if not isinstance(content, (list, tuple)) or not any(map(_is_image, content)):
            return message
        parts = [_text_part(NOT_SHOWN) if _is_image(part) else part for part in content]
        if all(part.get("type") == "text" for part in parts):
            return {**message, "content": "\n\n".join([part["text"] for part in parts])}
        return {**message, "content": parts}

    return _change_each(request, change)


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("image_url", "image", "input_image")


def _without_tools(request: ModelRequest) -> ModelRequest:
    """Offer no tools; write calls and results as text."""
    names: dict[str, str] = {}
    messages: list[JsonObject] = []
    results: list[str] = []

    def add_results() -> None:
        if results:
            messages.append({"role": "user", "content": "\n\n".join(results)})
            results.clear()

    for message in request.messages:
        if message["role"] == "tool":
            results.append(_describe_result(names.get(message["tool_call_id"], "a tool"), message.get("content")))
            continue
        add_results()
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        messages.append(_describe_calls(message))
    add_results()
    return (
        replace(_replace_messages(request, messages), tools=())
        if request.tools
        else _replace_messages(request, messages)
    )


def _describe_calls(message: JsonObject) -> JsonObject:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    if not calls:
        return message
    lines = [f"[I called {call['name']} with {call['arguments']}]" for call in calls]
    return {"role": "assistant", "content": "\n".join([*filter(None, [message.get("content")]), *lines])}


def _describe_result(name: str, content: Any) -> str:
    """Write a result as quoted lines, so that it does not look like words of a person."""
    text = content if isinstance(content, str) else canonical(content)
    quoted = "\n".join([f"> {line}" for line in text.splitlines()])
    return f"[what {name} returned; no person wrote this]\n{quoted}"


def _without_empty_text(request: ModelRequest) -> ModelRequest:
    """Omit the text of a message with calls if it is blank."""

    def change(message: JsonObject) -> JsonObject:
        content = message.get("content")
        is_blank = not (content.strip() if isinstance(content, str) else content)
        return (
            {**message, "content": None} if message.get("tool_calls") and is_blank and content is not None else message
        )

    return _change_each(request, change)


def _with_text(request: ModelRequest) -> ModelRequest:
    """Add a text to messages that have only calls."""

    def change(message: JsonObject) -> JsonObject:
        content = message.get("content")
        if not message.get("tool_calls") or (content.strip() if isinstance(content, str) else content):
            return message
        return {**message, "content": "[calls]"}

    return _change_each(request, change)


def _without_parameter(request: ModelRequest, name: str) -> ModelRequest:
    if name not in request.parameters:
        return request
    return replace(request, parameters={key: value for key, value in request.parameters.items() if key != name})


def _rename_parameter(request: ModelRequest, name: str, new: str) -> ModelRequest:
    if name not in request.parameters:
        return request
    renamed = {new if key == name else key: value for key, value in request.parameters.items()}
    return replace(request, parameters=renamed)


_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "no_tools@1": _without_tools,
        "no_images@1": _without_images,
        "no_system@1": _without_system,
        "first_user@1": _open_with_user,
        "answer_results@1": _answer_results,
        "alternate@1": _alternate,
        "equal_calls@1": _without_equal_calls,
        "ids@1": _fit_ids,
        "reasoning@1": _with_reasoning,
        "no_reasoning@1": _without_reasoning,
        "no_names@1": _without_names,
        "plain_text@1": _as_plain_text,
        "no_empty_text@1": _without_empty_text,
        "some_text@1": _with_text,
        "without@1": _without_parameter,
        "rename@1": _rename_parameter,
    }
)
RULE_ORDER = tuple(name.partition("@")[0] for name in _RULES)
"""The names of the rules in the order of application: messages are joined after all rules that add some."""
