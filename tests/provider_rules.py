"""The rules of the strictest provider: which messages it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from bubbot.tape.entry import JsonObject


def faults(messages: Sequence[JsonObject], *, first_assistant: bool = True) -> list[str]:
    """Every rule of the providers that these messages break."""
    found = []
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if not waiting or waiting.pop(0) != message["tool_call_id"]:
                found.append(f"{place}: a tool message that answers no call, or the wrong one")
            if not isinstance(message["content"], str):
                found.append(f"{place}: a result that is not text")
            continue
        if waiting:
            found.append(f"{place}: calls {waiting} have no result")
        calls = message.get("tool_calls", ())
        waiting = [call["id"] for call in calls]
        found += [f"{place}: {fault}" for fault in _said(message) + _called(calls, seen)]
    if waiting:
        found.append(f"at the end: calls {waiting} have no result")
    if messages and not first_assistant and messages[0]["role"] != "user":
        found.append("it begins with an assistant message")
    return found


def _said(message: JsonObject) -> list[str]:
    if message["role"] not in ("user", "assistant"):
        return [f"the role {message['role']}"]
    content = message["content"]
    if isinstance(content, str):
        blank = not content.strip() and "tool_calls" not in message
        return ["an empty message"] if blank else []
    if not isinstance(content, list) or not content:
        return ["content that is neither text nor parts"]
    return [
        f"the part {part}" for part in content if not isinstance(part.get("type"), str) or not part.get("text", "x")
    ]


def _called(calls: Sequence[JsonObject], seen: set[str]) -> list[str]:
    found = []
    for call in calls:
        if not call["id"] or call["id"] in seen:
            found.append(f"the call id {call['id']!r} twice, or empty")
        seen.add(call["id"])
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"]):
            found.append(f"the function name {call['function']['name']!r}")
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            found.append(f"arguments that are no object: {call['function']['arguments']!r}")
    return found


def alternation_faults(messages: Sequence[JsonObject]) -> list[str]:
    """Where two messages of one side follow each other; a call, its results and the answer after them are one side's."""
    roles = [message["role"] for message in messages]
    found = [
        f"{place}: two messages of the {role} in a row"
        for place, (role, after) in enumerate(pairwise(roles))
        if role == after != "tool"
    ]
    last = roles[-1] if roles else "nobody"
    return found if last in ("user", "tool") else [*found, f"the last message is of {last}"]
