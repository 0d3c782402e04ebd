"""What a replay came to: how recorded requests came out, and how turns went again."""

from __future__ import annotations

from typing import Literal, TypeAlias

from bubbot.records import dataclass

Recorded: TypeAlias = Literal["equal", "different", "gone", "unknown"]
"""How the recorded request of a step came out; see `ReplayedStep`."""


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A model call whose request was built again.

    Attributes:
        entry: its entry.
        recorded: `equal` (the request came out byte for byte), `different`, `gone` (erased), or `unknown` (its strategy is not
            installed in that version).
        differs: the parts that this version would build otherwise: `prompt`, `tools`, `messages`.
        unknown: parts that come out otherwise for reasons that may not be in the code, or that are not compared.
        first: the first difference, as the record has it and as this version has it.
    """

    entry: int
    recorded: Recorded
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    first: str = ""

    @property
    def is_equal(self) -> bool:
        """True if nothing that is known differs."""
        return self.recorded == "equal" and not self.differs


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a turn went.

    Attributes:
        model: the model that answered.
        text: the answer; empty if there was none.
        steps: model calls.
        calls: the names of the tools that were called, in order.
        not_recorded: calls that the record has no answer to.
        input_tokens: tokens read.
        output_tokens: tokens written.
        cost: US dollars; None if unknown.
        error: why there is no answer.
    """

    model: str = ""
    text: str = ""
    steps: int = 0
    calls: tuple[str, ...] = ()
    not_recorded: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """A turn, as it went and as it went again.

    Attributes:
        entry: its first entry.
        turn: its id.
        question: the beginning of the newest message of a person that its model was shown.
        recorded: how it went.
        replayed: how it went again.
    """

    entry: int
    turn: str
    question: str
    recorded: RunSummary
    replayed: RunSummary
