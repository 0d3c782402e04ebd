"""A model that keeps nothing to itself: it repeats every canary that it is shown, and calls what it is told to."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, ToolCall, Usage
from tests.isolation.oracle import CANARY, canaries
from tests.summarising import is_summary

CONTEXT_TOKENS = 24_000
REPEATED = 25
"""The newest canaries that it repeats: all of them would soon be longer than any context."""
_CALL = re.compile(r"\s*CALL (\{.*\})")
_SHOWN = re.compile(rf"^#(\d+) .*?({CANARY.pattern})", re.MULTILINE)
ALL_SHOWN = "ALL SHOWN"
"""In the arguments of a call: the newest canaries that the model is shown, in its prompt, too. It does not repeat them."""
PRIVATE_WORD = "PRIVATE"
"""In the arguments of a call: a new word, which it writes nowhere else."""
IMAGINE = "IMAGINE"
"""The last word of a question: it looks for a new word in the files, and has another new one in its answer."""
ASK = "ASK "
"""The beginning of the last line of a message to an agent that is to ask others: their names and the call that they are to make."""
_ASKED = re.compile(r"\[(?:\S+ \(agent\) asks|The same message asks) you, \S+\]")
INVENT = "INVENT"
"""The word that lets a sub-task give one of its own a task with a secret."""


def please(name: str, /, **arguments: object) -> str:
    """Write a message that lets the model call a tool, if nothing newer was said."""
    return "Please do this.\nCALL " + json.dumps({"name": name, "arguments": arguments})


class LeakyModel:
    """See the module.

    `on_text` is awaited between the text of an answer and its end: while people see it grow. With `is_discreet` it repeats nothing
    of its system prompt, so that what stands there alone can be told from what was said. `invent` makes new words.
    """

    def __init__(
        self,
        on_text: Callable[[], Awaitable[None]],
        is_discreet: Callable[[], bool] = lambda: False,
        invent: Callable[[], str] = str,
    ) -> None:
        self._on_text = on_text
        self._invent = invent
        self._is_discreet = is_discreet
        self._numbers = count(1)
        self._secrets = 0

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return "leaky"

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`."""
        return ModelTraits(context_tokens=CONTEXT_TOKENS, images=True)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        await asyncio.sleep(0)
        usage = Usage(len(request.as_bytes()) // 4, 10)
        said = "" if self._is_discreet() else request.system
        shown = sorted(canaries(f"{said} {request.messages!r}"))[-REPEATED:]
        if is_summary(request):
            ids = [int(number) for number in re.findall(r"^#(\d+) ", str(request.messages[0]["content"]), re.MULTILINE)]
            state = {"summary": f"{' '.join(shown)} #{ids[-1]}", "next_steps": shown[:3], "source_ids": ids[-1:]}
            yield ModelReply(json.dumps(state), usage=usage)
            return
        newest = request.messages[-1]
        if "You answer one question about what happened in a chat" in request.system:
            yield self._explain(newest, usage)
            return
        if newest["role"] == "user":
            content = newest["content"]
            if not isinstance(content, str):
                content = [str(part["text"]) for part in content if part["type"] == "text"][-1]
            last_line = content.rstrip().rpartition("\n")[2]
            if _ASKED.search(last_line) and (
                calls := re.findall(r"CALL \{.*\}", "\n".join(str(each["content"]) for each in request.messages[-3:]))
            ):
                last_line = calls[-1]
            if last_line.strip().startswith(ASK):
                names, _, call = last_line.strip().removeprefix(ASK).partition("CALL")
                yield ModelReply(f"{names}, please.\nCALL{call}", usage=usage)
                return
            if last_line.endswith(IMAGINE) and any(spec.name == "file_search" for spec in request.tools):
                call_of_file = self._call("file_search", {"text": f"imagined {self._invent()}"})
                yield ModelReply("", (call_of_file,), "tool_calls", usage=usage)
                return
            if found := _CALL.fullmatch(last_line):
                known = sorted(set(CANARY.findall(f"{request.system} {request.messages!r}")))[-REPEATED:]
                words = found[1].replace(ALL_SHOWN, " ".join(known))
                while PRIVATE_WORD in words:
                    words = words.replace(PRIVATE_WORD, self._invent(), 1)
                call = json.loads(words)
                yield ModelReply("", (self._call(**call),), "tool_calls", usage=usage)
                return
            if last_line.endswith(INVENT) and any(spec.name == "agent_run" for spec in request.tools):
                self._secrets = number = self._secrets + 1
                task = {"task": f"Think of kw{90_000 + number}: zs{number:05}x", "tools": []}
                yield ModelReply("", (self._call("agent_run", task),), "tool_calls", usage=usage)
                return
        if any(ALL_SHOWN in str(message["content"]) for message in request.messages[-3:]):
            shown = []  # what it has written into a call is told nowhere else
        if newest["role"] == "tool" and any(str(each["content"]).endswith(IMAGINE) for each in request.messages[-3:]):
            shown = [*shown, f"imagined {self._invent()}"]
        text = " ".join(["I was shown:", *shown])
        yield TextDelta(text)
        await self._on_text()
        yield ModelReply(text, usage=usage)

    def _explain(self, newest: Mapping[str, Any], usage: Usage) -> ModelReply:
        """Look at the turn before the question, then quote the first canary there."""
        if newest["role"] == "user":
            return ModelReply("", (self._call("explain_turn", {}),), "tool_calls", usage=usage)
        shown = _SHOWN.search(str(newest["content"]))
        return ModelReply(f"#{shown[1]} {shown[2]}" if shown else "UNKNOWN", usage=usage)

    def _call(self, name: str, arguments: object) -> ToolCall:
        return ToolCall(f"call_{next(self._numbers)}", name, json.dumps(arguments))

    async def aclose(self) -> None:
        """See `Model.aclose`."""
