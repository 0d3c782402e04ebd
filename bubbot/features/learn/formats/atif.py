"""Agent Trajectory Interchange Format, version 1.8: one trajectory for a slice, its sub-tasks as embedded ones.

A trajectory is a line of steps, and a chat is not always shown as one: what the model was shown before the slice, and what it was shown
anew because its window moved, stands there as copied context. The format has no rewards and names images by files: rewards and places
on the tape are in `extra`, and images are lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Literal

from msgspec import Struct, field

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn, Subtask
from bubbot.features.learn.formats.chats import ARGUMENTS, describe_tools, read_object, without_images
from bubbot.features.learn.formats.reader import (
    ReadTurn,
    ToolRow,
    decode,
    make_call,
    make_step,
    make_turn,
    read_tools,
    write_arguments,
)
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, encode_line
from bubbot.features.learn.rewards import Reward
from bubbot.ports.judgements import AnnotatorKind
from bubbot.ports.model import ModelRequest, ToolCall, ToolSpec
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.targets import SUBTASK_ENDED
from bubbot.runtime.turns import CallRecord, read_call
from bubbot.tape.entry import JsonObject, TapeEntry, freeze, objects_of, text_field, thaw
from bubbot.tape.events import CommandRun

SCHEMA_VERSION = "ATIF-v1.8"
AGENT = "bubbot"
MOVED = {"type": "pruning", "boundary": "replace"}
"""What follows a step with this is all that the model is shown of what was before."""
SPOOLED_BYTES = 8 * 2**20
"""Bytes of sub-tasks that are kept in memory until the end of the trajectory."""


class AtifWriter:
    """Writes the steps of a trajectory as they come; what they add up to comes last."""

    def __init__(self) -> None:
        self.records = 0
        self.losses = Counter[str]()
        self._head: EpisodeHead | None = None
        self._context = _Context(self.losses)
        self._subtasks = SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - it lives as long as the episode
        self._tools: tuple[ToolSpec, ...] = ()
        self._totals = Counter[str]()
        self._cost: float | None = 0.0
        self._is_begun = False

    def begin(self, head: EpisodeHead) -> Iterable[bytes]:
        """See `FormatWriter`."""
        self._head = head
        return ()

    def write(self, turn: EpisodeTurn) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if not self._is_begun:
            self._is_begun = True
            yield self._write_head(turn)
        orders = _find_orders(turn)
        for step in self._make_steps(turn, orders):
            self.records += 1
            lead = b"" if self.records == 1 else b",\n"
            yield lead + json.dumps({"step_id": self.records, **step}, ensure_ascii=False, allow_nan=False).encode()
        for subtask in turn.subtasks:
            lead = b",\n" if self._subtasks.tell() else b""
            self._subtasks.write(lead + encode_line(self._make_subtask(subtask, orders)).rstrip(b"\n"))

    def end(self) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if not self._is_begun:
            return
        totals: dict[str, Any] = {f"total_{name}": number for name, number in self._totals.items()}
        if self._cost is not None:
            totals["total_cost_usd"] = self._cost
        yield b'],"final_metrics":' + encode_line({**totals, "total_steps": self.records}).rstrip(b"\n")
        if self._subtasks.tell():
            yield b',"subagent_trajectories":['
            self._subtasks.seek(0)
            yield from self._subtasks  # by lines
            yield b"]"
        yield b"}\n"

    def close(self) -> None:
        """See `FormatWriter`."""
        self._subtasks.close()

    def _write_head(self, turn: EpisodeTurn) -> bytes:
        assert self._head is not None
        head = self._head
        agent: dict[str, Any] = {"name": AGENT, "version": head.version}
        if turn.steps:
            agent["model_name"] = turn.steps[-1].record.model
            self._tools = turn.steps[0].request.tools
            if self._tools:
                agent["tool_definitions"] = describe_tools(self._tools)
        trajectory = {
            "schema_version": SCHEMA_VERSION,
            "session_id": head.id,
            "trajectory_id": head.id,
            "agent": agent,
            "extra": {"tape": head.tape, "first": head.first, "last": head.last},
        }
        return encode_line(trajectory).rstrip(b"\n").removesuffix(b"}") + b', "steps":[\n'

    def _make_steps(self, turn: EpisodeTurn, orders: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        assert self._head is not None
        made = [step for command in turn.commands for step in _make_command(command, turn)]
        inherited = turn.inherited
        for step in turn.steps:
            made += self._context.show(step, inherited)
            made.append(self._make_step(step, turn.record.id, orders))
            if turn.record.agent:
                made[-1]["extra"]["agent"] = turn.record.agent
            if step.request.tools != self._tools:
                self._tools = step.request.tools
                made[-1]["extra"]["tool_definitions"] = describe_tools(self._tools)
            self._count(step)
            inherited = 0
        ordered = {*orders.values()}
        if others := [each for each in turn.subtasks if each.fork not in ordered]:
            refs = [{"trajectory_id": each.fork, **_describe_choice(each, turn)} for each in others]
            if not made:
                made.append({"source": "system", "message": ""})
            made[-1].setdefault("observation", {"results": []})["results"].append({"subagent_trajectory_ref": refs})
        if made:
            rewards = _describe_rewards(turn.rewards, self._head.rewards.get(turn.record.id))
            made[-1]["extra"] = {**made[-1].get("extra", {}), **rewards}
        yield from made

    def _make_step(self, step: EpisodeStep, turn: str, orders: Mapping[str, str]) -> dict[str, Any]:
        """Return the step of a call of a model; `orders` are the sub-tasks of calls, by the ids of the calls."""
        record = step.record
        usage = {
            "prompt_tokens": record.input_tokens,
            "completion_tokens": record.output_tokens,
            "cached_tokens": record.cached_tokens,
        }
        made: dict[str, Any] = {
            **({"timestamp": record.entry.date} if record.entry.date else {}),  # another format may have had none
            "source": "agent",
            "model_name": record.model,
            "message": step.text,
            "llm_call_count": 1,
            "metrics": usage if record.cost is None else {**usage, "cost_usd": record.cost},
            "extra": {"turn": turn, "entry": record.id},
        }
        if record.error:
            made["extra"]["error"] = record.error
        if step.calls:
            made["tool_calls"] = [_make_call(call) for call in step.calls]
            if odd := sum("extra" in call for call in made["tool_calls"]):
                self.losses[ARGUMENTS] += odd
            results = [_make_result(call, orders) for call in step.calls if call.result is not None]
            if results:
                made["observation"] = {"results": results}
        return made

    def _make_subtask(self, subtask: Subtask, orders: Mapping[str, str]) -> dict[str, Any]:
        context, steps, inherited = _Context(self.losses), list[dict[str, Any]](), subtask.inherited
        for step in subtask.steps:
            steps += context.show(step, inherited)
            steps.append(self._make_step(step, text_field(step.record.entry.meta, "turn"), orders))
            self._count(step)
            inherited = 0
        agent: dict[str, Any] = {"name": subtask.label or AGENT, "version": self._head.version if self._head else ""}
        if tools := subtask.steps[0].request.tools:
            agent["tool_definitions"] = describe_tools(tools)
        return {
            "schema_version": SCHEMA_VERSION,
            "session_id": self._head.id if self._head else None,
            "trajectory_id": subtask.fork,
            "agent": agent,
            "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        }

    def _count(self, step: EpisodeStep) -> None:
        record = step.record
        self._totals["prompt_tokens"] += record.input_tokens
        self._totals["completion_tokens"] += record.output_tokens
        self._totals["cached_tokens"] += record.cached_tokens
        self._cost = None if self._cost is None or record.cost is None else self._cost + record.cost


class _Context:
    """What the steps of a trajectory have shown so far: the messages of the newest request, and what its model wrote."""

    def __init__(self, losses: Counter[str]) -> None:
        self._losses = losses
        self._system: str | None = None
        self._newest: EpisodeStep | None = None

    def show(self, step: EpisodeStep, inherited: int) -> list[dict[str, Any]]:
        """Return the steps for what a request shows and no step before it does.

        Args:
            inherited: how many of its messages were there before what it belongs to; 0 if that has had a step already.
        """
        steps, messages, known = list[dict[str, Any]](), step.request.messages, 0
        added = messages if self._newest is None else _find_added(self._newest, messages)
        if added is None:  # the window has moved: it is shown again
            steps.append({"source": "system", "message": "", "extra": {"context_management": MOVED}})
            inherited = inherited or len(messages)
        else:
            known, messages = len(messages) - len(added), added
        if step.request.system != self._system:
            self._system = step.request.system
            steps.append({"source": "system", "message": self._system})
        elif added is None:
            steps.append({"source": "system", "message": self._system, "is_copied_context": True})
        for place, message in enumerate(messages, known):
            self._add_message(steps, message, is_copied=place < inherited)
        self._newest = step
        return steps

    def _add_message(self, steps: list[dict[str, Any]], message: JsonObject, *, is_copied: bool) -> None:
        """Add the step that a message is; the result of a call belongs to the step of the call."""
        words = without_images(thaw(message.get("content")), self._losses)
        called = text_field(message, "tool_call_id")
        for step in reversed(steps):
            if called and any(call["tool_call_id"] == called for call in step.get("tool_calls", ())):
                result = {"source_call_id": called, "content": words}
                step.setdefault("observation", {"results": []})["results"].append(result)
                return
        source = {"assistant": "agent", "user": "user"}.get(message["role"], "system")
        made: dict[str, Any] = {"source": source, "message": words}
        calls = [_make_call(read_call(call)) for call in objects_of(message.get("tool_calls"))]
        if source == "system":
            made["extra"] = {"role": message["role"]}
        if calls:
            made["tool_calls"] = calls
        if is_copied:
            made["is_copied_context"] = True
        elif source == "agent":  # such as a call that had waited for a person
            made["llm_call_count"] = 0
        steps.append(made)


def _find_added(step: EpisodeStep, messages: tuple[JsonObject, ...]) -> tuple[JsonObject, ...] | None:
    """Return the messages of a request after those that a step was shown, and those that it wrote, with the results of its calls.

    None if it does not go on from there.
    """
    known = step.request.messages
    if messages[: len(known)] != known:
        return None
    added = messages[len(known) :]
    if not step.text and not step.calls:
        return added
    if not added or added[0]["role"] != "assistant":
        return None
    called = [text_field(call, "id") for call in objects_of(added[0].get("tool_calls"))]
    if called != [call.id for call in step.calls] or text_of(added[0].get("content")).strip() != step.text:
        return None
    results = sum(text_field(message, "tool_call_id") in called for message in added[1:] if message["role"] == "tool")
    return added[1 + results :]


def _find_orders(turn: EpisodeTurn) -> Mapping[str, str]:
    """Return the sub-tasks that calls of a turn ordered: their forks, by the ids of the calls."""
    known = {each.fork for each in turn.subtasks}
    ended = [entry.data for entry in turn.record.entries if entry.name == SUBTASK_ENDED]
    found = {text_field(each, "call_id"): text_field(each, "fork") for each in ended}
    return {call: fork for call, fork in found.items() if call and fork in known}


def _describe_choice(subtask: Subtask, turn: EpisodeTurn) -> Mapping[str, Any]:
    return {"extra": {"is_chosen": subtask.fork == turn.chosen}} if subtask.is_branch else {}


def _make_call(call: CallRecord | ToolCall) -> dict[str, Any]:
    made: dict[str, Any] = {"tool_call_id": call.id, "function_name": call.name}
    if (arguments := read_object(call.arguments)) is not None:
        return {**made, "arguments": arguments}
    return {**made, "arguments": {}, "extra": {"arguments": call.arguments}}


def _make_result(call: CallRecord, orders: Mapping[str, str]) -> dict[str, Any]:
    assert call.result is not None
    made: dict[str, Any] = {"source_call_id": call.id, "content": text_of(call.result.get("content"))}
    if call.is_error:
        made["extra"] = {"is_error": True}
    if call.id in orders:
        made["subagent_trajectory_ref"] = [{"trajectory_id": orders[call.id]}]
    return made


def _make_command(command: TapeEntry, turn: EpisodeTurn) -> Iterator[dict[str, Any]]:
    """Yield what somebody typed, and what ran without a model."""
    run = CommandRun.try_of(command)
    if run is None:
        return
    extra = {"turn": turn.record.id, "entry": command.id, "command": run.name, "status": run.status}
    yield {"timestamp": command.date, "source": "user", "message": run.raw}
    yield {"timestamp": command.date, "source": "agent", "message": run.output, "llm_call_count": 0, "extra": extra}


def _describe_rewards(rewards: Sequence[Reward], total: float | None) -> Mapping[str, Any]:
    if total is None:
        return {}
    judged = [
        {"name": each.name, "value": each.value, "score": each.score, "annotator": each.kind, "entry": each.entry}
        for each in rewards
    ]
    return {"reward": total, "rewards": judged}


class CallExtra(Struct, forbid_unknown_fields=True):
    """What a model wrote that is no JSON object."""

    arguments: str


class AtifCall(Struct, forbid_unknown_fields=True):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: CallExtra | None = None


class ReferenceExtra(Struct, forbid_unknown_fields=True):
    """What is known of a branch."""

    is_chosen: bool


class AtifReference(Struct, forbid_unknown_fields=True):
    """A sub-task, by its trajectory."""

    trajectory_id: str
    extra: ReferenceExtra | None = None


class ResultExtra(Struct, forbid_unknown_fields=True):
    """What is known of a result."""

    is_error: bool


class AtifResult(Struct, forbid_unknown_fields=True):
    """The result of a call, or sub-tasks that no call of the step ordered."""

    source_call_id: str | None = None
    content: str = ""
    extra: ResultExtra | None = None
    subagent_trajectory_ref: list[AtifReference] = []


class AtifObservation(Struct, forbid_unknown_fields=True):
    """The results of a step."""

    results: list[AtifResult]


class AtifMetrics(Struct, forbid_unknown_fields=True):
    """What a call of a model used."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None = None


class RewardRow(Struct, forbid_unknown_fields=True):
    """A judgement."""

    name: str
    value: float
    score: float | None
    annotator: AnnotatorKind
    entry: int


class StepExtra(Struct, forbid_unknown_fields=True):
    """What the format has no fields for."""

    turn: str = ""
    entry: int = 0
    error: str = ""
    agent: str = ""
    command: str | None = None
    status: str = ""
    role: Literal["system", "tool"] | None = None
    context_management: dict[str, str] | None = None
    tool_definitions: list[ToolRow] | None = None
    reward: float | None = None
    rewards: list[RewardRow] = []


class AtifStep(Struct, forbid_unknown_fields=True):
    """A step of `AtifWriter`."""

    step_id: int
    source: Literal["system", "user", "agent"]
    message: str
    timestamp: str = ""
    model_name: str = ""
    llm_call_count: int | None = None
    metrics: AtifMetrics | None = None
    tool_calls: list[AtifCall] = []
    observation: AtifObservation | None = None
    is_copied_context: bool = False
    extra: StepExtra = field(default_factory=StepExtra)

    @property
    def results(self) -> Sequence[AtifResult]:
        """Its results."""
        return self.observation.results if self.observation else ()

    @property
    def references(self) -> list[tuple[str, AtifReference]]:
        """The sub-tasks that it names, each with the call that ordered it; empty for none."""
        return [(each.source_call_id or "", ref) for each in self.results for ref in each.subagent_trajectory_ref]

    @property
    def is_typed(self) -> bool:
        """True for a command: messages that a model was shown have no time."""
        return self.source == "user" and bool(self.timestamp)


class AtifAgent(Struct, forbid_unknown_fields=True):
    """Who acts."""

    name: str
    version: str
    model_name: str = ""
    tool_definitions: list[ToolRow] = []


class AtifFile(Struct, forbid_unknown_fields=True):
    """A trajectory of `AtifWriter`; what its steps add up to is not read."""

    schema_version: Literal["ATIF-v1.8"]
    session_id: str
    trajectory_id: str
    agent: AtifAgent
    steps: list[AtifStep]
    extra: dict[str, Any] | None = None
    final_metrics: dict[str, Any] | None = None
    subagent_trajectories: list[AtifFile] = []


def read_trajectory(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `AtifWriter` wrote."""
    document = decode(AtifFile, file.read(), "the file")
    yield from _TrajectoryReader(document).read()


class _Replay:
    """Says what the models of a trajectory were shown, as its steps are read in their order.

    Attributes:
        inherited: how many of the messages were there before what the next call of a model belongs to.
    """

    def __init__(self, tools: tuple[ToolSpec, ...]) -> None:
        self._tools = tools
        self._system, self._messages = "", list[JsonObject]()
        self._inherited: int | None = None

    @property
    def inherited(self) -> int:
        return len(self._messages) if self._inherited is None else self._inherited

    def show(self, step: AtifStep) -> None:
        """Take a step of no model: a prompt, a message, or the mark that all is shown anew."""
        if step.extra.context_management is not None:
            self._system, self._messages = "", []
        elif step.source == "system" and step.extra.role is None:
            self._system = step.message
        else:
            if not step.is_copied_context and self._inherited is None:
                self._inherited = len(self._messages)
            role = step.extra.role or ("user" if step.source == "user" else "assistant")
            self._add(role, step)

    def read(self, step: AtifStep, fork: str = "") -> EpisodeStep:
        """Return a call of a model, and show the next one what it wrote."""
        if step.extra.tool_definitions is not None:
            self._tools = read_tools(step.extra.tool_definitions)
        data: dict[str, Any] = {"answered": step.model_name, "error": step.extra.error}
        if (used := step.metrics) is not None:
            usage = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}
            data |= {"usage": {**usage, "cached_tokens": used.cached_tokens}}
            data |= {} if used.cost_usd is None else {"cost": used.cost_usd}
        results = {each.source_call_id: each for each in step.results if each.source_call_id is not None}
        calls = [make_call(call, _read_result(results.get(call["id"]))) for call in map(_read_call, step.tool_calls)]
        request = ModelRequest(self._system, tuple(self._messages), self._tools)
        extra, self._inherited = step.extra, None
        if step.message or calls:
            self._add("assistant", step)
        return make_step(
            extra.entry, request, step.message, calls, data=data, date=step.timestamp, turn=extra.turn, fork=fork
        )

    def _add(self, role: str, step: AtifStep) -> None:
        made: dict[str, Any] = {"role": role, "content": step.message}
        if step.tool_calls:
            made["tool_calls"] = [*map(_read_call, step.tool_calls)]
        self._messages.append(freeze(made))
        for each in step.results:
            if each.source_call_id is not None:
                result = {"role": "tool", "tool_call_id": each.source_call_id, "content": each.content}
                self._messages.append(freeze(result))


class _TrajectoryReader:
    """Puts the steps of a trajectory together to turns."""

    def __init__(self, document: AtifFile) -> None:
        self._steps = document.steps
        self._replay = _Replay(read_tools(document.agent.tool_definitions))
        self._embedded = {each.trajectory_id: each for each in document.subagent_trajectories}
        self._places = {name: place for place, name in enumerate(self._embedded)}
        self._begin()

    def _begin(self) -> None:
        self._id = self._agent = ""
        self._steps_read, self._commands = list[EpisodeStep](), list[TapeEntry]()
        self._references = list[tuple[str, AtifReference]]()
        self._rewards, self._reward, self._inherited = list[RewardRow](), float("nan"), 0

    def read(self) -> Iterator[ReadTurn]:
        """Yield the turns. A step names its turn if a model or a command made it; what was shown before stands before that."""
        typed = ""
        for step in self._steps:
            is_tail = bool(step.references) and step.source == "system"
            turn = self._find_turn(step) if is_tail else step.extra.turn
            if turn and turn != self._id:
                if self._id:
                    yield self._end()
                self._id = turn
            if step.extra.command is not None:
                self._commands.append(_read_command(step, typed))
            elif step.is_typed:
                typed = step.message
                continue
            elif turn and not is_tail:
                if not self._steps_read:
                    self._inherited, self._agent = self._replay.inherited, step.extra.agent
                self._steps_read.append(self._replay.read(step))
            elif not is_tail:
                self._replay.show(step)
            self._references += step.references
            if step.extra.reward is not None:
                self._reward, self._rewards = step.extra.reward, step.extra.rewards
        if self._id:
            yield self._end()

    def _find_turn(self, step: AtifStep) -> str:
        """Return the turn of a step that only names sub-tasks: the one that these say."""
        inner = self._embedded.get(step.references[0][1].trajectory_id)
        return next((each.extra.turn for each in inner.steps if each.extra.turn), "") if inner is not None else ""

    def _end(self) -> ReadTurn:
        found, orders = dict[str, AtifReference](), list[tuple[str, str]]()
        waiting = self._references
        while waiting:  # what sub-tasks ordered are sub-tasks of the turn, too
            call, ref = waiting.pop(0)
            if call:
                orders.append((call, ref.trajectory_id))
            if ref.trajectory_id in found:
                continue
            if (inner := self._embedded.get(ref.trajectory_id)) is None:
                raise ConfigError(f"turn {self._id} names the trajectory {ref.trajectory_id}, which is not in the file")
            found[ref.trajectory_id] = ref
            waiting += [pair for step in inner.steps for pair in step.references]
        chosen = next((name for name, ref in found.items() if ref.extra and ref.extra.is_chosen), "")
        names = sorted(found, key=self._places.__getitem__)
        subtasks = [_read_subtask(self._embedded[name], is_branch=found[name].extra is not None) for name in names]
        turn = make_turn(
            self._id,
            self._steps_read,
            subtasks=subtasks,
            commands=self._commands,
            rewards=[Reward(each.name, each.score, each.value, "", each.annotator, "turn", each.entry) for each in self._rewards],
            orders=orders,
            inherited=self._inherited,
            agent=self._agent,
            chosen=chosen,
        )  # fmt: skip
        reward = None if isnan(self._reward) else self._reward
        self._begin()
        return ReadTurn(turn, reward)


def _read_subtask(document: AtifFile, *, is_branch: bool) -> Subtask:
    replay, steps, inherited = _Replay(read_tools(document.agent.tool_definitions)), list[EpisodeStep](), 0
    for step in document.steps:
        if not step.extra.turn:
            replay.show(step)
            continue
        if not steps:
            inherited = replay.inherited
        steps.append(replay.read(step, document.trajectory_id))
    if not steps:
        raise ConfigError(f"trajectory {document.trajectory_id}: no step of a model")
    label = "" if document.agent.name == AGENT else document.agent.name
    return Subtask(document.trajectory_id, label, tuple(steps), is_branch, inherited)


def _read_call(call: AtifCall) -> dict[str, Any]:
    arguments = call.extra.arguments if call.extra is not None else write_arguments(call.arguments)
    function = {"name": call.function_name, "arguments": arguments}
    return {"id": call.tool_call_id, "type": "function", "function": function}


def _read_result(result: AtifResult | None) -> JsonObject | None:
    if result is None:
        return None
    return {"content": result.content, "is_error": result.extra is not None and result.extra.is_error}


def _read_command(step: AtifStep, typed: str) -> TapeEntry:
    run = CommandRun(step.extra.command or "", typed, step.extra.status, 0, step.message)
    return replace(run.to_entry(), date=step.timestamp, id=step.extra.entry)


ATIF = ExportFormat("atif", "ATIF 1.8", "training", AtifWriter, read_trajectory, is_single=True)
