"""One server for all providers: it refuses what the provider of the asked model refuses, and answers what it is told to.

The model's name says whose rules hold (`MODELS`), the path which protocol is spoken. It knows nothing of bubbot.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from bubbot.tape.entry import JsonObject
from tests import provider_rules as rules
from tests.e2e import anthropic_server, gemini_server
from tests.e2e.provider_server import Answer, Asked, Held, refusal
from tests.provider_rules import Dialect, Rule

MODELS = {
    "gpt-4o": rules.OPENAI,
    "gpt-4o-mini": rules.TEXT_ONLY,
    "gpt-4-turbo": rules.TOOLS_OLLAMA,
    "gpt-4.1": rules.PLAIN,
    "gpt-4.1-mini": rules.LLAMA_CPP_TEXT,
    "gpt-5-mini": rules.OPENAI_REASONING,
    "my-deployment": rules.OPENAI_REASONING,
    "deepseek-reasoner": rules.DEEPSEEK,
    "mistral-large-latest": rules.MISTRAL,
    "claude-sonnet-4-5": rules.ANTHROPIC,
    "gemini-2.5-flash": rules.GEMINI,
    "gemini-3-pro-preview": rules.GEMINI_3,
    "devstral-small": rules.LLAMA_CPP,
    "gemma-2-9b-it": rules.VLLM_GEMMA,
    "qwen2.5-7b": rules.VLLM_OLD,
    "gemma3:4b": rules.OLLAMA,
    "qwen3:8b": rules.TOOLS_OLLAMA,
}
"""The provider of each model."""
_COMPATIBLE = {
    "claude-sonnet-4-5": rules.ANTHROPIC_PROXY,
    "gemini-2.5-flash": rules.GEMINI_COMPATIBLE,
    "gemini-3-pro-preview": rules.GEMINI_3_COMPATIBLE,
}
"""The same models behind the OpenAI protocol."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the next request is answered. A `status` above 200 is an error of the `text`; `cut` ends it in the middle.

    `calls` are names of tools with their arguments; `call_ids` their ids, if not the provider's own; `held` keeps the
    connection open after the first words, see `StrictServer.holding`.
    """

    text: str = "ok"
    calls: tuple[tuple[str, JsonObject], ...] = ()
    reasoning: str | None = None
    call_ids: tuple[str, ...] = ()
    status: int = 200
    finish: str | None = None
    cut: bool = False
    held: bool = False


Writes: TypeAlias = Callable[[Dialect, Told, list[tuple[str, str, JsonObject]]], Answer]
"""Writes an answer in a protocol; the calls come with their ids."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A request: the first part of the path that it came by with its model, whose rules it was judged by, the rule that it
    broke with the words of the refusal, what was answered."""

    name: str
    model: str
    provider: str
    body: JsonObject
    rule: Rule | None = None
    words: str = ""
    told: Told | None = None


@dataclass
class StrictServer:
    """`told` are the answers to come, of requests that break no rule; after them it says "ok"."""

    told: deque[Told] = field(default_factory=deque)
    requests: list[Asked] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    address: str = ""
    holding: threading.Event = field(default_factory=threading.Event)
    """Set once a held answer was begun."""
    _calls: int = 0

    @property
    def refused(self) -> list[Verdict]:
        """The requests that it refused."""
        return [verdict for verdict in self.verdicts if verdict.rule]

    def tell(self, *told: Told) -> None:
        """Give the next answers, in place of those that nobody asked for."""
        self.told.clear()
        self.told.extend(told)

    def answer(self, asked: Asked) -> Answer:
        """See `Speaks`."""
        path = asked.path.partition("?")[0]
        if path.endswith("/api/show"):
            return refusal(200, {"template": "", "model_info": {}, "capabilities": ["tools"]})
        if path.endswith("/chat/completions"):
            return self._judge(asked, str(asked.body["model"]), _openai_answer, _COMPATIBLE)
        if path.endswith("/v1/messages"):
            return self._judge(asked, str(asked.body["model"]), _anthropic_answer, {})
        if path.endswith(":streamGenerateContent"):
            return self._judge(asked, path.rpartition("/")[2].partition(":")[0], _gemini_answer, {})
        if path.endswith("/api/chat"):
            return self._judge(asked, str(asked.body["model"]), _ollama_answer, {})
        return refusal(404, {"error": {"message": f"no such path: {path}"}})

    def _judge(self, asked: Asked, model: str, write: Writes, others: dict[str, Dialect]) -> Answer:
        name = f"{asked.path.split('/')[1]}/{model}"
        dialect = others.get(model) or MODELS[model]
        if broken := rules.find_broken(dialect, asked.body):
            rule, words = broken
            self.verdicts.append(Verdict(name, model, dialect.provider, asked.body, rule, words))
            body = {"error": words} if write is _ollama_answer else dialect.envelope(words, rule)
            return refusal(rule.status, body)
        told = self.told.popleft() if self.told else Told()
        if told.calls and not asked.body.get("tools"):
            told = replace(told, text=told.text.strip() or "ok", calls=())  # it was offered none
        self.verdicts.append(Verdict(name, model, dialect.provider, asked.body, told=told))
        if told.held:
            self.holding.set()
        if told.status != 200:
            return refusal(told.status, {"error": {"message": told.text, "type": "server_error", "code": told.status}})
        return write(dialect, told, self._name_calls(dialect, told))

    def _name_calls(self, dialect: Dialect, told: Told) -> list[tuple[str, str, JsonObject]]:
        """The calls with their ids."""
        named = []
        for place, (name, arguments) in enumerate(told.calls):
            self._calls += 1
            own = f"{dialect.call_id.rstrip('#')}{self._calls}"
            length = len(dialect.call_id)
            if len(own) > length > 8:  # the count goes into what is there
                own = dialect.call_id[: length - len(str(self._calls))] + str(self._calls)
            call_id = told.call_ids[place] if place < len(told.call_ids) else own
            named.append((call_id, name, arguments))
        return named


def _hold(told: Told) -> Held | None:
    return Held() if told.held else None


def _openai_answer(dialect: Dialect, told: Told, calls: list[tuple[str, str, JsonObject]]) -> Answer:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if calls and not told.text else ""}]
    reasoning = told.reasoning if told.reasoning is not None else "Hm."
    if dialect.thinks == "always" or (dialect.thinks == "key" and told.reasoning is not None):
        deltas.append({"content": None, "reasoning_content": reasoning})
    elif dialect.thinks == "parts" and told.reasoning:
        deltas.append({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]}]})
    middle = len(told.text) // 2
    deltas += [{"content": piece} for piece in (told.text[:middle], told.text[middle:]) if piece]
    for place, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call: dict[str, Any] = {"index": place, "id": call_id, "type": "function", "function": function}
        if dialect.signs and place == 0:
            call["extra_content"] = {"google": {"thought_signature": gemini_server.signed(name)}}
        deltas.append({"tool_calls": [call]})
    if told.cut:
        deltas = deltas[: len(deltas) // 2 + 1]
    if told.cut or told.held:
        return Answer(tuple(_openai_events(deltas)), cut=told.cut, held=_hold(told))
    end = [{"index": 0, "delta": {}, "finish_reason": told.finish or ("tool_calls" if calls else "stop")}]
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    events = [*_openai_events(deltas), _event(choices=end), _event(choices=[], usage=usage), b"data: [DONE]\n\n"]
    return Answer(tuple(events))


def _openai_events(deltas: list[dict[str, Any]]) -> Iterator[bytes]:
    yield from (_event(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas)


def _event(**fields: Any) -> bytes:
    return f"data: {json.dumps({'id': 'c1', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm', **fields})}\n\n".encode()


def _anthropic_answer(dialect: Dialect, told: Told, calls: list[tuple[str, str, JsonObject]]) -> Answer:
    blocks = [anthropic_server.thinks(told.reasoning)] if told.reasoning else []
    blocks += [anthropic_server.text(told.text)] if told.text else []
    blocks += [anthropic_server.uses(call_id, name, **arguments) for call_id, name, arguments in calls]
    cut = 3 if told.cut or told.held else None
    says = anthropic_server.says(*blocks, events=cut, cut=told.cut, held=_hold(told))
    return anthropic_server.stream(says)


def _gemini_answer(dialect: Dialect, told: Told, calls: list[tuple[str, str, JsonObject]]) -> Answer:
    parts: list[Any] = [{"text": told.reasoning, "thought": True}] if told.reasoning else []
    parts += [told.text] if told.text else []
    for place, (_, name, arguments) in enumerate(calls):
        part = gemini_server.calls(name, **arguments)
        if place or not dialect.signs:
            del part["thoughtSignature"]
        parts.append(part)
    says = gemini_server.says(*parts, finish=None if told.cut or told.held else "STOP", cut=told.cut)
    return gemini_server.stream(says, held=_hold(told))


def _ollama_answer(dialect: Dialect, told: Told, calls: list[tuple[str, str, JsonObject]]) -> Answer:
    asked = [{"function": {"name": name, "arguments": arguments}} for _, name, arguments in calls]
    message = {"role": "assistant", "content": told.text, **({"tool_calls": asked} if asked else {})}
    lines: list[dict[str, Any]] = [{"message": message, "done": False}]
    if not told.cut and not told.held:
        last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
        lines.append({**last, "prompt_eval_count": 11, "eval_count": 2})
    pieces = tuple(json.dumps({"model": "m", **line}).encode() + b"\n" for line in lines)
    return Answer(pieces, media="application/x-ndjson", cut=told.cut, held=_hold(told))
