"""Pairs of answers to one request, of which people chose one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bubbot.features.learn.episodes import EpisodeTurn, Subtask
from bubbot.features.learn.formats.chats import Message, merge_assistants, shown_messages
from bubbot.ports.model import ToolSpec


@dataclass(frozen=True, slots=True)
class AnswerPair:
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


def _read_answer(branch: Subtask) -> str:
    return branch.steps[-1].text
