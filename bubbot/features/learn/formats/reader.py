"""What files of exports are read with: typed values with errors that name the place, and turns made of what a file says.

A file holds less than the tape that it is from. What it says nothing of, such as dates, is empty in the turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, convert

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeStep, EpisodeTurn, Subtask
from bubbot.features.learn.rewards import Reward
from bubbot.ports.agents import ORIGIN_PREFIX
from bubbot.ports.model import ModelRequest, ToolSpec, ToolSpecs
from bubbot.runtime.targets import SUBTASK_ENDED
from bubbot.runtime.turns import CallRecord, StepRecord, TurnRecord
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, freeze
from bubbot.tape.events import STEP_EVENT, TURN_END, TURN_START

T = TypeVar("T")


class ReadTurn(NamedTuple):
    """A turn as a file has it, with its reward; None without one."""

    turn: EpisodeTurn
    reward: float | None


ReadsFormat: TypeAlias = Callable[[BinaryIO], Iterator[ReadTurn]]
"""Read the turns of a file in their order. Raise `ConfigError`, which names the place, if it is not of the format."""


class FunctionRow(Struct, forbid_unknown_fields=True):
    """What a call calls; `arguments` are JSON, or an object."""

    name: str
    arguments: str | dict[str, Any]


class CallRow(Struct, forbid_unknown_fields=True):
    """A call of a tool in a message."""

    id: str
    function: FunctionRow
    type: Literal["function"] = "function"


def require_call(role: str, call_id: str | None) -> None:
    """Raise `ValueError`, to which a decoder adds the place, for a result that is of no call."""
    if role == "tool" and call_id is None:
        raise ValueError("Message of a tool without `tool_call_id`")


class MessageRow(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message of a chat; `weight` is 0 if it is not learned."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_calls: list[CallRow] = []
    tool_call_id: str | None = None
    name: str | None = None
    weight: Literal[0, 1] = 1

    def __post_init__(self) -> None:
        require_call(self.role, self.tool_call_id)

    def as_message(self) -> JsonObject:
        """Return the message as requests have it."""
        made: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            made["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": write_arguments(call.function.arguments)}}
                for call in self.tool_calls
            ]  # fmt: skip
        # The names of tools stand beside results in some formats alone, which find them by the calls.
        optional = {"tool_call_id": self.tool_call_id, "name": None if self.role == "tool" else self.name}
        message: JsonObject = freeze({**made, **{key: value for key, value in optional.items() if value is not None}})
        return message


class ToolFunctionRow(Struct, forbid_unknown_fields=True):
    """What a model may call; `parameters` are a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolRow(Struct, forbid_unknown_fields=True):
    """A tool that a model may call."""

    function: ToolFunctionRow
    type: Literal["function"] = "function"


def decode(kind: type[T], data: bytes, place: str) -> T:
    """Decode JSON. Raise `ConfigError`, which names the place, if it is none, or of another form."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError names the place within
        raise ConfigError(f"{place}: {error}: give a file as bubbot export wrote it") from error
    except RecursionError as error:
        raise ConfigError(f"{place}: it is nested too deeply: give a file as bubbot export wrote it") from error


def decode_part(kind: type[T], value: object, place: str) -> T:
    """Take a decoded value for one of a type; see `decode`."""
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}: give a file as bubbot export wrote it") from error


def decode_lines(kind: type[T], file: BinaryIO) -> Iterator[tuple[str, T]]:
    """Decode a file line by line; yield the place of each, and what it is."""
    for number, line in enumerate(file, 1):
        yield f"line {number}", decode(kind, line, f"line {number}")


def read_tools(rows: Iterable[ToolRow]) -> tuple[ToolSpec, ...]:
    """Return the tools that a model could call."""
    functions = [row.function for row in rows]
    return ToolSpecs([ToolSpec(each.name, each.description, each.parameters) for each in functions])


def write_arguments(arguments: str | Mapping[str, Any]) -> str:
    """Return arguments as a model writes them."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def make_request(messages: Sequence[JsonObject], tools: tuple[ToolSpec, ...]) -> ModelRequest:
    """Return the request that shows messages, the first of which may be the system prompt."""
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first["content"], str) and first["content"]:
        return ModelRequest(first["content"], tuple(messages[1:]), tools)
    return ModelRequest("", tuple(messages), tools)


def make_step(
    entry: int,
    request: ModelRequest,
    text: str,
    calls: Iterable[CallRecord] = (),
    *,
    data: JsonObject | None = None,
    date: str = "",
    turn: str = "",
    fork: str = "",
) -> EpisodeStep:
    """Return a call of a model; `data` is what is known of the data of its event."""
    meta = {"turn": turn, **({"fork": fork} if fork else {})}
    event = TapeEntry(Kind.EVENT, {"name": STEP_EVENT, "data": data or {}}, meta, date, id=entry)
    return EpisodeStep(StepRecord(event, event.data, None, tuple(calls)), request, text)


def make_call(call: JsonObject, result: JsonObject | None = None) -> CallRecord:
    """Return a call of a message, with its result."""
    function = call["function"]
    return CallRecord(call["id"], function["name"], function["arguments"], 0, result, 0, ())


def make_turn(
    name: str,
    steps: Sequence[EpisodeStep],
    *,
    number: int = 1,
    subtasks: Sequence[Subtask] = (),
    commands: Sequence[TapeEntry] = (),
    rewards: Sequence[Reward] = (),
    orders: Sequence[tuple[str, str]] = (),
    inherited: int = 0,
    agent: str = "",
    chosen: str = "",
) -> EpisodeTurn:
    """Return a turn.

    Args:
        number: stands for its entry if the file names none.
        orders: the calls that ordered sub-tasks, and the forks of these.
    """
    meta = {"turn": name, **({"origin": f"{ORIGIN_PREFIX}{agent}"} if agent else {})}
    numbers = [*(step.record.id for step in steps), *(command.id for command in commands)] or [number]
    first, last = min(numbers), max(numbers)
    ended = [_event(SUBTASK_ENDED, {"call_id": call, "fork": fork}, meta, last) for call, fork in orders]
    entries = (_event(TURN_START, {}, meta, first), *ended, _event(TURN_END, {}, meta, last))
    record = TurnRecord(entries, tuple(step.record for step in steps))
    return EpisodeTurn(record, tuple(steps), tuple(subtasks), tuple(commands), tuple(rewards), inherited, chosen)


def _event(name: str, data: JsonObject, meta: JsonObject, number: int) -> TapeEntry:
    return TapeEntry(Kind.EVENT, {"name": name, "data": data}, meta, id=number)


def read_chat(
    messages: Sequence[JsonObject],
    shown: int,
    tools: tuple[ToolSpec, ...],
    place: str,
    *,
    first: int = 1,
    results: Mapping[str, JsonObject] = EMPTY_OBJECT,
) -> list[EpisodeStep]:
    """Return the calls of models that wrote the messages of a chat from one on.

    Args:
        shown: how many messages there were before.
        first: stands for the entry of the first call.
        results: those of calls that the chat does not have, or not with all that is known, by the ids of the calls.
    """
    if not shown < len(messages) or messages[-1]["role"] != "assistant":
        raise ConfigError(f"{place}: no answer of an assistant at the end: give a file as bubbot export wrote it")
    steps = list[EpisodeStep]()
    known = {**_find_results(messages[shown:]), **results}
    for at, message in enumerate(messages[shown:], shown):
        if message["role"] != "assistant":
            continue
        if not isinstance(message["content"], str):
            raise ConfigError(f"{place}: the words of an assistant are no text: give a file as bubbot export wrote it")
        calls = [make_call(call, known.get(call["id"])) for call in message.get("tool_calls", ())]
        steps.append(make_step(first + len(steps), make_request(messages[:at], tools), message["content"], calls))
    return steps


def _find_results(messages: Iterable[JsonObject]) -> dict[str, JsonObject]:
    return {message["tool_call_id"]: message for message in messages if message.get("tool_call_id")}


def count_inherited(messages: Sequence[JsonObject]) -> int:
    """Return how many messages of a request there were before what was asked last; all of them if a person asked nothing."""
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at]["role"] == "user"), len(messages))
