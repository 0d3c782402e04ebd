"""The fact of a replay, and the tape that it stands on."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypedDict

from bubbot.tape.entry import JsonObject
from bubbot.tape.references import SessionId, TapeEntryId

REPLAY_TAPE = "bubbot/replay"
"""The one place that quotes what was replayed: an erasure of the chat finds its replays here by the session that they name."""
REPLAYED = "replay/ended"
RECORDED_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "equal": "replay_equal",
        "different": "replay_different",
        "gone": "replay_gone",
        "unknown": "replay_unknown",
    }
)
"""The sentences for how the record of a step came out."""


class ReplayedStepData(TypedDict):
    """A recorded step: whether its request came out again, and what today's code would show otherwise."""

    entry: TapeEntryId
    recorded: str
    differs: Sequence[str]
    unknown: Sequence[str]
    first: str


class ReplayedTurnData(TypedDict):
    """A turn that ran again."""

    entry: TapeEntryId
    turn: str
    question: str
    recorded: JsonObject
    replayed: JsonObject


class ReplayEnded(TypedDict):
    """`replay/ended`"""

    id: str
    chat: str
    session: SessionId
    tape: str
    first: int
    last: int
    model: str
    is_equal: bool
    steps: Sequence[ReplayedStepData]
    turns: Sequence[ReplayedTurnData]
    problem: str


REPLAY_EVENTS: Mapping[str, type] = MappingProxyType({REPLAYED: ReplayEnded})
"""The payload models of the facts of this feature."""


def replay_key(turn: str) -> str:
    """Return the key of the replay that a turn made."""
    return f"replay:{turn}"
