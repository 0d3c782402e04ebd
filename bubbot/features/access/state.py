"""Access as the facts on the access tape define it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Literal, TypeAlias

from bubbot.ports.channel import Role
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

GRANTED = "access/granted"
REVOKED = "access/revoked"
CODE = "access/code"
CODE_USED = "access/code_used"
CODE_REFUSED = "access/code_refused"

AccountKey: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


CLOCK_SKEW = timedelta(minutes=5)
"""The furthest a fact may be dated ahead of the clock; one further ahead is from a clock that was set back since."""


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role that a person was granted. `giver`: `terminal` or `channel:id`; `method`: `code` or `command`."""

    channel: str
    id: str
    role: Role
    giver: str
    method: str
    name: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A pairing code that was given out; only a salted digest of the code itself is stored.

    `entry` is its id on the tape. `status` is `void` if its person was revoked after it was given out.
    """

    entry: int
    channel: str
    id: str
    chat: str
    name: str
    salt: bytes
    digest: bytes
    issued: datetime
    expires: datetime
    status: Literal["unused", "used", "void"] = "unused"

    def is_open(self, now: datetime) -> bool:
        """Return true if it can be approved. A code from a clock that was set back since would live too long."""
        return self.status == "unused" and now < self.expires and self.issued - now <= CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class AccessState:
    """The current grants, the recent codes, and the recent givers of wrong codes, with times."""

    grants: Mapping[AccountKey, RoleGrant] = field(default_factory=lambda: MappingProxyType({}))
    codes: tuple[PairingCode, ...] = ()
    refusals: tuple[tuple[str, datetime], ...] = ()

    def role(self, channel: str, sender_id: str) -> Role:
        """Return the granted role of a person; `stranger` without a grant."""
        grant = self.grants.get((channel, sender_id))
        return grant.role if grant else Role.STRANGER

    def apply(self, entries: Iterable[TapeEntry]) -> AccessState:
        """Return the state with these facts added, in the order of the tape.

        Erased ones are ignored: erase all facts of a person together, or a grant would outlive its revocation.
        """
        state = self
        for entry in entries:
            if not entry.erased:
                state = _apply(state, entry)
        return state

    def drop_before(self, earliest: datetime) -> AccessState:
        """Drop codes and refusals from before a moment; keep grants."""
        return replace(
            self,
            codes=tuple(code for code in self.codes if code.issued >= earliest),
            refusals=tuple(refusal for refusal in self.refusals if refusal[1] >= earliest),
        )


def _apply(state: AccessState, entry: TapeEntry) -> AccessState:
    data: JsonObject = entry.payload["data"]
    if entry.name == GRANTED:
        return replace(state, grants=_with_grant(state.grants, data, entry.date))
    if entry.name == REVOKED:
        account = (data["channel"], data["id"])
        grants = MappingProxyType({key: grant for key, grant in state.grants.items() if key != account})
        # A code from before the revocation must not undo it.
        codes = tuple(_close(code, "void") if (code.channel, code.id) == account else code for code in state.codes)
        return replace(state, grants=grants, codes=codes)
    if entry.name == CODE:
        return replace(state, codes=(*state.codes, _code_from(entry)))
    if entry.name == CODE_USED:
        codes = tuple(_close(code, "used") if code.entry == data["code"] else code for code in state.codes)
        return replace(state, codes=codes)
    if entry.name == CODE_REFUSED:
        return replace(state, refusals=(*state.refusals, (data["by"], parse_moment(entry.date) or _LONG_AGO)))
    return state


def _with_grant(grants: Mapping[AccountKey, RoleGrant], data: JsonObject, date: str) -> Mapping[AccountKey, RoleGrant]:
    account = (data["channel"], data["id"])
    updated = {key: grant for key, grant in grants.items() if key != account}
    # A role unknown to this version is ignored: its writer meant something that cannot be checked here.
    if data["role"] in {role.value for role in Role if role is not Role.STRANGER}:
        updated[account] = RoleGrant(*account, Role(data["role"]), data["by"], data["how"], data.get("name", ""), date)
    return MappingProxyType(updated)


def _code_from(entry: TapeEntry) -> PairingCode:
    data = entry.payload["data"]
    return PairingCode(
        entry.id,
        data["channel"],
        data["id"],
        data["chat"],
        data["name"],
        bytes.fromhex(data["salt"]),
        bytes.fromhex(data["digest"]),
        parse_moment(entry.date) or _LONG_AGO,
        parse_moment(data["expires"]) or _LONG_AGO,
    )


def _close(code: PairingCode, status: Literal["used", "void"]) -> PairingCode:
    return replace(code, status=status) if code.status == "unused" else code


@dataclass(frozen=True, slots=True)
class AccessView:
    """The state of access, from every grant and revocation, and from codes and refusals since `since`."""

    since: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read grants and revocations, which are few; then facts that strangers can cause, by date."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(GRANTED, REVOKED)),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(CODE, CODE_USED, CODE_REFUSED), since=self.since),
        )

    def fold(self, answers: QueryAnswers) -> AccessState:
        """Apply both in the order of the tape."""
        return AccessState().apply(sorted(chain(*answers), key=lambda entry: entry.id))


@dataclass(frozen=True, slots=True)
class AccessHistoryView:
    """The newest `limit` facts of the access tape, newest first, without erased ones."""

    limit: int = 50
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the end of the tape."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), newest=True, limit=self.limit),)

    def fold(self, answers: QueryAnswers) -> tuple[TapeEntry, ...]:
        """Return the entries unchanged; a code shows only a salted digest."""
        return tuple(entry for entry in answers[0] if not entry.erased)
