"""A log of Inspect (UK AISI), version 2: each turn is a sample, what was shown and written its messages, its rewards scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Literal

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn
from bubbot.features.learn.formats.chats import (
    ARGUMENTS,
    COMMANDS_ALONE,
    Message,
    name_results,
    read_object,
    split_turn,
)
from bubbot.features.learn.formats.reader import (
    ReadTurn,
    decode,
    make_step,
    make_turn,
    read_chat,
    require_call,
    write_arguments,
)
from bubbot.features.learn.formats.writer import EpisodeHead, ExportFormat, encode_line
from bubbot.features.learn.rewards import Reward
from bubbot.ports.model import ModelRequest
from bubbot.tape.entry import JsonObject, freeze, objects_of, text_field

LOG_VERSION = 2
TASK = "bubbot"
UNKNOWN_MODEL = "none/none"
UNKNOWN_DATE = "1970-01-01T00:00:00+00:00"
"""The date of what another format had without one."""
NO_OBJECT = "these are no JSON object: "
"""Before arguments as a model wrote them."""
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
            counted = turn.steps if turn.is_continuous else (step,)
            is_last = number == len(pairs)
            sample = self._make_sample(identifier, turn, counted, [*before, *own], shown=len(before), is_last=is_last)
            self._samples.write((b"" if self.records == 1 else b",\n") + encode_line(sample).rstrip(b"\n"))
            self._dates = [*self._dates[:1], step.record.entry.date or UNKNOWN_DATE]
        return ()

    def end(self) -> Iterable[bytes]:
        """See `FormatWriter`."""
        if self.records:
            yield encode_line(self._make_head()).rstrip(b"\n").removesuffix(b"}") + b', "samples": [\n'
            self._samples.seek(0)
            yield from self._samples  # by lines
            yield b"\n]}\n"

    def close(self) -> None:
        """See `FormatWriter`."""
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
        self,
        identifier: str,
        turn: EpisodeTurn,
        counted: Sequence[EpisodeStep],
        messages: list[Message],
        *,
        shown: int,
        is_last: bool,
    ) -> dict[str, Any]:
        """Return a sample of calls of models; `shown` messages were there before them."""
        step = counted[-1]
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
                "usage": self._count(counted),
            },
            "metadata": {
                "turn": turn.record.id,
                "entry": step.record.id,
                "inherited": turn.inherited,
                "shown": shown,
                "steps": [_describe_step(each) for each in counted],
            },
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
                made_call["parse_error"] = f"{NO_OBJECT}{function['arguments']}"
            calls.append(made_call)
        return {**made, "tool_calls": calls} if calls else made

    def _count(self, counted: Sequence[EpisodeStep]) -> dict[str, int]:
        """Return what a sample used."""
        used = Counter[str]()
        for record in (each.record for each in counted):
            name = record.model or UNKNOWN_MODEL
            usage = {
                "input_tokens": record.input_tokens,
                "output_tokens": record.output_tokens,
                "total_tokens": record.input_tokens + record.output_tokens,
            }
            used.update(usage)
            self._usage.setdefault(name, Counter()).update(usage)
        return dict(used)


def _describe_step(step: EpisodeStep) -> dict[str, Any]:
    record = step.record
    used = {"input_tokens": record.input_tokens, "output_tokens": record.output_tokens}
    return {"entry": record.id, "model": record.model, **used, "wrote": not step.wrote_nothing}


def _make_content(content: object) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "image", "image": text_field(part["image_url"], "url"), "detail": "auto"}
        if part.get("type") == "image_url"
        else {"type": "text", "text": text_field(part, "text")}
        for part in objects_of(tuple(content))
    ]


class InspectCall(Struct, forbid_unknown_fields=True):
    """A call of a tool."""

    id: str
    function: str
    arguments: dict[str, Any]
    type: Literal["function"]
    parse_error: str = ""


class InspectError(Struct, forbid_unknown_fields=True):
    """Why a call failed."""

    type: Literal["unknown"]
    message: str


class InspectMessage(Struct, forbid_unknown_fields=True):
    """A message of a sample."""

    id: str
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_call_id: str | None = None
    function: str | None = None
    tool_calls: list[InspectCall] = []
    error: InspectError | None = None
    source: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        require_call(self.role, self.tool_call_id)

    def as_message(self) -> JsonObject:
        """Return the message as requests have it."""
        made: dict[str, Any] = {"role": self.role, "content": _read_content(self.content)}
        if self.tool_calls:
            made["tool_calls"] = [_read_call(call) for call in self.tool_calls]
        if self.tool_call_id is not None:
            made["tool_call_id"] = self.tool_call_id
        message: JsonObject = freeze(made)
        return message


class SampleStep(Struct, forbid_unknown_fields=True):
    """A call of a model; false for `wrote` if it wrote nothing."""

    entry: int
    model: str
    input_tokens: int
    output_tokens: int
    wrote: bool


class SampleMetadata(Struct, forbid_unknown_fields=True):
    """Where a sample is from; `shown` messages stand before what its models wrote."""

    turn: str
    entry: int
    inherited: int
    shown: int
    steps: list[SampleStep]


class InspectScore(Struct, forbid_unknown_fields=True):
    """A reward, and the judgements that it is of."""

    value: float
    metadata: dict[str, float]


class InspectSample(Struct, forbid_unknown_fields=True):
    """A sample of `InspectWriter`; what repeats its messages is not read."""

    id: str
    epoch: int
    input: Any
    target: str
    messages: list[InspectMessage]
    output: dict[str, Any]
    metadata: SampleMetadata
    scores: dict[str, InspectScore] = {}


class InspectStats(Struct):
    """When the first and the last sample were."""

    started_at: str
    completed_at: str


class InspectFile(Struct):
    """What `InspectWriter` wrote; what its samples add up to is not read."""

    version: Literal[2]
    stats: InspectStats
    samples: list[InspectSample]


def read_log(file: BinaryIO) -> Iterator[ReadTurn]:
    """Read what `InspectWriter` wrote; samples of one turn follow each other."""
    document = decode(InspectFile, file.read(), "the file")
    date, later = (
        "" if each == UNKNOWN_DATE else each for each in (document.stats.started_at, document.stats.completed_at)
    )
    for turn, samples in groupby(document.samples, lambda sample: sample.metadata.turn):
        group, same = list[EpisodeStep](), [*samples]
        results = {
            each.tool_call_id: {"content": each.content, "is_error": each.error is not None}
            for sample in same
            for each in sample.messages
            if each.tool_call_id is not None
        }
        for sample in same:
            steps = _read_steps(sample, date, results)
            # Samples of one turn do not go on from each other, not even if what stood between them wrote nothing.
            if group and steps[0].goes_on_from(group[-1]):
                group.append(make_step(steps[0].record.id, ModelRequest("", ()), "", turn=turn))
            group += steps
            date = later
        score, inherited = same[-1].scores.get("reward"), same[0].metadata.inherited
        rewards = [
            Reward(name, None, value, "", "human", "turn", group[-1].record.id)
            for name, value in (score.metadata if score else {}).items()
        ]
        yield ReadTurn(make_turn(turn, group, rewards=rewards, inherited=inherited), score.value if score else None)


def _read_steps(sample: InspectSample, date: str, results: Mapping[str, JsonObject]) -> list[EpisodeStep]:
    """Return the calls of models of a sample, those that wrote nothing included."""
    place, meta = f"sample {sample.id}", sample.metadata
    messages = [each.as_message() for each in sample.messages]
    written = read_chat(messages, max(meta.shown, 0), (), place, results=results)
    wrote = sum(each.wrote for each in meta.steps)
    # What was written without a model, such as a call that had waited for a person, is not among the steps.
    left = iter([*written[:1], *written[1:][len(written) - wrote :]])
    steps, waiting = list[EpisodeStep](), list[SampleStep]()
    for row in meta.steps:
        waiting.append(row)
        if row.wrote and (step := next(left, None)) is not None:
            steps += [_describe(each, step, meta.turn, date) for each in waiting]
            waiting.clear()
    if waiting or not steps or next(left, None) is not None:
        raise ConfigError(f"{place}: its steps are not those of its messages: give a file as bubbot export wrote it")
    return steps


def _describe(row: SampleStep, step: EpisodeStep, turn: str, date: str) -> EpisodeStep:
    """Return a step as it was described, which was shown what another one was."""
    usage = {"input_tokens": row.input_tokens, "output_tokens": row.output_tokens}
    data, text, calls = {"answered": row.model, "usage": usage}, step.text, step.calls
    if not row.wrote:
        text, calls = "", ()
    return make_step(row.entry, step.request, text, calls, data=data, date=date, turn=turn)


def _read_call(call: InspectCall) -> dict[str, Any]:
    is_object = not call.parse_error.startswith(NO_OBJECT)
    arguments = write_arguments(call.arguments) if is_object else call.parse_error.removeprefix(NO_OBJECT)
    return {"id": call.id, "type": "function", "function": {"name": call.function, "arguments": arguments}}


def _read_content(content: str | list[dict[str, Any]]) -> Any:
    if isinstance(content, str):
        return content
    return [
        {"type": "image_url", "image_url": {"url": text_field(part, "image")}}
        if part.get("type") == "image"
        else {"type": "text", "text": text_field(part, "text")}
        for part in content
    ]


INSPECT = ExportFormat("inspect", "Inspect log 2", "evaluation", InspectWriter, read_log, is_single=True)
