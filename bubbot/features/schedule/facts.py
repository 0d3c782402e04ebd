"""The facts on the tape of schedules: jobs, the rules of chats, and what each firing led to."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from bubbot.ports.channel import HasChat
from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import PersonId, SessionId

SCHEDULE_TAPE = "bubbot/schedule"
ActionKind: TypeAlias = Literal["prompt", "command", "text"]
CatchUp: TypeAlias = Literal["skip", "once", "all"]


class Actor(Struct, frozen=True):
    """The author of a change: an account on a channel, with the `roles` that the platform reported then."""

    channel: str
    id: PersonId
    name: str = ""
    roles: tuple[str, ...] = ()


BOT = Actor("", "")
"""The author of what the bot itself changes."""


class ChatRef(HasChat, Struct, frozen=True):
    """A chat. `direct` and `space` are those of an inbound there."""

    channel: str
    chat: str
    thread: str = ""
    direct: bool = True
    space: str = ""


class Job(Fact):
    """A job was added: an action, its times, and the person it runs for.

    Attributes:
        id: of the job.
        session: the one in which it runs.
        place: the chat where it was made.
        by: the person for whom it runs.
        do: the kind of action.
        text: the prompt, command or text.
        when: the schedule, as `parse_when` stores it.
        zone: the IANA name of the time zone.
        since: the schedule counts from then on, ISO 8601.
        name: a label; may be empty.
        catch_up: the treatment of missed firings.
        catch_limit: the most missed firings to catch up with.
        jitter: seconds; 0: none.
        until: the end, ISO 8601; empty: none.
        most: the most runs; 0: unlimited.
        budget: seconds of a turn; 0: unlimited.
        urgent: fires in quiet hours too.
        nested: its turns may schedule.
        to: another chat for its messages; None: `place`.
        granted: the owner who allowed `to`.
        allow: what its turns may do besides: tools, or tools with what they act on.
    """

    EVENTS = ("schedule/added",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType(
        {"by.id": ("job", "do", "text", "when", "zone", "since", "until", "name"), "granted.id": ()}
    )
    id: str = field(name="job")
    session: SessionId
    place: ChatRef
    by: Actor
    do: ActionKind
    text: str
    when: str
    zone: str
    since: str
    name: str = ""
    catch_up: CatchUp = "once"
    catch_limit: int = 5
    jitter: int = 0
    until: str = ""
    most: int = 0
    budget: int = 0
    urgent: bool = False
    nested: bool = False
    to: ChatRef | None = None
    granted: Actor | None = None
    allow: tuple[str, ...] = ()

    @property
    def target(self) -> ChatRef:
        """The chat that receives its messages."""
        return self.to or self.place


class JobChanged(Job):
    """A job was changed: all of it as it is from then on."""

    EVENTS = ("schedule/changed",)


class JobPaused(Fact):
    """A job does not fire for the time being; the reason is the name of a sentence, `detail` a value for it."""

    EVENTS = ("schedule/paused",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by.id": ("job",)})
    job: str
    by: Actor
    reason: str
    detail: str | UnsetType = UNSET


class JobResumed(Fact):
    """A paused job goes on; what was due before `since` (ISO 8601) is not caught up with."""

    EVENTS = ("schedule/resumed",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by.id": ("job",)})
    job: str
    by: Actor
    since: str


class JobRemoved(Fact):
    """A job was removed."""

    EVENTS = ("schedule/removed",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by.id": ("job",)})
    job: str
    by: Actor


class JobOver(Fact):
    """A job has come to its end; the reason is the name of a sentence, `detail` a value for it."""

    EVENTS = ("schedule/over",)
    job: str
    reason: str
    detail: str | UnsetType = UNSET


class ChatRules(Fact):
    """The rules of a chat from then on.

    Attributes:
        session: the chat.
        zone: its IANA time zone; empty for that of the deployment.
        quiet: the minutes of the day at which its quiet hours begin and end; empty for no quiet hours.
        by: the author.
    """

    EVENTS = ("schedule/chat",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by.id": ("zone", "quiet")})
    session: SessionId
    zone: str = ""
    quiet: tuple[int, ...] = ()
    by: Actor = BOT

    @property
    def subject(self) -> str:
        """The chat: its newest rules count."""
        return self.session


class ClockSetBack(Fact):
    """A job goes on from `since`: it was done up to `covered`, by a clock that was ahead. Both are ISO 8601."""

    EVENTS = ("schedule/clock",)
    job: str
    covered: str
    since: str


class FiringRequested(Fact):
    """A person requested a firing for now; `mark` names it instead of an instant."""

    EVENTS = ("schedule/asked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by.id": ("job",)})
    job: str
    mark: str
    by: Actor


class JobFired(Fact):
    """A job fired; `mark` is the instant that was due, ISO 8601, or that of the request."""

    EVENTS = ("schedule/fired",)
    job: str
    mark: str


class FiringsSkipped(Fact):
    """What was due from `first` to `last`, both ISO 8601, does not fire any more."""

    EVENTS = ("schedule/skipped",)
    job: str
    first: str
    last: str
    reason: str


class FiringRan(Fact):
    """The turn of a firing ended."""

    EVENTS = ("schedule/ran",)
    job: str
    mark: str
    turn: str
    status: str


class FiringFailed(Fact):
    """The turn of a firing failed.

    Attributes:
        job: the job.
        mark: that of the firing.
        turn: the turn; empty if none could be made.
        reason: what went wrong, in words.
        count: the failures in a row.
    """

    EVENTS = ("schedule/failed",)
    job: str
    mark: str
    turn: str
    reason: str
    count: int


class FiringRefused(Fact, kw_only=True):
    """A firing was not allowed, or could not be brought to its chat. `turn` is left out if it had no turn."""

    EVENTS = ("schedule/refused",)
    job: str
    mark: str
    turn: str | UnsetType = UNSET
    reason: str
    detail: str | UnsetType = UNSET


LASTING_FACTS: tuple[type[Fact], ...] = (
    Job,
    JobChanged,
    JobPaused,
    JobResumed,
    JobRemoved,
    JobOver,
    ChatRules,
    ClockSetBack,
)
"""Facts from people, or once in a job's life."""
FIRING_FACTS: tuple[type[Fact], ...] = (
    FiringRequested,
    JobFired,
    FiringsSkipped,
    FiringRan,
    FiringFailed,
    FiringRefused,
)
"""Facts of each firing."""
FACTS = (*LASTING_FACTS, *FIRING_FACTS)
SESSION_EVENTS = (*Job.EVENTS, *JobChanged.EVENTS)
"""Events that contain texts of people."""
