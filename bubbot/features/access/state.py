"""Access as the facts on the access tape define it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from bubbot.ports.access import Audience
from bubbot.ports.channel import Role
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, timestamp
from bubbot.tape.projection import Projection
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

T = TypeVar("T")

GRANTED = "access/granted"
REVOKED = "access/revoked"
GROUP = "access/group"
REQUESTED = "access/requested"
DECLINED = "access/declined"
READING_GRANTED = "access/reading_granted"
READING_REVOKED = "access/reading_revoked"
AUDIT_GRANTED = "access/audit_granted"
AUDIT_REVOKED = "access/audit_revoked"
CODE = "access/code"
CODE_REMINDED = "access/code_reminded"
CODE_USED = "access/code_used"
CODE_REFUSED = "access/code_refused"
LINK_CODE = "access/link_code"
LINK_CLAIMED = "access/link_claimed"
LINK_DECLINED = "access/link_declined"
LINKED = "access/linked"
UNLINKED = "access/unlinked"

AccountKey: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there."""

ReadingKey: TypeAlias = tuple[str, str]
"""The session that may be read, and the session that may read it."""

AuditKey: TypeAlias = tuple[AccountKey, str]
"""An auditor, and the session whose tape the auditor may see. The channel of one who has no account is empty."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


MAX_STORED_CODES_PER_CHANNEL = 300
"""Newest codes of a channel that the state holds: more than two days' worth of what a channel may give out."""
MAX_STORED_REFUSALS_PER_GIVER = 20
"""Newest wrong codes of one giver that the state holds: twice as many as an hour allows."""
CLOCK_SKEW = timedelta(minutes=5)
"""The furthest a fact may be dated ahead of the clock; one further ahead is from a clock that was set back since."""


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role that a person was granted.

    `giver`: `terminal` or `channel:id`; `method`: `code` or `command`; `entry`: its id on the tape.
    """

    channel: str
    id: str
    role: Role
    giver: str
    method: str
    name: str = ""
    date: str = ""
    entry: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class GroupAudience:
    """Who may speak in a group, as an owner decided.

    Attributes:
        channel: the name of the channel.
        group: the id of the chat, or of the space it is part of.
        audience: who may speak there.
        giver: `terminal` or `channel:id`.
        title: how the platform called the group then; empty if unknown.
        date: when it was decided.
        entry: its id on the tape.
    """

    channel: str
    group: str
    audience: Audience
    giver: str
    title: str = ""
    date: str = ""
    entry: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadingGrant:
    """The permission of one chat to read what was said in another one.

    Attributes:
        source: the session that may be read.
        reader: the session that may read it.
        giver: `terminal` or `channel:id`.
        date: when it was given.
        entry: its id on the tape.
    """

    source: str
    reader: str
    giver: str
    date: str = ""
    entry: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AuditGrant:
    """The permission of an auditor to see the tape of a session. It is no role: it gives no right to speak.

    Attributes:
        auditor: the auditor.
        session: the session.
        giver: `terminal` or `channel:id`.
        date: when it was given.
        entry: its id on the tape.
    """

    auditor: AccountKey
    session: str
    giver: str
    date: str = ""
    entry: int = field(default=0, compare=False)

    @property
    def auditor_name(self) -> str:
        """The auditor as people type it: `telegram:42`, or a name."""
        return format_auditor(self.auditor)


def format_auditor(auditor: AccountKey) -> str:
    """Write an auditor as people type it."""
    return ":".join(filter(None, auditor))


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A pairing code that was given out; only a salted digest of the code itself is stored.

    `entry` is its id on the tape. `status` is `void` if its person was revoked after it was given out.
    `is_reminded`: the person wrote again and was told until when it works.
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
    is_reminded: bool = False

    def is_open(self, now: datetime) -> bool:
        """Return true if it can be approved. A code from a clock that was set back since would live too long."""
        return self.status == "unused" and now < self.expires and self.issued - now <= CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class LinkCode:
    """A code with which another account says that it belongs to the same person.

    Attributes:
        entry: its id on the tape.
        account: the account that it was given to.
        session: the direct chat of that account.
        salt: of the digest.
        digest: of the code, which is not stored itself.
        issued: when it was given.
        expires: when it stops working.
        status: `void` if a newer one took its place, or if it was declined.
        claimant: the account that typed it; None for none yet.
        claim: the entry that says so.
    """

    entry: int
    account: AccountKey
    session: str
    salt: bytes
    digest: bytes
    issued: datetime
    expires: datetime
    status: Literal["unused", "used", "void"] = "unused"
    claimant: AccountKey | None = None
    claim: int = 0

    def is_open(self, now: datetime) -> bool:
        """Return true if it works now. A code from a clock that was set back since would live too long."""
        return self.status == "unused" and now < self.expires and self.issued - now <= CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class AccessState:
    """The current grants, the newest codes, the newest givers of wrong codes with times, which chat may read which,
    which auditor may see which, and who may speak in which group.

    `requests` holds the newest fact about each stranger of whom an owner was asked: that, or that an owner declined.
    `persons` holds the accounts of each person who has several, in the order they were linked; `former` pairs of
    accounts that were linked once.
    """

    grants: Mapping[AccountKey, RoleGrant] = field(default_factory=lambda: MappingProxyType({}))
    codes: tuple[PairingCode, ...] = ()
    refusals: tuple[tuple[str, datetime], ...] = ()
    readings: Mapping[ReadingKey, ReadingGrant] = field(default_factory=lambda: MappingProxyType({}))
    link_codes: tuple[LinkCode, ...] = ()
    persons: tuple[tuple[AccountKey, ...], ...] = ()
    former: tuple[tuple[AccountKey, AccountKey], ...] = ()
    audits: Mapping[AuditKey, AuditGrant] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[AccountKey, GroupAudience] = field(default_factory=lambda: MappingProxyType({}))
    requests: tuple[TapeEntry, ...] = ()

    def audited_sessions(self, auditor: AccountKey) -> frozenset[str]:
        """Return the sessions whose tapes an auditor may see."""
        return frozenset(session for each, session in self.audits if each == auditor)

    def linked_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts of the person with this one, in the order they were linked; at least the account."""
        return next((person for person in self.persons if account in person), (account,))

    def former_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts that were linked with this one once."""
        return tuple(pair[0] if pair[1] == account else pair[1] for pair in self.former if account in pair)

    def role(self, channel: str, sender_id: str) -> Role:
        """Return the granted role of a person; `stranger` without a grant."""
        grant = self.grants.get((channel, sender_id))
        return grant.role if grant else Role.STRANGER

    def apply(self, entries: Sequence[TapeEntry]) -> AccessState:
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
            link_codes=tuple(code for code in self.link_codes if code.issued >= earliest),
            requests=tuple(entry for entry in self.requests if (parse_moment(entry.date) or _LONG_AGO) >= earliest),
        )


def _apply(state: AccessState, entry: TapeEntry) -> AccessState:
    data: JsonObject = entry.data
    if entry.name == GRANTED:
        return replace(state, grants=_with_grant(state.grants, entry))
    if entry.name == REVOKED:
        account = (data["channel"], data["id"])
        grants = MappingProxyType({key: grant for key, grant in state.grants.items() if key != account})
        # A code from before the revocation must not undo it.
        codes = tuple(_close(code, "void") if (code.channel, code.id) == account else code for code in state.codes)
        audits = MappingProxyType({key: grant for key, grant in state.audits.items() if key[0] != account})
        return replace(_without_link(state, account), grants=grants, codes=codes, audits=audits)
    if entry.name == GROUP:
        return replace(state, groups=_with_group(state.groups, entry))
    if entry.name in (REQUESTED, DECLINED):
        return _with_request(state, entry)
    if entry.name in (AUDIT_GRANTED, AUDIT_REVOKED):
        return replace(state, audits=_with_audit(state.audits, entry))
    if entry.name in (READING_GRANTED, READING_REVOKED):
        return replace(state, readings=_with_reading(state.readings, entry))
    if entry.name in _LINK_FACTS:
        return _apply_link(state, entry, data)
    if entry.name == CODE:
        codes = (*state.codes, _code_from(entry))
        return replace(state, codes=_newest(codes, lambda code: code.channel, MAX_STORED_CODES_PER_CHANNEL))
    if entry.name == CODE_REMINDED:
        codes = tuple(replace(code, is_reminded=True) if code.entry == data["code"] else code for code in state.codes)
        return replace(state, codes=codes)
    if entry.name == CODE_USED:
        codes = tuple(_close(code, "used") if code.entry == data["code"] else code for code in state.codes)
        return replace(state, codes=codes)
    if entry.name == CODE_REFUSED:
        refusals = (*state.refusals, (data["by"], parse_moment(entry.date) or _LONG_AGO))
        return replace(state, refusals=_newest(refusals, lambda item: item[0], MAX_STORED_REFUSALS_PER_GIVER))
    return state


def _with_request(state: AccessState, entry: TapeEntry) -> AccessState:
    """Return the state in which this is the newest fact about a stranger; the codes of one whom an owner declined are void."""
    account = (entry.data["channel"], entry.data["id"])
    others = tuple(each for each in state.requests if (each.data["channel"], each.data["id"]) != account)
    requests = _newest((*others, entry), lambda each: str(each.data["channel"]), MAX_STORED_CODES_PER_CHANNEL)
    codes = state.codes
    if entry.name == DECLINED:
        codes = tuple(_close(code, "void") if (code.channel, code.id) == account else code for code in codes)
    return replace(state, requests=requests, codes=codes)


_LINK_FACTS = (LINK_CODE, LINK_CLAIMED, LINK_DECLINED, LINKED, UNLINKED)


def _apply_link(state: AccessState, entry: TapeEntry, data: JsonObject) -> AccessState:
    if entry.name == LINK_CODE:
        account = (data["channel"], data["id"])
        codes = (*_void_links(state.link_codes, account), _link_code_from(entry))
        return replace(state, link_codes=_newest(codes, lambda code: code.account[0], MAX_STORED_CODES_PER_CHANNEL))
    if entry.name == UNLINKED:
        return _without_link(state, (data["channel"], data["id"]))
    if entry.name == LINK_CLAIMED:
        change: dict[str, Any] = {"claimant": (data["channel"], data["id"]), "claim": entry.id}
    else:
        change = {"status": "used" if entry.name == LINKED else "void"}
    codes = tuple(replace(code, **change) if code.entry == data["code"] else code for code in state.link_codes)
    state = replace(state, link_codes=codes)
    if entry.name != LINKED:
        return state
    first, second = (data["channel"], data["id"]), (data["other_channel"], data["other"])
    joined = tuple(dict.fromkeys([*state.linked_accounts(first), *state.linked_accounts(second)]))
    others = tuple(person for person in state.persons if not set(person) & set(joined))
    return replace(state, persons=(*others, joined))


def _without_link(state: AccessState, account: AccountKey) -> AccessState:
    """Return the state in which an account belongs to no other one, and none of its link codes works."""
    others = [other for other in state.linked_accounts(account) if other != account]
    pairs = [(account, other) for other in others if other not in state.former_accounts(account)]
    remaining = [tuple(each for each in person if each != account) for person in state.persons]
    persons = tuple(person for person in remaining if len(person) > 1)
    codes = tuple(
        replace(code, status="void") if code.status == "unused" and code.claimant == account else code
        for code in _void_links(state.link_codes, account)
    )
    return replace(state, persons=persons, former=(*state.former, *pairs), link_codes=codes)


def _void_links(codes: Sequence[LinkCode], account: AccountKey) -> tuple[LinkCode, ...]:
    """Void the unused codes that an account was given."""
    return tuple(
        replace(code, status="void") if code.account == account and code.status == "unused" else code for code in codes
    )


def _link_code_from(entry: TapeEntry) -> LinkCode:
    data = entry.data
    return LinkCode(
        entry.id,
        (data["channel"], data["id"]),
        data["session"],
        bytes.fromhex(data["salt"]),
        bytes.fromhex(data["digest"]),
        parse_moment(entry.date) or _LONG_AGO,
        parse_moment(data["expires"]) or _LONG_AGO,
    )


def _newest(items: tuple[T, ...], group: Callable[[T], str], count: int) -> tuple[T, ...]:
    """Return the items without the oldest of the last item's group, if that has more than `count`."""
    last = group(items[-1])
    places = [place for place, item in enumerate(items) if group(item) == last]
    return items if len(places) <= count else (*items[: places[0]], *items[places[0] + 1 :])


def _with_grant(grants: Mapping[AccountKey, RoleGrant], entry: TapeEntry) -> Mapping[AccountKey, RoleGrant]:
    data: JsonObject = entry.data
    account = (data["channel"], data["id"])
    updated = {key: grant for key, grant in grants.items() if key != account}
    # A role unknown to this version is ignored: its writer meant something that cannot be checked here.
    if data["role"] in {role.value for role in Role if role is not Role.STRANGER}:
        giver, name = data["by"], data.get("name", "")
        updated[account] = RoleGrant(*account, Role(data["role"]), giver, data["how"], name, entry.date, entry.id)
    return MappingProxyType(updated)


def _with_group(groups: Mapping[AccountKey, GroupAudience], entry: TapeEntry) -> Mapping[AccountKey, GroupAudience]:
    data: JsonObject = entry.data
    key = (data["channel"], data["group"])
    updated = {each: group for each, group in groups.items() if each != key}
    # An audience unknown to this version lets nobody in whom nothing else lets in.
    if data["audience"] in get_args(Audience):
        title = data.get("title", "")
        updated[key] = GroupAudience(*key, data["audience"], data["by"], title, entry.date, entry.id)
    return MappingProxyType(updated)


def _with_reading(readings: Mapping[ReadingKey, ReadingGrant], entry: TapeEntry) -> Mapping[ReadingKey, ReadingGrant]:
    data: JsonObject = entry.data
    key = (data["source"], data["reader"])
    updated = {each: grant for each, grant in readings.items() if each != key}
    if entry.name == READING_GRANTED:
        updated[key] = ReadingGrant(*key, data["by"], entry.date, entry.id)
    return MappingProxyType(updated)


def _with_audit(audits: Mapping[AuditKey, AuditGrant], entry: TapeEntry) -> Mapping[AuditKey, AuditGrant]:
    data: JsonObject = entry.data
    key = ((data["channel"], data["id"]), data["session"])
    updated = {each: grant for each, grant in audits.items() if each != key}
    if entry.name == AUDIT_GRANTED:
        updated[key] = AuditGrant(*key, data["by"], entry.date, entry.id)
    return MappingProxyType(updated)


def _code_from(entry: TapeEntry) -> PairingCode:
    data = entry.data
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


def _encode_state(state: AccessState) -> JsonObject:
    """Build what a checkpoint stores: names and codes are in the entries that it cites."""
    return {
        "grants": [grant.entry for grant in state.grants.values()],
        "codes": [[code.entry, code.status, code.is_reminded] for code in state.codes],
        "refusals": [[giver, timestamp(at)] for giver, at in state.refusals],
        "readings": [grant.entry for grant in state.readings.values()],
        "audits": [grant.entry for grant in state.audits.values()],
        "groups": [group.entry for group in state.groups.values()],
        "requests": [entry.id for entry in state.requests],
        "link_codes": [[code.entry, code.status, code.claimant, code.claim] for code in state.link_codes],
        "persons": state.persons,
        "former": state.former,
    }


def _decode_state(state: JsonObject, cited: Sequence[TapeEntry]) -> AccessState:
    entries = {entry.id: entry for entry in cited}
    grants: Mapping[AccountKey, RoleGrant] = MappingProxyType({})
    for entry_id in state["grants"]:
        grants = _with_grant(grants, entries[entry_id])
    codes = tuple(
        replace(_code_from(entries[entry_id]), status=status, is_reminded=reminded)
        for entry_id, status, reminded in state["codes"]
    )
    refusals = tuple((str(giver), datetime.fromisoformat(at)) for giver, at in state["refusals"])
    readings: Mapping[ReadingKey, ReadingGrant] = MappingProxyType({})
    for entry_id in state.get("readings", ()):
        readings = _with_reading(readings, entries[entry_id])
    audits: Mapping[AuditKey, AuditGrant] = MappingProxyType({})
    for entry_id in state.get("audits", ()):
        audits = _with_audit(audits, entries[entry_id])
    groups: Mapping[AccountKey, GroupAudience] = MappingProxyType({})
    for entry_id in state.get("groups", ()):
        groups = _with_group(groups, entries[entry_id])
    links = tuple(
        replace(_link_code_from(entries[entry_id]), status=status, claimant=_account(claimant), claim=claim)
        for entry_id, status, claimant, claim in state.get("link_codes", ())
    )
    persons = tuple(tuple((channel, number) for channel, number in person) for person in state.get("persons", ()))
    former = tuple((_account(one), _account(other)) for one, other in state.get("former", ()))
    return AccessState(
        grants,
        codes,
        refusals,
        readings,
        links,
        persons,
        cast("tuple[tuple[AccountKey, AccountKey], ...]", former),
        audits,
        groups,
        tuple(entries[entry_id] for entry_id in state.get("requests", ())),
    )


def _account(value: Sequence[str] | None) -> AccountKey | None:
    return None if value is None else (value[0], value[1])


ACCESS_PROJECTION = Projection[AccessState](
    name="access",
    version=5,
    older_versions=(2, 3, 4),
    tapes="bubbot/access",
    events=(
        GRANTED,
        REVOKED,
        GROUP,
        REQUESTED,
        DECLINED,
        READING_GRANTED,
        READING_REVOKED,
        AUDIT_GRANTED,
        AUDIT_REVOKED,
        CODE,
        CODE_REMINDED,
        CODE_USED,
        CODE_REFUSED,
        *_LINK_FACTS,
    ),
    initial=AccessState,
    apply=AccessState.apply,
    encode=_encode_state,
    decode=_decode_state,
    cited_ids=lambda state: [
        *state["grants"],
        *(entry_id for entry_id, *_ in (*state["codes"], *state.get("link_codes", ()))),
        *state.get("readings", ()),
        *state.get("audits", ()),
        *state.get("groups", ()),
        *state.get("requests", ()),
    ],
    interval=500,
    size=lambda state: (
        len(state.grants)
        + len(state.codes)
        + len(state.readings)
        + len(state.audits)
        + len(state.groups)
        + len(state.requests)
        + len(state.link_codes)
        + len(state.persons)
    ),
)
"""Grants, pairing codes, wrong codes, linked accounts, groups, which chat may read which, and which auditor may see which.

Version 4 had no groups and requests, version 3 no auditors; version 2 had neither these nor the two before them."""


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
