"""bubbot as an agent of AReaL's agent service: one turn from a given history, in a home that is thrown away.

AReaL loads the class by its name, `bubbot.BubbotAgent`; the service keeps the history, and names for each turn the server that answers
and records its calls. The bot here has prompt, tools and settings of a home, of which it only reads the settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.channels import STDIN
from bubbot.app.models import open_endpoint_model
from bubbot.app.settings import build_settings, load
from bubbot.app.tapes import new_id, now
from bubbot.errors import ConfigError, ModelError, ToolFailed
from bubbot.feature import Around, Feature, FeatureFactory, Kernel
from bubbot.formatting import clean, show_value
from bubbot.home import Home
from bubbot.middleware import CallNext, ModelCall, ToolInvocation
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import Model, ModelReply, ModelRequest
from bubbot.runtime.rerun import only_reads_here
from bubbot.settings.environment import read_variables
from bubbot.settings.loader import Settings
from bubbot.settings.sections import DEFAULT_STORE
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tool import ToolOutput

FEATURE = "areal_agent"
NOT_RUN = "not run: in this talk only tools that read may run"
MAX_RUNS = 1_000
"""Turns of one home that is thrown away; what they wrote goes with it."""
_TIME = re.compile(r"\A\[(\d{4}-\d\d-\d\d) \d\d:\d\d\] ")
"""The time before a message."""


class Emitter(Protocol):
    """AReaL's `EventEmitter`."""

    async def emit_delta(self, text: str) -> None:
        """Take a piece of text."""
        ...

    async def emit_tool_call(self, name: str, args: str) -> None:
        """Take a call of a tool."""
        ...

    async def emit_tool_result(self, name: str, result: str) -> None:
        """Take the result of the newest call."""
        ...


class Request(Protocol):
    """What the agent reads of AReaL's `AgentRequest`."""

    message: str
    history: list[dict[str, Any]]
    metadata: dict[str, Any]


@dataclass
class AgentResponse:
    """The fields of AReaL's `AgentResponse`.

    Attributes:
        summary: the answer as people see it.
        metadata: `tool_calls`, `api_calls` and `status`.
    """

    summary: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Run:
    """A turn that runs.

    Attributes:
        model: answers instead of the home's own; None for that one.
        calls: how many calls of models it made.
        tools: the calls of tools, in order.
        lock: calls of one step may run together, and AReaL takes each with its result.
    """

    emitter: Emitter
    model: Model | None
    calls: int = 0
    tools: list[dict[str, str]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Bot:
    """A bot in a home that is thrown away, kept open by a task of its own.

    Attributes:
        began: how many turns began in it.
        active: how many of them run.
    """

    task: asyncio.Task[None]
    ready: asyncio.Future[Bot]
    ending: asyncio.Event
    began: int = 0
    active: int = 0


class BubbotAgent:
    """An `AgentRunnable` of AReaL. Several turns may run at once."""

    def __init__(self, home: str = "", tools: Literal["reading", "all"] = "reading") -> None:
        """Read the settings of a home.

        Args:
            home: the folder; empty for that in BUBBOT_HOME, and without one for the defaults.
            tools: `reading`: only tools that read what is stored may run, all others are offered and refused. `all`: as the home allows.

        Raises:
            ConfigError: the settings cannot be used.
        """
        if tools not in ("reading", "all"):
            raise ConfigError(f"tools has to be reading or all, and is {show_value(str(tools))}")
        folder = home or read_variables().get("BUBBOT_HOME", "")
        if folder and not Path(folder).is_dir():
            raise ConfigError(f"{folder} is no folder: give the home of a bot, or none")
        loaded = load(home=Path(folder)) if folder else build_settings({})
        self._settings: Settings = loaded.model_copy(update={"store": DEFAULT_STORE})
        self._only_reads = tools == "reading"
        self._runs: dict[str, _Run] = {}
        self._bot: _Bot | None = None
        self._ending = set[asyncio.Task[None]]()

    async def run(self, request: Request, *, emitter: Emitter) -> AgentResponse:
        """Answer a message after a history, and return an `AgentResponse`.

        The model is that in `metadata["areal_inference"]`, with its keys `base_url`, `api_key` and `model`; without it that of the
        home. Messages of the system in the history are left out: the prompt is the bot's own.

        Raises:
            ConfigError: the request has a field of another form.
            ModelError: there is no answer.
        """
        history = read_history(request.history)
        if not request.message.strip():
            raise ConfigError("message is empty: give what the person says")
        model = self._open_model(request.metadata.get("areal_inference"))
        run, chat = _Run(emitter, model), new_id()
        self._runs[f"{STDIN}:{chat}"] = run
        try:
            async with self._use_bot() as bot:
                tape = bot.tape(f"{STDIN}:{chat}")
                await tape.ensure_bootstrap_anchor()
                if history:
                    await tape.append(history)
                said = Inbound(
                    STDIN, new_id(), chat, Sender("0", "owner"), clean(request.message), timestamp(now()),
                    is_one_shot=True, is_plain_text=True,
                )  # fmt: skip
                try:
                    result = await bot.ask(said)
                except (
                    asyncio.CancelledError
                ):  # the rest of the turn would be for nobody, and asked of the model of the home
                    bot.runtime.stop(f"{STDIN}:{chat}")
                    raise
        finally:
            del self._runs[f"{STDIN}:{chat}"]
            if model is not None:
                await model.aclose()
        if result.status not in ("answered", "silent"):
            raise ModelError(result.text or f"the turn is {result.status}")
        return _make_response(result.text, {"tool_calls": run.tools, "api_calls": run.calls, "status": result.status})

    async def close_session(self, session_key: str) -> None:
        """Do nothing: a session leaves nothing behind, its history comes with each turn."""

    async def close_all_sessions(self) -> None:
        """End the bot, and remove its home."""
        if self._bot is not None:
            self._bot.ending.set()
            self._bot = None
        if self._ending:
            await asyncio.wait(self._ending)

    # The bot

    @asynccontextmanager
    async def _use_bot(self) -> AsyncIterator[Bot]:
        """Keep a bot open for a turn; after many turns another one takes its place.

        If tools may write, each turn has its own: memory and jobs that one leaves are not for another, which may be of other people.
        """
        current, most = self._bot, MAX_RUNS if self._only_reads else 1
        if current is None or current.task.done() or current.began >= most:
            if current is not None and not current.active:
                current.ending.set()
            current = self._bot = self._start()
        current.began += 1
        current.active += 1
        try:
            yield await asyncio.shield(current.ready)
        finally:
            current.active -= 1
            if current is not self._bot and not current.active:
                current.ending.set()

    def _start(self) -> _Bot:
        ready, ending = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(self._keep_open(ready, ending))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return _Bot(task, ready, ending)

    async def _keep_open(self, ready: asyncio.Future[Bot], ending: asyncio.Event) -> None:
        factory = FeatureFactory(FEATURE, lambda _kernel, _section: self._feature(_kernel))
        wrappers = PortWrappers(features=(factory,))
        try:
            with TemporaryDirectory(prefix="bubbot-agent-") as folder:
                async with open_app(
                    self._settings,
                    Home(Path(folder, "home")),
                    channel_settings={"write": lambda _: None},
                    wrappers=wrappers,
                ) as bot:
                    ready.set_result(bot)
                    await ending.wait()
        except Exception as error:  # whoever waits for the bot gets it
            if ready.done():
                raise
            ready.set_exception(error)

    def _feature(self, _kernel: Kernel) -> Feature:
        return Feature(name=FEATURE, around=Around(model=(self._around_model,), tool=(self._around_tool,)))

    def _open_model(self, inference: object) -> Model | None:
        if inference is None:
            return None
        if not isinstance(inference, Mapping):
            raise ConfigError("metadata.areal_inference has to be an object with base_url, api_key and model")
        url, key, name = (str(inference.get(part) or "") for part in ("base_url", "api_key", "model"))
        try:
            is_address = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
        except ValueError:
            is_address = False
        if not is_address or not key:
            raise ConfigError(
                f"metadata.areal_inference needs base_url, an address with http or https, and api_key (base_url is {show_value(url)})"
            )
        return open_endpoint_model(self._settings, name or "default", url.rstrip("/"), key, home=Path(os.devnull))

    # Middleware

    async def _around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Let the server of the turn answer, and tell what was said."""
        run = self._runs.get(call.turn.session)
        if run is None:
            return await call_next(call)
        call.model = run.model or call.model
        call.request = _date_by_day(call.request)
        reply = await call_next(call)
        run.calls += 1
        if reply.text and not call.turn.is_subtask:
            await run.emitter.emit_delta(reply.text)
        return reply

    async def _around_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """Tell of a call with its result; refuse those that do not only read.

        Raises:
            ToolFailed: the tool may not run here.
        """
        run = self._runs.get(call.turn.session)
        if run is None or call.call is None or call.turn.is_subtask:
            return await self._run_tool(call, call_next)
        name, arguments = call.call.name, call.call.arguments
        run.tools.append({"name": name, "input": arguments})
        try:
            output = await self._run_tool(call, call_next)
        except Exception as error:
            await _tell(run, name, arguments, str(error))
            raise
        await _tell(run, name, arguments, output if isinstance(output, str) else json.dumps(output, default=str))
        return output

    async def _run_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        if self._only_reads and not only_reads_here(call):
            raise ToolFailed(NOT_RUN)
        return await call_next(call)


async def _tell(run: _Run, name: str, arguments: str, result: str) -> None:
    async with run.lock:
        await run.emitter.emit_tool_call(name, arguments)
        await run.emitter.emit_tool_result(name, result)


def read_history(history: Sequence[Mapping[str, Any]]) -> list[TapeEntry]:
    """Return the entries that a history of chat messages is.

    Raises:
        ConfigError: a message has another form.
    """
    entries: list[TapeEntry] = []
    for place, each in enumerate(history):
        where = f"history[{place}]"
        if not isinstance(each, Mapping):
            raise ConfigError(f"{where} has to be an object with role and content: give chat messages")
        if each.get("role") not in ("system", "user", "assistant", "tool"):
            raise ConfigError(f"{where}.role has to be system, user, assistant or tool: give chat messages")
        role, text = each["role"], _read_text(each.get("content"), where)
        if role == "tool":
            result = {"tool_call_id": _read_id(each.get("tool_call_id"), where), "content": text}
            entries.append(make.tool_result([result]))
        elif role == "assistant" and each.get("tool_calls"):
            entries.append(make.tool_call(_read_calls(each["tool_calls"], where), text=text))
        elif role != "system":
            meta: dict[str, Any] = {"sender": {"id": "0", "name": "owner", "role": "owner"}} if role == "user" else {}
            entries.append(make.message(role, text or " ", **meta))
    return entries


def _read_text(content: object, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        content = "\n".join(
            str(part.get("text", "")) for part in content if isinstance(part, Mapping) and part.get("type") == "text"
        )
    if not isinstance(content, str):
        raise ConfigError(f"{where}.content has to be text, or a list of parts with text")
    return clean(content)


def _read_id(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}.tool_call_id has to be the id of a call")
    return value


def _read_calls(calls: object, where: str) -> list[dict[str, Any]]:
    found = []
    for each in calls if isinstance(calls, list) else [None]:
        function = each.get("function") if isinstance(each, Mapping) else None
        if each is None or not isinstance(function, Mapping):
            raise ConfigError(f"{where}.tool_calls has to be a list of calls of functions")
        named = {"name": str(function.get("name", "")), "arguments": str(function.get("arguments", "") or "{}")}
        found.append({"id": _read_id(each.get("id"), where), "type": "function", "function": named})
    return found


def _date_by_day(request: ModelRequest) -> ModelRequest:
    """Give each message of a person the beginning of its day: a history has no times, and a turn has to begin like the one before."""
    messages = []
    for each in request.messages:
        text = each.get("content")
        if each["role"] == "user" and isinstance(text, str):
            messages.append({**each, "content": _TIME.sub(r"[\1 00:00] ", text)})
        else:
            messages.append({**each})
    return replace(request, messages=tuple(messages), texts=())


def _make_response(summary: str, metadata: dict[str, Any]) -> AgentResponse:
    """Make AReaL's own response if AReaL asks, else one with the same fields."""
    types = sys.modules.get("areal.v2.agent_service.types")
    kind: type[AgentResponse] = getattr(types, "AgentResponse", AgentResponse)
    return kind(summary=summary, metadata=metadata)
