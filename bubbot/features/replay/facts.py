"""The fact of a replay, and the tape that it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId, TapeEntryId

REPLAY_TAPE = "bubbot/replay"
"""The one place that quotes what was replayed: an erasure of the chat finds its replays here by the session that they name."""
Recorded: TypeAlias = Literal["equal", "different", "gone", "unknown"]
"""How the recorded request of a step came out. `equal`: byte for byte. `gone`: erased or not kept. `unknown`: its strategy is not
installed in that version."""
RECORDED_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "equal": "replay_equal",
        "different": "replay_different",
        "gone": "replay_gone",
        "unknown": "replay_unknown",
    }
)
"""The sentences for how the record of a step came out."""


class StepReplay(Struct, frozen=True):
    """A model call whose request was built again.

    Attributes:
        entry: its entry, with its tape.
        recorded: how its recorded request came out.
        differs: the parts that this version would build otherwise: `prompt`, `tools`, `messages`.
        unknown: parts that come out otherwise for reasons that may not be in the code, or that are not compared.
        first: the first difference, as the record has it and as this version has it.
    """

    entry: TapeEntryId
    recorded: Recorded
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    first: str = ""

    @property
    def is_equal(self) -> bool:
        """True if nothing that is known differs."""
        return self.recorded == "equal" and not self.differs


class RunSummary(Struct, frozen=True):
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


class TurnReplay(Struct, frozen=True):
    """A turn, as it went and as it went again.

    Attributes:
        entry: its first entry, with its tape.
        turn: its id.
        question: the beginning of the newest message of a person that its model was shown.
        recorded: how it went.
        replayed: how it went again.
    """

    entry: TapeEntryId
    turn: str
    question: str
    recorded: RunSummary
    replayed: RunSummary


class ReplayEnded(Fact, frozen=True):
    """How a replay ended.

    Attributes:
        id: its id; the trace page shows it under Replays.
        chat: the chat, as it was named.
        session: its session; empty for a tape that has none.
        tape: the name of the tape.
        first: the first entry of the slice.
        last: its last entry.
        model: the model that the turns ran again with; empty if only requests were built again.
        is_equal: all requests came out as recorded, and this version would build the same.
        steps: the model calls, if requests were built again.
        turns: the turns, if they ran again.
        problem: what ended it early.
        left_out: turns that did not run again, since somebody whose words their models were shown has not allowed it.
    """

    EVENTS = ("replay/ended",)
    id: str
    chat: str
    session: SessionId
    tape: str
    first: int
    last: int
    model: str
    is_equal: bool
    steps: tuple[StepReplay, ...]
    turns: tuple[TurnReplay, ...]
    problem: str
    left_out: int = 0

    def quoted_texts(self) -> Iterator[tuple[TapeEntryId, str]]:
        """Yield the question of each turn, by the first entry of the turn."""
        return ((each.entry, each.question) for each in self.turns)


REPLAYED = ReplayEnded.EVENTS[0]
FACTS: tuple[type[Fact], ...] = (ReplayEnded,)
SESSION_EVENTS = (REPLAYED,)
"""Facts about one chat, which an erasure of that chat reaches."""
QUOTES = {REPLAY_TAPE: (REPLAYED,)}
"""Facts that quote a tape, with its name in `tape` and its session in `session`, by the tape on which they stand."""

COPIES = (REPLAYED,)
"""Facts with words of the entries that they cite."""


def replay_key(turn: str) -> str:
    """Return the key of the replay that a turn made."""
    return f"replay:{turn}"
