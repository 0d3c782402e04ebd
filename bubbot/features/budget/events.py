"""The payloads of the facts on the budget tape."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from bubbot.tape.entry import JsonObject
from bubbot.tape.references import EntryId, SessionId


class CallReserved(TypedDict):
    """`budget/reserved`. `user` is `channel:id`."""

    call: str
    session: SessionId
    turn: str
    user: str
    job: NotRequired[str]
    model: str
    day: str
    input_tokens: int
    output_tokens: int
    nano: int | None
    epoch: NotRequired[int]


class CallSettled(CallReserved):
    """`budget/settled`"""

    cached_tokens: int
    status: str
    reserved: NotRequired[EntryId]
    asked: NotRequired[str]
    requested: NotRequired[str]
    error: NotRequired[JsonObject]
    estimated: NotRequired[bool]


class BudgetWarned(TypedDict):
    """`budget/warned`"""

    scope: str
    name: str
    period: str
    measure: str
    percent: int


class ModelUnpriced(TypedDict):
    """`budget/unpriced`"""

    model: str


class ModelOutageReported(TypedDict):
    """`budget/outage`"""

    model: str
    since: str


class OpenReservation(CallReserved):
    """A reservation in a checkpoint."""

    id: EntryId


class BudgetCheckpointState(TypedDict, total=False):
    """The state of a checkpoint."""

    day: str
    open: Sequence[OpenReservation]
    spent: Sequence[Sequence[Any]]
    warned: Sequence[Sequence[str]]
    unpriced: Sequence[str]
    reported: Sequence[Sequence[str]]
    failing: Sequence[Sequence[Any]]
    answered: Sequence[Sequence[str]]


class BudgetCheckpoint(TypedDict):
    """`budget/checkpoint`"""

    version: int
    after: EntryId
    state: BudgetCheckpointState


class RatesCheckpointState(TypedDict):
    """The state of a checkpoint: turn, time, session, person and job of each turn."""

    turns: Sequence[Sequence[str]]


class RatesCheckpoint(TypedDict):
    """`rates/checkpoint`"""

    version: int
    after: EntryId
    state: RatesCheckpointState


BUDGET_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        "budget/reserved": CallReserved,
        "budget/settled": CallSettled,
        "budget/warned": BudgetWarned,
        "budget/unpriced": ModelUnpriced,
        "budget/outage": ModelOutageReported,
        "budget/checkpoint": BudgetCheckpoint,
        "rates/checkpoint": RatesCheckpoint,
    }
)
