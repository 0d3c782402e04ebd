"""Access as the facts on the access tape define it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import singledispatchmethod
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.access.facts import (
    FACTS,
    AccessDeclined,
    AccessRequested,
    AccessRevoked,
    AccountsLinked,
    AccountUnlinked,
    Audit,
    CodeRefused,
    CodeReminded,
    CodeUsed,
    GroupAudience,
    LinkClaimed,
    LinkCode,
    LinkDeclined,
    PairingCode,
    Reading,
    RoleGranted,
)
from bubbot.ports.access import Audience
from bubbot.ports.channel import Role
from bubbot.tape.entry import Kind, TapeEntry, timestamp
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.view import QueryAnswers

T = TypeVar("T")
AccountKey: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there; of an auditor without an account an empty text and a name."""
CodeStatus: TypeAlias = Literal["unused", "used", "void"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


MAX_STORED_CODES_PER_CHANNEL = 300
"""Newest codes of a channel that the state holds: more than two days' worth of what a channel may give out."""
MAX_STORED_REFUSALS_PER_GIVER = 20
"""Newest wrong codes of one giver that the state holds: twice as many as an hour allows."""
CLOCK_SKEW = timedelta(minutes=5)
"""The furthest a fact may be dated ahead of the clock; one further ahead is from a clock that was set back since."""


class PairingState(Struct, array_like=True, frozen=True):
    """A pairing code, and what became of it.

    Attributes:
        code: the code.
        status: `void` if its person was revoked or declined after it was given out.
        is_reminded: the person wrote again and was told until when it works.
    """

    code: Cited[PairingCode]
    status: CodeStatus = "unused"
    is_reminded: bool = False

    def is_open(self, now: datetime) -> bool:
        """Return true if it can be approved."""
        return self.status == "unused" and _is_valid(self.code, now)


class LinkState(Struct, array_like=True, frozen=True):
    """A link code, and what became of it.

    Attributes:
        code: the code.
        status: `void` if a newer one took its place, or if it was declined.
        claimant: the account that typed it; None for none yet.
        claim: the entry that says so.
    """

    code: Cited[LinkCode]
    status: CodeStatus = "unused"
    claimant: AccountKey | None = None
    claim: int = 0

    def is_open(self, now: datetime) -> bool:
        """Return true if it works now."""
        return self.status == "unused" and _is_valid(self.code, now)


def issued_at(code: Cited[PairingCode] | Cited[LinkCode]) -> datetime:
    """Return when a code was given out."""
    return parse_moment(code.date) or _LONG_AGO


def expires_at(code: Cited[PairingCode] | Cited[LinkCode]) -> datetime:
    """Return when a code stops working."""
    return parse_moment(code.fact.expires) or _LONG_AGO


def _is_valid(code: Cited[PairingCode] | Cited[LinkCode], now: datetime) -> bool:
    """Return true before a code expires. One from a clock that was set back since would live too long."""
    return now < expires_at(code) and issued_at(code) - now <= CLOCK_SKEW


class AccessState(FactState):
    """What holds now.

    Attributes:
        grants: the roles that people were given.
        codes: the newest pairing codes.
        refusals: the newest givers of wrong codes, with the times in ISO 8601.
        readings: which chat may read which.
        audits: which auditor may see which tape.
        groups: who may speak in which group.
        requests: the newest fact about each stranger of whom an owner was asked: that, or that an owner declined.
        link_codes: the newest link codes.
        persons: the accounts of each person who has several, in the order they were linked.
        former: pairs of accounts that were linked once.

    Erase all facts of a person together, or a grant would outlive its revocation.
    """

    FACTS: ClassVar = FACTS
    grants: Current[RoleGranted] = msgspec.field(default_factory=Current)
    codes: tuple[PairingState, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    readings: Current[Reading] = msgspec.field(default_factory=Current)
    audits: Current[Audit] = msgspec.field(default_factory=Current)
    groups: Current[GroupAudience] = msgspec.field(default_factory=Current)
    requests: Current[AccessRequested | AccessDeclined] = msgspec.field(default_factory=Current)
    link_codes: tuple[LinkState, ...] = ()
    persons: tuple[tuple[AccountKey, ...], ...] = ()
    former: tuple[tuple[AccountKey, AccountKey], ...] = ()

    def audited_sessions(self, auditor: AccountKey) -> frozenset[str]:
        """Return the sessions whose tapes an auditor may see."""
        return frozenset(each.fact.session for each in self.audits if (each.fact.channel, each.fact.id) == auditor)

    def linked_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts of the person with this one, in the order they were linked; at least the account."""
        return next((person for person in self.persons if account in person), (account,))

    def former_accounts(self, account: AccountKey) -> tuple[AccountKey, ...]:
        """Return the accounts that were linked with this one once."""
        return tuple(pair[0] if pair[1] == account else pair[1] for pair in self.former if account in pair)

    def role(self, channel: str, sender_id: str) -> Role:
        """Return the granted role of a person; `stranger` without a grant."""
        grant = self.grants.find((channel, sender_id))
        return Role(grant.fact.role) if grant else Role.STRANGER

    def drop_before(self, earliest: datetime) -> AccessState:
        """Return the state without codes and refusals from before a moment; grants stay."""
        since = timestamp(earliest)
        requests = Current(each for each in self.requests if (parse_moment(each.date) or _LONG_AGO) >= earliest)
        return replace(
            self,
            codes=tuple(each for each in self.codes if issued_at(each.code) >= earliest),
            refusals=tuple(refusal for refusal in self.refusals if refusal[1] >= since),
            link_codes=tuple(each for each in self.link_codes if issued_at(each.code) >= earliest),
            requests=requests,
        )

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: RoleGranted, cited: Cited[Any], /) -> None:
        # A role unknown to this version is ignored: its writer meant something that cannot be checked here.
        if fact.role in {role.value for role in Role if role is not Role.STRANGER}:
            self.grants.put(cited)
        else:
            self.grants.drop(fact.subject)

    @fold.register
    def _(self, fact: AccessRevoked, _cited: Cited[Any], /) -> None:
        account = fact.channel, fact.id
        self.grants.drop(account)
        self.audits.drop_if(lambda each: (each.fact.channel, each.fact.id) == account)
        self._void_codes(account)  # a code from before the revocation must not undo it
        self._unlink(account)

    @fold.register
    def _(self, fact: GroupAudience, cited: Cited[Any], /) -> None:
        if fact.audience in get_args(Audience):
            self.groups.put(cited)
        else:
            self.groups.drop(fact.subject)

    @fold.register
    def _(self, fact: AccessRequested, cited: Cited[Any], /) -> None:
        self.requests.put(cited)
        of_channel = [each for each in self.requests if each.fact.channel == fact.channel]
        if len(of_channel) > MAX_STORED_CODES_PER_CHANNEL:
            self.requests.drop(of_channel[0].fact.subject)

    @fold.register
    def _(self, fact: AccessDeclined, cited: Cited[Any], /) -> None:
        self.requests.put(cited)
        self._void_codes(fact.subject)

    @fold.register
    def _(self, _fact: Reading, cited: Cited[Any], /) -> None:
        self.readings.apply(cited)

    @fold.register
    def _(self, _fact: Audit, cited: Cited[Any], /) -> None:
        self.audits.apply(cited)

    @fold.register
    def _(self, _fact: PairingCode, cited: Cited[Any], /) -> None:
        codes = (*self.codes, PairingState(cited))
        self.codes = _newest(codes, lambda each: each.code.fact.channel, MAX_STORED_CODES_PER_CHANNEL)

    @fold.register
    def _(self, fact: CodeReminded, _cited: Cited[Any], /) -> None:
        self.codes = tuple(
            replace(each, is_reminded=True) if each.code.id == fact.code else each for each in self.codes
        )

    @fold.register
    def _(self, fact: CodeUsed, _cited: Cited[Any], /) -> None:
        self.codes = tuple(_close(each, "used") if each.code.id == fact.code else each for each in self.codes)

    @fold.register
    def _(self, fact: CodeRefused, cited: Cited[Any], /) -> None:
        refusals = (*self.refusals, (fact.by, timestamp(parse_moment(cited.date) or _LONG_AGO)))
        self.refusals = _newest(refusals, lambda refusal: refusal[0], MAX_STORED_REFUSALS_PER_GIVER)

    @fold.register
    def _(self, fact: LinkCode, cited: Cited[Any], /) -> None:
        self._void_link_codes(fact.account)
        codes = (*self.link_codes, LinkState(cited))
        self.link_codes = _newest(codes, lambda each: each.code.fact.channel, MAX_STORED_CODES_PER_CHANNEL)

    @fold.register
    def _(self, fact: LinkClaimed, cited: Cited[Any], /) -> None:
        claim: dict[str, Any] = {"claimant": (fact.channel, fact.id), "claim": cited.id}
        self.link_codes = tuple(
            replace(each, **claim) if each.code.id == fact.code else each for each in self.link_codes
        )

    @fold.register
    def _(self, fact: LinkDeclined, _cited: Cited[Any], /) -> None:
        self._close_link_code(fact.code, "void")

    @fold.register
    def _(self, fact: AccountsLinked, _cited: Cited[Any], /) -> None:
        self._close_link_code(fact.code, "used")
        accounts = (fact.channel, fact.id), (fact.other_channel, fact.other)
        joined = tuple(dict.fromkeys(each for account in accounts for each in self.linked_accounts(account)))
        others = tuple(person for person in self.persons if not set(person) & set(joined))
        self.persons = (*others, joined)

    @fold.register
    def _(self, fact: AccountUnlinked, _cited: Cited[Any], /) -> None:
        self._unlink((fact.channel, fact.id))

    def _void_codes(self, account: AccountKey) -> None:
        self.codes = tuple(_close(each, "void") if each.code.fact.account == account else each for each in self.codes)

    def _close_link_code(self, number: int, status: CodeStatus) -> None:
        self.link_codes = tuple(
            replace(each, status=status) if each.code.id == number else each for each in self.link_codes
        )

    def _unlink(self, account: AccountKey) -> None:
        """Let an account belong to no other one, and none of its link codes work."""
        others = [other for other in self.linked_accounts(account) if other != account]
        pairs = [(account, other) for other in others if other not in self.former_accounts(account)]
        remaining = [tuple(each for each in person if each != account) for person in self.persons]
        self.persons = tuple(person for person in remaining if len(person) > 1)
        self.former = (*self.former, *pairs)
        self._void_link_codes(account)
        self.link_codes = tuple(_close(each, "void") if each.claimant == account else each for each in self.link_codes)

    def _void_link_codes(self, account: AccountKey) -> None:
        """Void the unused codes that an account was given."""
        self.link_codes = tuple(
            _close(each, "void") if each.code.fact.account == account else each for each in self.link_codes
        )


CodeT = TypeVar("CodeT", PairingState, LinkState)


def _close(code: CodeT, status: CodeStatus) -> CodeT:
    """Return a code with a status that an unused one gets."""
    return replace(code, status=status) if code.status == "unused" else code


def _newest(items: tuple[T, ...], group: Callable[[T], str], count: int) -> tuple[T, ...]:
    """Return the items without the oldest of the last item's group, if that has more than `count`."""
    last = group(items[-1])
    places = [place for place, item in enumerate(items) if group(item) == last]
    return items if len(places) <= count else (*items[: places[0]], *items[places[0] + 1 :])


ACCESS_PROJECTION = project_facts(
    AccessState,
    name="access",
    version=5,
    older_versions=(2, 3, 4),
    tapes="bubbot/access",
    interval=500,
)
"""What holds now. Version 4 had no groups and requests, version 3 no auditors; version 2 had neither these nor the two before
them."""

CHECKPOINTS = {ACCESS_PROJECTION.checkpoint_name: checkpoint_model(AccessState)}


class AccessHistoryView(Struct, frozen=True):
    """The newest `limit` facts of the access tape, newest first, without erased ones."""

    limit: int = 50
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the end of the tape."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), newest=True, limit=self.limit),)

    def fold(self, answers: QueryAnswers) -> tuple[TapeEntry, ...]:
        """Return the entries unchanged; a code shows only a salted digest."""
        return tuple(entry for entry in answers[0] if not entry.erased)
