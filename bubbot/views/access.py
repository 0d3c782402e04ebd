"""Who may speak, by the facts on the access tape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Literal, TypeAlias

from bubbot.ports.channel import Role
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import TapeQuery, moment
from bubbot.tape.view import Found

GRANTED = "access/granted"
REVOKED = "access/revoked"
CODE = "access/code"
CODE_USED = "access/code_used"
CODE_REFUSED = "access/code_refused"

Who: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


CLOCK_SKEW = timedelta(minutes=5)
"""How far ahead of the clock a fact may be dated; one further ahead is from a clock that was set back since."""


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role that a person was given. `by`: `terminal` or `channel:id`; `how`: `code` or `command`."""

    channel: str
    id: str
    role: Role
    by: str
    how: str
    name: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A pairing code that was given to somebody; of the code itself there is a salted digest alone.

    `entry` is its id on the tape. `status` is `void` where its person was revoked after it was given.
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
        """Return true if it can be approved. One from a clock that was set back since would live too long."""
        return self.status == "unused" and now < self.expires and self.issued - now <= CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class AccessState:
    """The standing grants, the codes of late, and who tried wrong codes of late, when."""

    grants: Mapping[Who, RoleGrant] = field(default_factory=lambda: MappingProxyType({}))
    codes: tuple[PairingCode, ...] = ()
    refused: tuple[tuple[str, datetime], ...] = ()

    def role(self, channel: str, sender_id: str) -> Role:
        """What the facts say of a person; `stranger` where nothing does."""
        grant = self.grants.get((channel, sender_id))
        return grant.role if grant else Role.STRANGER

    def after(self, entries: Iterable[TapeEntry]) -> AccessState:
        """The state with these facts added, in the order of the tape.

        Erased ones say nothing: erase what a person has here all at once, or a grant would outlive its revocation.
        """
        state = self
        for entry in entries:
            if not entry.erased:
                state = _after(state, entry)
        return state

    def since(self, earliest: datetime) -> AccessState:
        """Without codes and refusals from before a moment; grants stay."""
        return replace(
            self,
            codes=tuple(code for code in self.codes if code.issued >= earliest),
            refused=tuple(one for one in self.refused if one[1] >= earliest),
        )


def _after(state: AccessState, entry: TapeEntry) -> AccessState:
    data: JsonObject = entry.payload["data"]
    if entry.name == GRANTED:
        return replace(state, grants=_with(state.grants, data, entry.date))
    if entry.name == REVOKED:
        who = (data["channel"], data["id"])
        left = MappingProxyType({key: grant for key, grant in state.grants.items() if key != who})
        # A code from before the revocation must not undo it.
        codes = tuple(_closed(code, "void") if (code.channel, code.id) == who else code for code in state.codes)
        return replace(state, grants=left, codes=codes)
    if entry.name == CODE:
        return replace(state, codes=(*state.codes, _code(entry)))
    if entry.name == CODE_USED:
        codes = tuple(_closed(code, "used") if code.entry == data["code"] else code for code in state.codes)
        return replace(state, codes=codes)
    if entry.name == CODE_REFUSED:
        return replace(state, refused=(*state.refused, (data["by"], moment(entry.date) or _LONG_AGO)))
    return state


def _with(grants: Mapping[Who, RoleGrant], data: JsonObject, date: str) -> Mapping[Who, RoleGrant]:
    who = (data["channel"], data["id"])
    changed = {key: grant for key, grant in grants.items() if key != who}
    # A role that this version does not know is none: whoever wrote it meant something that cannot be checked here.
    if data["role"] in {role.value for role in Role if role is not Role.STRANGER}:
        changed[who] = RoleGrant(*who, Role(data["role"]), data["by"], data["how"], data.get("name", ""), date)
    return MappingProxyType(changed)


def _code(entry: TapeEntry) -> PairingCode:
    data = entry.payload["data"]
    return PairingCode(
        entry.id,
        data["channel"],
        data["id"],
        data["chat"],
        data["name"],
        bytes.fromhex(data["salt"]),
        bytes.fromhex(data["digest"]),
        moment(entry.date) or _LONG_AGO,
        moment(data["expires"]) or _LONG_AGO,
    )


def _closed(code: PairingCode, status: Literal["used", "void"]) -> PairingCode:
    return replace(code, status=status) if code.status == "unused" else code


@dataclass(frozen=True, slots=True)
class AccessView:
    """The state of access. Every grant and revocation is read; codes and refusals from `since` on alone."""

    since: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Grants and revocations, which are few; then what strangers can cause, by its date."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(GRANTED, REVOKED)),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(CODE, CODE_USED, CODE_REFUSED), since=self.since),
        )

    def fold(self, found: Found) -> AccessState:
        """Both in the order of the tape."""
        return AccessState().after(sorted(chain(*found), key=lambda entry: entry.id))


@dataclass(frozen=True, slots=True)
class AccessHistoryView:
    """The newest `limit` facts of the access tape, newest first; erased ones are left out."""

    limit: int = 50
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The end of the tape."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), newest=True, limit=self.limit),)

    def fold(self, found: Found) -> tuple[TapeEntry, ...]:
        """The entries as they are; a code shows a salted digest alone."""
        return tuple(entry for entry in found[0] if not entry.erased)
