"""The payloads of the facts about approvals: those of a session's tape, and those of the access tape."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from bubbot.tape.references import EntryId, PersonId, SessionId, TapeEntryId

CHECKED = "approval.checked"
ASKED = "approval.asked"
OPENED = "approval.opened"
DECIDED = "approval.decided"
CONTINUED = "approval.continued"
REJECTED = "approval.rejected"
GRANTED = "approval.granted"
REVOKED = "approval.revoked"


class CallChecked(TypedDict):
    """`approval.checked`"""

    call: str
    tool: str
    digest: str
    verdict: str
    effect: str
    row: str
    columns: Sequence[str]
    role: str
    place: str
    tainted_by: Sequence[TapeEntryId]
    quote: NotRequired[TapeEntryId]
    grant: NotRequired[int]
    approval: NotRequired[str]
    used_before: NotRequired[bool]
    bits: NotRequired[float]
    spent: NotRequired[float]


class StoredTarget(TypedDict):
    """What a standing grant for a call would name."""

    kind: str
    value: str


class StoredCall(TypedDict):
    """A call that waits for a yes."""

    id: str
    tool: str
    name: str
    arguments: str
    digest: str
    details: str
    state: str
    target: StoredTarget | None
    site: NotRequired[str]


class ApprovalAsked(TypedDict):
    """`approval.asked`"""

    id: str
    calls: Sequence[StoredCall]
    verdict: str
    why: Sequence[str]
    tainted_by: Sequence[TapeEntryId]
    scopes: Sequence[str]
    expires: str
    asker: PersonId
    channel: str
    chat: str
    window: EntryId
    cut_off: NotRequired[bool]


class ApprovalOpened(TypedDict):
    """`approval.opened`"""

    id: str
    session: SessionId
    tape: str
    verdict: str
    tools: Sequence[str]
    targets: Sequence[Sequence[str]]
    scopes: Sequence[str]
    expires: str
    channel: str
    chat: str
    thread: str
    direct: bool
    space: str
    asker: PersonId
    asker_name: str
    asker_roles: Sequence[str]
    card: SessionId
    window: TapeEntryId
    digests: Sequence[str]


class ApprovalDecided(TypedDict):
    """`approval.decided`"""

    id: str
    session: SessionId
    verdict: str
    scope: str
    reason: str
    by: PersonId
    by_name: str
    channel: str
    surface: str


class ApprovalContinued(TypedDict):
    """`approval.continued`"""

    id: str


class AnswerRejected(TypedDict):
    """`approval.rejected`"""

    id: str
    reason: str
    by: PersonId
    channel: str
    session: SessionId


class ToolGranted(TypedDict):
    """`approval.granted`"""

    tool: str
    kind: str
    value: str
    session: NotRequired[SessionId]
    window: NotRequired[TapeEntryId]
    approval: str
    by: PersonId
    channel: str


class GrantRevoked(TypedDict):
    """`approval.revoked`"""

    grant: EntryId
    by: PersonId
    channel: str
    because: NotRequired[str]


class ApprovalsCheckpointState(TypedDict):
    """The state of a checkpoint: the facts that it is made of."""

    open: Sequence[EntryId]
    decided: Sequence[Sequence[Any]]
    grants: Sequence[EntryId]


class ApprovalsCheckpoint(TypedDict):
    """`approvals/checkpoint`"""

    version: int
    after: EntryId
    state: ApprovalsCheckpointState


APPROVAL_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        CHECKED: CallChecked,
        ASKED: ApprovalAsked,
        OPENED: ApprovalOpened,
        DECIDED: ApprovalDecided,
        CONTINUED: ApprovalContinued,
        REJECTED: AnswerRejected,
        GRANTED: ToolGranted,
        REVOKED: GrantRevoked,
        "approvals/checkpoint": ApprovalsCheckpoint,
    }
)

SESSION_TRACE_EVENTS = (OPENED, DECIDED, REJECTED, GRANTED)
"""Facts on the access tape about one chat, which an erasure of that chat reaches."""
