"""What a bot learns of the size of a context that it does not know, or knows wrong, and what it says of that."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bubbot.errors import ModelOverflow
from bubbot.features.strategies.facts import CUT
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.channel import Role
from bubbot.ports.model import Lesson, Model, ModelReply, ModelRequest, ToolSpecs
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.lessons import ModelLessons
from bubbot.tape.entry import Kind, int_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.query import TapeQuery

log = logging.getLogger(__name__)

OLLAMA = ("ollama", "ollama_chat")
LOCAL_PROVIDERS = (*OLLAMA, "lm_studio", "llamafile", "hosted_vllm")
"""Providers that people run themselves. Others refuse a request that is too long for them."""
OLLAMA_PORT = ":11434"
LEAST_SIZE, MOST_SIZE = 256, 100_000_000
"""A size that a refusal names is one between these."""
LEAST_READ = 1_000
"""Fewer tokens tell nothing: some servers count only those that they do not have in their cache."""
MAX_CHARACTERS = 6
"""A token stands for fewer characters of a text on average, in every script and tokenizer in use; English has 4.7."""
MAX_WIDE_CHARACTERS = 3
"""The same for Chinese, Japanese and Korean, of which a token has at most 2."""
SAME_SHARE = 0.75
"""Two requests that a server cut to its size have about the same count."""
_SIZE = re.compile(
    r"context (?:length|size|window|limit)[^\d.]{0,40}?(\d[\d,_]*)"
    r"|(\d[\d,_]*) maximum context length"
    r"|> (\d[\d,_]*) maximum|tokens allowed \((\d[\d,_]*)\)|n_ctx\W{1,4}(\d+)|<= (\d[\d,_]*)",
    re.IGNORECASE,
)
"""How servers name their size when they refuse a longer request: OpenAI, vLLM, llama.cpp, LM Studio; Mistral; Anthropic; Gemini;
llama.cpp; text-generation-inference."""
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
_REPEATED = re.compile(r"(.)\1{7,}", re.DOTALL)


class ContextSizes:
    """Learns the sizes of contexts from refusals and from counts, and says once what people can do."""

    def __init__(self, lessons: ModelLessons) -> None:
        self._lessons = lessons
        self._read: dict[str, int] = {}
        """The tokens that a server read of the newest request, by model; 0 if they were not too few."""

    async def around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Remember the size that a refusal names, and compare what was read with what was sent."""
        try:
            reply = await call_next(call)
        except ModelOverflow as error:
            known, size = call.model.traits.context_tokens, read_size(error.words or str(error))
            if size and (known is None or size < known) and await self._learn(call.model, "context", size):
                self._say(call.turn, "model_told_size", call.model, tokens=size)
            raise
        if call.model.traits.server or call.model.name.partition("/")[0] in LOCAL_PROVIDERS:
            await self._compare(call, reply)
        return reply

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Say that a size is assumed, once the first conversation was cut to it."""
        outcome = await call_next(turn)
        if turn.role is Role.OWNER and any(entry.name == CUT for entry in turn.tape.delta):
            model = await turn.runner.find_model(turn)
            size = model.traits.context_tokens
            if size and model.traits.assumes_size and await self._learn(model, "assumed", size):
                self._say(turn, "model_assumes_size", model, tokens=size)
        return outcome

    async def _compare(self, call: ModelCall, reply: ModelReply) -> None:
        """Notice a server that reads a part of what it is sent: two answers in a row whose counts are too low."""
        read, before = reply.usage.input_tokens, self._read.pop(call.model.name, None)
        # Nearly always there are more tokens than this, and nobody has to look at each text.
        is_plain = len(call.request.as_bytes()) // MAX_CHARACTERS <= read
        if is_plain or read < LEAST_READ or reply.usage.cached_tokens or self._least_tokens(call, reply) <= read:
            self._read[call.model.name] = 0
            return
        self._read[call.model.name] = read
        if before is None:  # the first call of this process
            before = await _find_last_count(call)
        if min(read, before) < SAME_SHARE * max(read, before) or not await self._learn(call.model, "unread", read):
            return
        is_ollama = call.model.name.partition("/")[0] in OLLAMA or call.model.traits.server.endswith(OLLAMA_PORT)
        self._say(call.turn, "ollama_reads_less" if is_ollama else "model_reads_less", call.model, tokens=read)

    @staticmethod
    def _least_tokens(call: ModelCall, reply: ModelReply) -> int:
        return least_tokens(call.request, with_tools=reply.fit is None)  # a model may refuse tools

    async def _learn(self, model: Model, rule: str, tokens: int) -> bool:
        """Remember a size; return false if as much is known."""
        lesson = Lesson.of_size(model.name, model.traits.server, rule, tokens)
        known = [each for each in self._lessons.find(lesson.model, lesson.server) if each.find_tokens(rule)]
        if any(rule != "context" or each.find_tokens(rule) == tokens for each in known):
            return False
        self._lessons.try_out(lesson)
        return bool(await self._lessons.keep([lesson]))

    def _say(self, turn: Turn, sentence: str, model: Model, **values: Any) -> None:
        values["model"] = model.name
        log.warning(turn.texts.english.say(sentence, **values), extra={"action": "model.context_size"})
        turn.root.notices.append(turn.texts.say(sentence, **values))


async def _find_last_count(call: ModelCall) -> int:
    """Find what the model read in the newest step of this chat; 0 if it was asked for nothing there."""
    query = TapeQuery(call.turn.tape.name, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=1)
    (steps,) = await call.turn.tape.fetch([query])
    usage = steps[0].data.get("usage") if steps and steps[0].data.get("model") == call.model.name else None
    return int_field(usage, "input_tokens") if isinstance(usage, Mapping) else 0


def read_size(words: str) -> int | None:
    """Return the size of a context that a refusal names; None if it names none."""
    for match in _SIZE.finditer(words):
        size = int(re.sub(r"\D", "", next(filter(None, match.groups()))))
        if LEAST_SIZE <= size <= MOST_SIZE:
            return size
    return None


def least_tokens(request: ModelRequest, *, with_tools: bool = True) -> int:
    """Return the fewest tokens that the texts of a request can have; 0 for one with images, whose tokens nobody knows."""
    texts = [*_texts_of(request), ToolSpecs.of(request.tools).encoded.decode() if with_tools else ""]
    if None in texts:
        return 0
    text = _REPEATED.sub(r"\1", "\n".join([each for each in texts if each]))
    wide = len(_WIDE.findall(text))
    return wide // MAX_WIDE_CHARACTERS + (len(text) - wide) // MAX_CHARACTERS


def _texts_of(request: ModelRequest) -> Iterator[str | None]:
    """Yield the texts of prompt and messages, without what only frames them; None for what is no text."""
    yield request.system
    for message in request.messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        else:
            yield from (part.get("text") for part in content or ())
        yield from (call["function"]["arguments"] for call in message.get("tool_calls", ()))
