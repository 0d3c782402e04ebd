"""What the kernel sees to after every context strategy: pairs of calls and results, the first role, the messages that are answered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

from bubbot.runtime.context.selectors import CALLS, CONTINUES_MESSAGE, ContextMessage, MessageStyle, select_messages
from bubbot.runtime.context.strategy import ContextInput, ModelContext
from bubbot.tape.entry import Kind, TapeEntry

NEWEST = 64
"""The newest entries or messages among which what a turn answers is looked for first."""
RESULT_NOT_SHOWN = "[this result is not shown here]"
"""The result of a call whose own one the strategy left out."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def repair_messages(messages: tuple[ContextMessage, ...], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """Make messages that any provider accepts (T12); return them as they are if they are so.

    Each call is followed by its result, or by one that says that it is not shown; a result without a call is left out, as
    is a second call with an id. The first message is not the assistant's if the style says so.
    """
    if not _are_paired(messages):
        messages = tuple(_pair(messages))
    if messages and not style.first_assistant and messages[0].message["role"] != "user":
        return (ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()), *messages)
    return messages


def _are_paired(messages: Sequence[ContextMessage]) -> bool:
    """Return true if every call has its results right behind it, in order. Every step asks of all messages: no call for each."""
    waiting: tuple[str, ...] = ()
    for each in messages:
        if each.message["role"] == "tool":
            if waiting[:1] != (each.message["tool_call_id"],):
                return False
            waiting = waiting[1:]
        elif waiting:
            return False
        else:
            waiting = each.calls
    calls = [*chain.from_iterable(map(CALLS, messages))]
    return not waiting and len(calls) == len({*calls})


def _pair(messages: Sequence[ContextMessage]) -> Iterator[ContextMessage]:
    results: dict[str, ContextMessage] = {}
    for each in messages:
        if each.message["role"] == "tool":
            results.setdefault(each.message["tool_call_id"], each)
    seen = set[str]()
    for each in messages:
        if each.message["role"] == "tool" or not seen.isdisjoint(each.calls):
            continue
        seen.update(each.calls)
        yield each
        for call in each.calls:
            missing = {"role": "tool", "tool_call_id": call, "content": RESULT_NOT_SHOWN}
            yield results.get(call) or ContextMessage(missing, ())


def show_answered(
    messages: tuple[ContextMessage, ...], answered: Sequence[int], entries: Sequence[TapeEntry], style: MessageStyle
) -> tuple[ContextMessage, ...]:
    """Insert the messages that are answered and not shown (T10), each before what is newer; return the rest as it is.

    Args:
        messages: what the strategy chose.
        answered: the entries that the running turn answers.
        entries: hold these, ascending.
        style: of the messages.
    """
    newest = messages[-NEWEST:]
    for number in answered:
        for each in newest:
            if number in each.ids:
                break
        else:
            break
    else:
        return messages
    missing = {*answered}.difference(*[each.ids for each in messages])
    if not missing:
        return messages
    shown = list(messages)
    for each in select_messages(entries, style):
        if missing.isdisjoint(each.ids):
            continue
        last = max(each.ids)
        place = next((at for at, other in enumerate(shown) if other.ids and min(other.ids) > last), len(shown))
        shown.insert(place, each)
    return tuple(shown)


def find_fault(context: ModelContext, source: ContextInput) -> str:
    """Describe what no request can be made of in a context of somebody else's strategy; empty if nothing is wrong."""
    known = {entry.id for entry in chain(source.entries, *source.further)}
    if source.opening is not None:
        known.add(source.opening.id)
    for each in context.context_messages:
        if not isinstance(each, ContextMessage):
            return f"it returned a {type(each).__name__} as a message"
        if fault := _find_message_fault(each.message):
            return f"it returned a message with {fault}"
        if fault := _find_unknown(each.ids, known):
            return f"it returned a message of {fault}"
    facts: Sequence[object] = context.facts
    if not all(isinstance(fact, TapeEntry) and fact.kind == Kind.EVENT for fact in facts):
        return "it returned a fact that is no event"
    return ""


def _find_unknown(ids: object, known: AbstractSet[int]) -> str:
    if not isinstance(ids, tuple) or any(type(each) is not int for each in ids):
        return "entries without ids"
    unknown = [each for each in ids if each not in known]
    return f"the entry {unknown[0]}, which it was not given" if unknown else ""


def _find_message_fault(message: Mapping[str, Any]) -> str:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "tool"):
        return f"the role {role!r}"
    calls = message.get("tool_calls")
    if calls is not None and (role != "assistant" or not _are_calls(calls)):
        return "calls that are none"
    if role == "tool":
        is_result = isinstance(content, str) and isinstance(message.get("tool_call_id"), str)
        return "" if is_result else "a result that is none"
    if isinstance(content, str):
        return "" if content.strip() or calls else "no text"
    return "" if isinstance(content, list) and content and all(map(_is_part, content)) else "a content that is none"


def _is_part(part: object) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    return part["type"] != "text" or (isinstance(part.get("text"), str) and bool(part["text"].strip()))


def _are_calls(calls: object) -> bool:
    if not isinstance(calls, (list, tuple)) or not calls:
        return False
    ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    return all(map(_is_call, calls)) and all(isinstance(each, str) and each for each in ids) and len({*ids}) == len(ids)


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
        return False
    try:
        return bool(_TOOL_NAME.fullmatch(name)) and isinstance(json.loads(function.get("arguments", "")), dict)
    except (ValueError, TypeError, RecursionError):
        return False
