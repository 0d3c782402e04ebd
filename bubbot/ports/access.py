"""Access for the gateway: the listed people of a channel, and the service that knows the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from bubbot.ports.channel import Role, Sender
from bubbot.tape.entry import TapeEntry


class Allowance(Struct, frozen=True):
    """What may be done without asking: a tool, and what it acts on; an empty `value` stands for the whole tool."""

    tool: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """Parse `web.fetch:example.org`, or `web.search`."""
        tool, _, value = text.partition(":")
        return cls(tool.strip(), value.strip())


MayRead: TypeAlias = Callable[[str, str], bool]
"""Return true if the first session was granted to read the second one."""
Audience: TypeAlias = Literal["everybody", "known", "nobody"]
"""Who may speak in a group: everybody (as a member), people with a role, or nobody."""


class ListedPeople(Struct, frozen=True):
    """The people that the configuration lists for a channel, and the groups in which everybody may speak, by numeric
    id.
    """

    owners: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def role(self, sender_id: str) -> Role:
        """Return the highest role that the lists give; `stranger` if no list has the id: an empty list means nobody."""
        if sender_id in self.owners:
            return Role.OWNER
        if sender_id in self.admins:
            return Role.ADMIN
        return Role.MEMBER if sender_id in self.members else Role.STRANGER

    def listed_roles(self) -> dict[str, Role]:
        return {person: self.role(person) for person in sorted(self.owners | self.admins | self.members, key=int)}


NO_LISTED_PEOPLE = ListedPeople()


def may_read_nothing(_reader: str, _source: str) -> bool:
    """Let no session read another one."""
    return False


def higher_role(first: Role, second: Role) -> Role:
    """Return the higher of two roles."""
    return first if second in (first, Role.STRANGER) or first.at_least(second) else second


class CodeReminder(Struct, frozen=True):
    """A reminder of a pairing code; the code itself is not stored.

    Attributes:
        sent_at: the time when the code was sent.
        expires_at: the end of its validity.
        renewable_at: the time from which the person may get another one.
        tape: the tape of the fact.
        fact: records the reminder.
    """

    sent_at: datetime
    expires_at: datetime
    renewable_at: datetime
    tape: str
    fact: TapeEntry


SendReminder: TypeAlias = Callable[[CodeReminder], Awaitable[None]]
"""Store a reminder and its fact in one transaction."""


class AccessRequest(Struct, frozen=True):
    """A stranger who got a code and waits for an owner's decision.

    Attributes:
        tape: the tape of the fact.
        fact: records the question to an owner.
    """

    tape: str
    fact: TapeEntry


SendRequest: TypeAlias = Callable[[AccessRequest], Awaitable[bool]]
"""Ask an owner and store the fact in the same transaction; false if no owner has a chat yet."""


class KnowsPeople(Protocol):
    """Knows who may speak on a channel, and gives strangers pairing codes."""

    def role(self, channel: str, sender_id: str) -> Role: ...

    def list_people(self, channel: str) -> tuple[str, ...]:
        """Return the numeric ids of people who may speak on a channel."""
        ...

    def audience(self, channel: str, group: str) -> Audience | None:
        """Return the audience that an owner chose for a group; None if undecided."""
        ...

    async def request(self, sender: Sender, channel: str, chat: str, send: SendRequest) -> bool:
        """Ask an owner about a stranger, at most once a day; return false if no owner was asked."""
        ...

    async def create_code(self, sender: Sender, channel: str, chat: str) -> str | None:
        """Return a new pairing code for a stranger, or None if the bot must stay silent."""
        ...

    async def remind(self, sender: Sender, channel: str, send: SendReminder) -> bool:
        """Remind a stranger of an open code, once per code; return false if no reminder is due."""
        ...
