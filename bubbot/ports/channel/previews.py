"""What a running turn shows while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn has begun to work. `inbound`: the id of its first inbound; `message`: the platform's id of that."""

    inbound: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class TextStreamed:
    """A piece of the model's text, as people may see it; the pieces of a step add up to its text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs now; `arguments` are shortened."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool is done. `size`: characters of its result; `spilled`: it was too long and is kept aside whole."""

    name: str
    ok: bool
    size: int
    spilled: bool


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A model call is over; `calls` tool calls come next, or, where there are none, the end of the turn."""

    step: int
    calls: int


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """A turn is recorded: `answered`, `silent`, `failed` or `stopped`. What it says comes by `send`, right after."""

    status: str


Preview: TypeAlias = TurnStarted | TextStreamed | ToolStarted | ToolFinished | StepFinished | TurnFinished
"""What a running turn shows while it works. Never a fact: `send` delivers the final text whatever became of these."""
