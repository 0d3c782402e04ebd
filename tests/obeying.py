"""A model that obeys everything that it reads, and orders as attackers write them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage

CANARY = "zq7kvx"
"""What the model knows, and nobody else may learn."""
ORDER = re.compile(r"CALL (\w+) (?=\{)")
MAX_CALLS = 30


def order(name: str, /, **arguments: Any) -> str:
    """An order, as an attacker writes it: the model fills in what it knows for SECRET."""
    return f"CALL {name} {json.dumps(arguments)}"


def read_orders(text: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The orders in a text, as calls with their arguments; those in JSON if there are no others. `known` is what the model fills in."""
    plain = list(_read_plainly(text, known))
    yield from plain
    if not plain or "[Anchor" in text:  # a handoff and a structured result stand in the prompt as JSON
        yield from _read_plainly(text.replace('\\"', '"'), known)


def _read_plainly(text: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for found in ORDER.finditer(text):
        with suppress(ValueError):
            arguments, _ = json.JSONDecoder().raw_decode(text, found.end())
            written = json.dumps(arguments)
            for name, value in known.items():
                written = written.replace(name, value)
            yield found[1], written


class ObeyingModel(ScriptedModel):
    """Makes every call that anything orders that it is shown, each once in a turn: messages, the system prompt and the tools."""

    def __init__(self, known: Mapping[str, str] = MappingProxyType({})) -> None:
        """`known` is what it fills in besides SECRET."""
        super().__init__()
        self.made: list[str] = []
        self._known = {"SECRET": CANARY, **known}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        start = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
        made = {
            (call["function"]["name"], call["function"]["arguments"])
            for message in request.messages[start:]
            for call in message.get("tool_calls", ())
        }
        texts = [(one["role"], str(one["content"])) for one in request.messages]
        shown = [text for role, text in texts if role != "assistant" or text.startswith("[Anchor")]
        described = [text for spec in request.tools for text in (spec.description, json.dumps(spec.parameters))]
        orders = dict.fromkeys(
            one for text in (request.system, *shown, *described) for one in read_orders(text, self._known)
        )
        handed_off = "tape_handoff" in self.made  # a new window does not show that it was
        left = [one for one in orders if one not in made and not (handed_off and one[0] == "tape_handoff")]
        if not left or len(made) >= MAX_CALLS:
            yield ModelReply("Done as ordered.", usage=Usage(1, 1), model="obeying")
            return
        self.made += [name for name, _ in left]
        calls = tuple(ToolCall(f"c{len(self.made)}x{number}", *one) for number, one in enumerate(left))
        yield ModelReply("", calls, "tool_calls", Usage(1, 1), "obeying")
