"""The payloads of the facts on the access tape."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

from bubbot.tape.references import EntryId, PersonId, SessionId


class AccessGranted(TypedDict):
    """`access/granted`"""

    channel: str
    id: PersonId
    role: str
    by: str
    how: str
    name: NotRequired[str]


class AccessRevoked(TypedDict):
    """`access/revoked`"""

    channel: str
    id: PersonId
    by: str


class GroupAudienceSet(TypedDict):
    """`access/group`"""

    channel: str
    group: str
    audience: str
    by: str
    title: NotRequired[str]


class AccessRequested(TypedDict):
    """`access/requested`"""

    channel: str
    id: PersonId
    chat: str
    name: str


class AccessDeclined(TypedDict):
    """`access/declined`"""

    channel: str
    id: PersonId
    by: str


class ReadingGranted(TypedDict):
    """`access/reading_granted`"""

    source: SessionId
    reader: SessionId
    by: str


class ReadingRevoked(TypedDict):
    """`access/reading_revoked`"""

    source: SessionId
    reader: SessionId
    by: str


class AuditGranted(TypedDict):
    """`access/audit_granted`. `channel` is empty for an auditor who has no account, and `id` is a name then."""

    channel: str
    id: PersonId
    session: SessionId
    by: str


class AuditRevoked(AuditGranted):
    """`access/audit_revoked`"""


class PairingCodeGiven(TypedDict):
    """`access/code`"""

    channel: str
    id: PersonId
    chat: str
    name: str
    salt: str
    digest: str
    expires: str


class PairingCodeReminded(TypedDict):
    """`access/code_reminded`"""

    code: EntryId


class PairingCodeUsed(TypedDict):
    """`access/code_used`"""

    code: EntryId
    by: str


class PairingCodeRefused(TypedDict):
    """`access/code_refused`"""

    by: str
    reason: str


class LinkCodeGiven(TypedDict):
    """`access/link_code`"""

    channel: str
    id: PersonId
    session: SessionId
    salt: str
    digest: str
    expires: str


class LinkClaimed(TypedDict):
    """`access/link_claimed`"""

    code: EntryId
    channel: str
    id: PersonId


class LinkDeclined(TypedDict):
    """`access/link_declined`"""

    code: EntryId


class AccountsLinked(TypedDict):
    """`access/linked`"""

    code: EntryId
    channel: str
    id: PersonId
    other_channel: str
    other: PersonId


class AccountUnlinked(TypedDict):
    """`access/unlinked`"""

    channel: str
    id: PersonId


class AccessCheckpointState(TypedDict):
    """The state of a checkpoint.

    `codes` and `link_codes` begin with the id of an entry; no path leads to the first of a pair. `persons` holds the
    accounts of each person with several, and `former` pairs of accounts that were linked once.
    """

    grants: Sequence[EntryId]
    codes: Sequence[Sequence[Any]]
    refusals: Sequence[Sequence[str]]
    readings: NotRequired[Sequence[EntryId]]
    audits: NotRequired[Sequence[EntryId]]
    groups: NotRequired[Sequence[EntryId]]
    requests: NotRequired[Sequence[EntryId]]
    link_codes: NotRequired[Sequence[Sequence[Any]]]
    persons: NotRequired[Sequence[Sequence[Sequence[str]]]]
    former: NotRequired[Sequence[Sequence[Sequence[str]]]]


class AccessCheckpoint(TypedDict):
    """`access/checkpoint`"""

    version: int
    after: EntryId
    state: AccessCheckpointState


ACCESS_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        "access/granted": AccessGranted,
        "access/revoked": AccessRevoked,
        "access/group": GroupAudienceSet,
        "access/requested": AccessRequested,
        "access/declined": AccessDeclined,
        "access/reading_granted": ReadingGranted,
        "access/reading_revoked": ReadingRevoked,
        "access/audit_granted": AuditGranted,
        "access/audit_revoked": AuditRevoked,
        "access/code": PairingCodeGiven,
        "access/code_reminded": PairingCodeReminded,
        "access/code_used": PairingCodeUsed,
        "access/code_refused": PairingCodeRefused,
        "access/link_code": LinkCodeGiven,
        "access/link_claimed": LinkClaimed,
        "access/link_declined": LinkDeclined,
        "access/linked": AccountsLinked,
        "access/unlinked": AccountUnlinked,
        "access/checkpoint": AccessCheckpoint,
    }
)
