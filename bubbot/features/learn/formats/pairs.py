"""Pairs of answers to one request, of which people chose one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.learn.episodes import EpisodeTurn, Subtask
from bubbot.features.learn.formats.chats import Message, merge_assistants, shown_messages
from bubbot.features.learn.formats.reader import (
    MessageRow,
    ReadTurn,
    ToolRow,
    count_inherited,
    make_request,
    make_step,
    make_turn,
    read_tools,
)
from bubbot.ports.model import ToolSpec


class AnswerPair(Struct, frozen=True):
    """What was shown, the answer that was chosen, and one that was not.

    Attributes:
        tools: those that could be called.
    """

    prompt: list[Message]
    chosen: str
    rejected: str
    tools: tuple[ToolSpec, ...]


def find_pairs(turn: EpisodeTurn) -> Iterator[AnswerPair]:
    """Yield the chosen branch of a turn beside each other one that answered the same request, and differs."""
    chosen = next((each for each in turn.subtasks if each.fork == turn.chosen), None)
    if chosen is None:
        return
    step = chosen.steps[0]
    text = _read_answer(chosen)
    for other in turn.subtasks:
        rejected = _read_answer(other)
        is_same = other.steps[0].request.messages == step.request.messages
        if other is chosen or not other.is_branch or not is_same or not text or not rejected or text == rejected:
            continue
        prompt = merge_assistants(shown_messages(step, step.request.messages))
        yield AnswerPair(prompt, text, rejected, step.request.tools)


def read_pair(
    number: int,
    prompt: Sequence[MessageRow],
    chosen: Sequence[MessageRow],
    rejected: Sequence[MessageRow],
    *,
    tools: Sequence[ToolRow],
    place: str,
) -> ReadTurn:
    """Return the turn in which somebody chose one of two answers, as a line of a file has it."""
    request = make_request([each.as_message() for each in prompt], read_tools(tools))
    branches = []
    for name, answers in ((f"chosen{number}", chosen), (f"rejected{number}", rejected)):
        if len(answers) != 1 or not isinstance(text := answers[0].content, str):
            raise ConfigError(f"{place}: an answer is not one text: give a file as bubbot export wrote it")
        inherited = count_inherited(request.messages)
        branches.append(Subtask(name, "", (make_step(number, request, text, fork=name),), True, inherited))  # noqa: FBT003
    return ReadTurn(make_turn(f"line{number}", (), number=number, subtasks=branches, chosen=branches[0].fork), None)


def _read_answer(branch: Subtask) -> str:
    return branch.steps[-1].text
