"""Scopes of memory: whose memory there is, and the one rule that decides which of it a turn may see and change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

from bubbot.features.memory.settings import Scope
from bubbot.identity import is_id
from bubbot.ports.channel import Role

if TYPE_CHECKING:
    from bubbot.ports.turn import Turn

ZONE_TAPES = "bubbot/memory/"
"""The prefix of the tapes with the memory of people and of the workspace."""
WORKSPACE_TAPE = f"{ZONE_TAPES}workspace"
USER_TAPES = f"{ZONE_TAPES}user/"

Account: TypeAlias = tuple[str, str]
"""A channel's name and the numeric id of a person there."""
Denial: TypeAlias = Literal["off", "group", "elsewhere", "person", "role"]
"""Why a turn has no access: switched off; people read along; the answer goes to another chat; nobody or several people
speak; the role is not enough."""


_ALL = frozenset(Scope)
_SHARED = (Scope.USER, Scope.WORKSPACE)


class FindsAccounts(Protocol):
    """Knows which accounts belong to one person.

    Attributes:
        links: stands for all links; another object once accounts were linked or unlinked.
    """

    @property
    def links(self) -> object: ...

    async def linked_accounts(self, account: Account) -> tuple[Account, ...]:
        """Return the accounts of the person with this one, itself included; what is written goes to the first."""
        ...

    async def former_accounts(self, account: Account) -> tuple[Account, ...]:
        """Return accounts that were linked with this one and are not any more."""
        ...


class SeparateAccounts:
    """Knows of no account that belongs to the same person as another one. See `FindsAccounts`."""

    links = None

    async def linked_accounts(self, account: Account) -> tuple[Account, ...]:
        """Return the account itself."""
        return (account,)

    async def former_accounts(self, account: Account) -> tuple[Account, ...]:  # noqa: ARG002 - the protocol's signature
        """Return nothing."""
        return ()


class ChatFacts(Struct, frozen=True):
    """What the rule rests on.

    Attributes:
        account: the person whom the turn answers; None if nobody or several people speak.
        is_direct: the chat has this person only.
        replies_elsewhere: the answer goes to another chat.
        is_typed: the person wrote what the turn answers.
        role: the person's role.
    """

    account: Account | None
    is_direct: bool
    replies_elsewhere: bool
    is_typed: bool
    role: Role


class ZoneAccess(Struct, frozen=True):
    """What a turn may see and change of the memory.

    Attributes:
        reads: the scopes it is shown.
        writes: the scopes it may change.
        unread: why it is not shown the others.
        unwritten: why it may not change the others.
    """

    reads: frozenset[Scope]
    writes: frozenset[Scope]
    unread: Mapping[Scope, Denial]
    unwritten: Mapping[Scope, Denial]


def choose_zones(facts: ChatFacts, enabled: Collection[Scope]) -> ZoneAccess:
    """Decide which memory a turn may see and change: nothing else in bubbot decides it.

    A person's own memory appears only where nobody but this person reads the answer. The workspace's is for everybody
    who may speak, and only admins change it, where nobody else's words can reach the model that calls the tool.
    """
    unread: dict[Scope, Denial] = {}
    if not facts.is_direct:
        unread[Scope.USER] = "group"
    elif facts.replies_elsewhere:
        unread[Scope.USER] = "elsewhere"
    elif facts.account is None:
        unread[Scope.USER] = "person"
    if facts.role is Role.STRANGER:
        unread |= {Scope.USER: "role", Scope.WORKSPACE: "role"}
    unread |= {scope: "off" for scope in _SHARED if scope not in enabled}
    unwritten = dict(unread)
    if Scope.WORKSPACE not in unwritten:
        if not facts.role.at_least(Role.ADMIN):
            unwritten[Scope.WORKSPACE] = "role"
        elif not facts.is_direct or facts.account is None:
            unwritten[Scope.WORKSPACE] = "group"
        elif not facts.is_typed:
            unwritten[Scope.WORKSPACE] = "person"
    return ZoneAccess(_ALL - unread.keys(), _ALL - unwritten.keys(), unread, unwritten)


def read_facts(turn: Turn) -> ChatFacts:
    """Read what the rule rests on from a turn."""
    is_one, is_direct, is_typed = is_id(turn.sender.id), bool(turn.inbounds), True
    for accepted in turn.inbounds:
        inbound = accepted.inbound
        is_one = is_one and inbound.sender.id == turn.sender.id
        is_direct = is_direct and inbound.direct
        is_typed = is_typed and inbound.is_typed
    account = (turn.session.partition(":")[0], turn.sender.id) if is_one else None
    return ChatFacts(account, is_direct, turn.replies_elsewhere, is_typed, turn.role)


@cache
def user_tape(account: Account) -> str:
    """Name the tape with the memory of an account's person: an opaque id, without the name or the number."""
    return USER_TAPES + sha256(":".join(account).encode()).hexdigest()[:32]
