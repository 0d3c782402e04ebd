"""Agent Trajectory Interchange Format, version 1.8: one trajectory for a slice, its sub-tasks as embedded ones.

A trajectory is a line of steps, and a chat is not always shown as one: what the model was shown before the slice, and what it was shown
anew because its window moved, stands there as copied context. The format has no rewards and names images by files: rewards and places
on the tape are in `extra`, and images are lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any

from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn, Subtask
from bubbot.features.learn.formats.chats import ARGUMENTS, describe_tools, read_object, without_images
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, encode_line
from bubbot.features.learn.rewards import Reward
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.targets import SUBTASK_ENDED
from bubbot.runtime.turns import CallRecord
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry, objects_of, text_field, thaw
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
        for step in self._make_steps(turn):
            self.records += 1
            lead = b"" if self.records == 1 else b",\n"
            yield lead + json.dumps({"step_id": self.records, **step}, ensure_ascii=False, allow_nan=False).encode()
        for subtask in turn.subtasks:
            lead = b",\n" if self._subtasks.tell() else b""
            self._subtasks.write(lead + encode_line(self._make_subtask(subtask)).rstrip(b"\n"))

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
        self._subtasks.close()

    def _write_head(self, turn: EpisodeTurn) -> bytes:
        assert self._head is not None
        head = self._head
        agent: dict[str, Any] = {"name": AGENT, "version": head.version}
        if turn.steps:
            agent["model_name"] = turn.steps[-1].record.model
            if turn.steps[0].request.tools:
                agent["tool_definitions"] = describe_tools(turn.steps[0].request.tools)
        trajectory = {
            "schema_version": SCHEMA_VERSION,
            "session_id": head.id,
            "trajectory_id": head.id,
            "agent": agent,
            "extra": {"tape": head.tape, "first": head.first, "last": head.last},
        }
        return encode_line(trajectory).rstrip(b"\n").removesuffix(b"}") + b', "steps":[\n'

    def _make_steps(self, turn: EpisodeTurn) -> Iterator[dict[str, Any]]:
        assert self._head is not None
        orders = _find_orders(turn)
        made = [step for command in turn.commands for step in _make_command(command, turn)]
        inherited = turn.inherited
        for step in turn.steps:
            made += self._context.show(step, inherited)
            made.append(self._make_step(step, turn.record.id, orders))
            if turn.record.agent:
                made[-1]["extra"]["agent"] = turn.record.agent
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

    def _make_step(self, step: EpisodeStep, turn: str, orders: Mapping[str, str] = EMPTY_OBJECT) -> dict[str, Any]:
        """Return the step of a call of a model; `orders` are the sub-tasks of calls, by the ids of the calls."""
        record = step.record
        usage = {
            "prompt_tokens": record.input_tokens,
            "completion_tokens": record.output_tokens,
            "cached_tokens": record.cached_tokens,
        }
        made: dict[str, Any] = {
            "timestamp": record.entry.date,
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
            made["tool_calls"] = [self._make_call(call) for call in step.calls]
            results = [_make_result(call, orders) for call in step.calls if call.result is not None]
            if results:
                made["observation"] = {"results": results}
        return made

    def _make_call(self, call: CallRecord) -> dict[str, Any]:
        arguments = read_object(call.arguments)
        made: dict[str, Any] = {"tool_call_id": call.id, "function_name": call.name}
        if arguments is not None:
            return {**made, "arguments": arguments}
        self.losses[ARGUMENTS] += 1
        return {**made, "arguments": {}, "extra": {"arguments": call.arguments}}

    def _make_subtask(self, subtask: Subtask) -> dict[str, Any]:
        context, steps, inherited = _Context(self.losses), list[dict[str, Any]](), subtask.inherited
        for step in subtask.steps:
            steps += context.show(step, inherited)
            steps.append(self._make_step(step, text_field(step.record.entry.meta, "turn")))
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
        calls = [
            {
                "tool_call_id": text_field(call, "id"),
                "function_name": text_field(call["function"], "name"),
                "arguments": read_object(text_field(call["function"], "arguments")) or {},
            }
            for call in objects_of(message.get("tool_calls"))
        ]
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


ATIF = ExportFormat("atif", "ATIF 1.8", "training", AtifWriter, is_single=True)
