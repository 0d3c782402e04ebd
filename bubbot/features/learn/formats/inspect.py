"""A log of Inspect (UK AISI), version 2: each turn is a sample, what was shown and written its messages, its rewards scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import Any

from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn
from bubbot.features.learn.formats.chats import (
    ARGUMENTS,
    COMMANDS_ALONE,
    Message,
    name_results,
    read_object,
    split_turn,
)
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, encode_line
from bubbot.tape.entry import objects_of, text_field

LOG_VERSION = 2
TASK = "bubbot"
UNKNOWN_MODEL = "none/none"
SPOOLED_BYTES = 8 * 2**20
"""Bytes of samples that are kept in memory until the end: a reader wants what they add up to before them."""


class InspectWriter:
    """Writes the samples aside, since what they add up to comes first."""

    def __init__(self) -> None:
        self.records = 0
        self.losses = Counter[str]()
        self._head = EpisodeHead("", "", "", 0, 0, "")
        self._samples = SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - it lives as long as the episode
        self._usage: dict[str, Counter[str]] = {}
        self._rewards: list[float] = []
        self._dates: list[str] = []

    def begin(self, head: EpisodeHead) -> Iterable[bytes]:
        """See `FormatWriter`."""
        self._head = head
        return ()

    def write(self, turn: EpisodeTurn) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if not turn.steps and not turn.subtasks:
            self.losses[COMMANDS_ALONE] += 1
        pairs = split_turn(turn, self.losses)
        for number, (step, before, own) in enumerate(pairs, 1):
            self.records += 1
            identifier = turn.record.id if len(pairs) == 1 else f"{turn.record.id}-{number}"
            sample = self._make_sample(identifier, turn, step, [*before, *own], is_last=number == len(pairs))
            self._samples.write((b"" if self.records == 1 else b",\n") + encode_line(sample).rstrip(b"\n"))
            self._dates = [*self._dates[:1], step.record.entry.date]
        return ()

    def end(self) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if self.records:
            yield encode_line(self._make_head()).rstrip(b"\n").removesuffix(b"}") + b', "samples": [\n'
            self._samples.seek(0)
            yield from self._samples  # by lines
            yield b"\n]}\n"
        self._samples.close()

    def _make_head(self) -> dict[str, Any]:
        head, model = self._head, next(iter(self._usage), UNKNOWN_MODEL)
        first, last = self._dates[0], self._dates[-1]
        mean = sum(self._rewards) / len(self._rewards) if self._rewards else 0.0
        metrics = {"mean": {"name": "mean", "value": mean, "params": {}}}
        scores = [{"name": "reward", "scorer": "reward", "params": {}, "metrics": metrics}] if self._rewards else []
        metadata = {"tape": head.tape, "first": head.first, "last": head.last, "version": head.version}
        return {
            "version": LOG_VERSION,
            "status": "success",
            "eval": {
                "eval_id": head.id,
                "run_id": head.id,
                "created": first,
                "task": TASK,
                "task_id": head.id,
                "task_version": 0,
                "dataset": {"name": TASK, "samples": self.records},
                "model": model,
                "config": {"epochs": 1},
                "metadata": metadata,
            },
            "plan": {"name": "plan", "steps": [{"solver": TASK, "params": {}}], "config": {}},
            "results": {"total_samples": self.records, "completed_samples": self.records, "scores": scores},
            "stats": {
                "started_at": first,
                "completed_at": last,
                "model_usage": {name: dict(usage) for name, usage in self._usage.items()},
            },
        }

    def _make_sample(
        self, identifier: str, turn: EpisodeTurn, step: EpisodeStep, messages: list[Message], *, is_last: bool
    ) -> dict[str, Any]:
        made = [self._make_message(each, f"m{place}") for place, each in enumerate(name_results(messages), 1)]
        failed = {call.id for each in turn.steps for call in each.calls if call.is_error}
        for message in made:
            if message.get("tool_call_id") in failed:
                message["error"] = {"type": "unknown", "message": message["content"]}
        made[-1] |= {"source": "generate", "model": step.record.model}
        asked = next((each["content"] for each in reversed(made) if each["role"] == "user"), "")
        sample: dict[str, Any] = {
            "id": identifier,
            "epoch": 1,
            "input": [{"role": "user", "content": asked}] if isinstance(asked, list) else asked,
            "target": "",
            "messages": made,
            "output": {
                "model": step.record.model,
                "choices": [{"message": made[-1], "stop_reason": "tool_calls" if step.calls else "stop"}],
                "usage": self._count(turn if is_last else None, step),
            },
            "metadata": {"turn": turn.record.id, "entry": step.record.id, "inherited": turn.inherited},
        }
        reward = self._head.rewards.get(turn.record.id)
        if is_last and reward is not None:
            self._rewards.append(reward)
            judged = {each.name: each.value for each in turn.rewards}
            sample["scores"] = {"reward": {"value": reward, "metadata": judged}}
        return sample

    def _make_message(self, message: Message, identifier: str) -> Message:
        made: Message = {"id": identifier, "role": message["role"], "content": _make_content(message["content"])}
        if message["role"] == "tool":
            made |= {"tool_call_id": message["tool_call_id"], "function": message["name"]}
        calls = []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            arguments = read_object(function["arguments"])
            made_call = {
                "id": call["id"],
                "function": function["name"],
                "arguments": arguments or {},
                "type": "function",
            }
            if arguments is None:
                self.losses[ARGUMENTS] += 1
                made_call["parse_error"] = f"these are no JSON object: {function['arguments']}"
            calls.append(made_call)
        return {**made, "tool_calls": calls} if calls else made

    def _count(self, turn: EpisodeTurn | None, step: EpisodeStep) -> dict[str, int]:
        """Return what a sample used: all of a turn with its last one."""
        records = [each.record for each in turn.steps] if turn is not None and turn.is_continuous else [step.record]
        used = Counter[str]()
        for record in records:
            name = record.model or UNKNOWN_MODEL
            usage = {
                "input_tokens": record.input_tokens,
                "output_tokens": record.output_tokens,
                "total_tokens": record.input_tokens + record.output_tokens,
            }
            used.update(usage)
            self._usage.setdefault(name, Counter()).update(usage)
        return dict(used)


def _make_content(content: object) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "image", "image": text_field(part["image_url"], "url"), "detail": "auto"}
        if part.get("type") == "image_url"
        else {"type": "text", "text": text_field(part, "text")}
        for part in objects_of(tuple(content))
    ]


INSPECT = ExportFormat("inspect", "Inspect log 2", "evaluation", InspectWriter, is_single=True)
