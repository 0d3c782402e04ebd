"""The payloads of the facts on the schedule tape."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NotRequired, TypedDict

from bubbot.tape.references import EntryId, PersonId, SessionId


class ActorData(TypedDict):
    """The author of a change."""

    channel: str
    id: PersonId
    name: str
    roles: Sequence[str]


class PlaceData(TypedDict):
    """A chat."""

    channel: str
    chat: str
    thread: str
    direct: bool
    space: str


class JobPlanned(TypedDict):
    """`schedule/added` and `schedule/changed`"""

    job: str
    session: SessionId
    place: PlaceData
    by: ActorData
    do: str
    text: str
    when: str
    zone: str
    since: str
    name: str
    catch_up: str
    catch_limit: int
    jitter: int
    until: str
    most: int
    budget: int
    urgent: bool
    nested: bool
    to: PlaceData | None
    granted: ActorData | None
    allow: NotRequired[Sequence[str]]


class JobPaused(TypedDict):
    """`schedule/paused`"""

    job: str
    by: ActorData
    reason: str
    detail: NotRequired[str]


class JobResumed(TypedDict):
    """`schedule/resumed`"""

    job: str
    by: ActorData
    since: str


class ClockSetBack(TypedDict):
    """`schedule/clock`"""

    job: str
    covered: str
    since: str


class JobRemoved(TypedDict):
    """`schedule/removed`"""

    job: str
    by: ActorData


class JobOver(TypedDict):
    """`schedule/over`"""

    job: str
    reason: str
    detail: str


class ChatRulesSet(TypedDict):
    """`schedule/chat`"""

    session: SessionId
    zone: str
    quiet: Sequence[int]
    by: ActorData


class FiringRequested(TypedDict):
    """`schedule/asked`"""

    job: str
    mark: str
    by: ActorData


class JobFired(TypedDict):
    """`schedule/fired`"""

    job: str
    mark: str


class FiringsSkipped(TypedDict):
    """`schedule/skipped`"""

    job: str
    first: str
    last: str
    reason: str


class FiringRan(TypedDict):
    """`schedule/ran`"""

    job: str
    mark: str
    turn: str
    status: str


class FiringFailed(TypedDict):
    """`schedule/failed`"""

    job: str
    mark: str
    turn: str
    reason: str
    count: int


class FiringRefused(TypedDict):
    """`schedule/refused`"""

    job: str
    mark: str
    turn: NotRequired[str]
    reason: str
    detail: NotRequired[str]


class JobCheckpointState(TypedDict):
    """A job in a checkpoint."""

    job: str
    facts: Sequence[EntryId]
    covered: str
    status: str
    reason: str
    runs: int
    failures: int
    requests: Sequence[EntryId]


class ChatCheckpointState(TypedDict):
    """The rules of a chat in a checkpoint."""

    session: SessionId
    zone: str
    quiet: Sequence[int] | None


class ScheduleCheckpointState(TypedDict):
    """The state of a checkpoint."""

    jobs: Sequence[JobCheckpointState]
    chats: Sequence[ChatCheckpointState]


class ScheduleCheckpoint(TypedDict):
    """`schedule/checkpoint`"""

    version: int
    after: EntryId
    state: ScheduleCheckpointState


SCHEDULE_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        "schedule/added": JobPlanned,
        "schedule/changed": JobPlanned,
        "schedule/paused": JobPaused,
        "schedule/resumed": JobResumed,
        "schedule/clock": ClockSetBack,
        "schedule/removed": JobRemoved,
        "schedule/over": JobOver,
        "schedule/chat": ChatRulesSet,
        "schedule/asked": FiringRequested,
        "schedule/fired": JobFired,
        "schedule/skipped": FiringsSkipped,
        "schedule/ran": FiringRan,
        "schedule/failed": FiringFailed,
        "schedule/refused": FiringRefused,
        "schedule/checkpoint": ScheduleCheckpoint,
    }
)
