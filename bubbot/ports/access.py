"""Access as the gateway uses it: the listed people of a channel, and the service that knows the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol, TypeAlias

from bubbot.ports.channel import Role, Sender
from bubbot.records import dataclass
from bubbot.tape.entry import TapeEntry


@dataclass(frozen=True, slots=True)
class ListedPeople:
    """The people that the configuration lists for a channel, by numeric id."""

    owners: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()

    def role(self, sender_id: str) -> Role:
        """Return the highest role the lists give; `stranger` if the id is in none: an empty list means nobody."""
        if sender_id in self.owners:
            return Role.OWNER
        if sender_id in self.admins:
            return Role.ADMIN
        return Role.MEMBER if sender_id in self.members else Role.STRANGER

    def listed_roles(self) -> dict[str, Role]:
        """Return the listed ids with their roles."""
        return {person: self.role(person) for person in sorted(self.owners | self.admins | self.members, key=int)}


NO_LISTED_PEOPLE = ListedPeople()


def higher_role(first: Role, second: Role) -> Role:
    """Return the one of two roles that includes the other."""
    return first if second in (first, Role.STRANGER) or first.at_least(second) else second


@dataclass(frozen=True, slots=True)
class CodeReminder:
    """A reminder of a pairing code, which is not kept itself.

    Attributes:
        sent_at: when the code was sent.
        expires_at: when it expires.
        renewable_at: when the person may have another one.
        tape: the tape of the fact.
        fact: the fact that the person was reminded.
    """

    sent_at: datetime
    expires_at: datetime
    renewable_at: datetime
    tape: str
    fact: TapeEntry


SendReminder: TypeAlias = Callable[[CodeReminder], Awaitable[None]]
"""Store a reminder and its fact in one transaction."""


class KnowsPeople(Protocol):
    """Knows who may speak on a channel, and gives strangers pairing codes."""

    def role(self, channel: str, sender_id: str) -> Role:
        """Return a person's role."""
        ...

    def list_people(self, channel: str) -> tuple[str, ...]:
        """Return the numeric ids of those who may speak on a channel."""
        ...

    async def create_code(self, sender: Sender, channel: str, chat: str) -> str | None:
        """Return a new pairing code for a stranger, or None if the bot should stay silent."""
        ...

    async def remind(self, sender: Sender, channel: str, send: SendReminder) -> bool:
        """Remind a stranger of an open code, once for each; return false if there is nothing to say."""
        ...
