"""The facts on the access tape: who was let in, by whom, and what each may see."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import EntryId, PersonId, SessionId


class RoleGranted(Fact):
    """A person was given a role, in place of the one before.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        role: the role; one that this version does not know grants nothing here.
        by: who gave it: `terminal` or `channel:id`.
        how: `code` or `command`.
        name: as the platform reported it; empty if unknown.
    """

    EVENTS = ("access/granted",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id", "role", "how", "name")})
    channel: str
    id: PersonId
    role: str
    by: str
    how: str
    name: str = ""

    @property
    def subject(self) -> tuple[str, str]:
        """The account."""
        return self.channel, self.id


class AccessRevoked(Fact):
    """All that a person was granted was taken back, links and open codes, too.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        by: who took it back: `terminal` or `channel:id`.
    """

    EVENTS = ("access/revoked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id")})
    channel: str
    id: PersonId
    by: str


class GroupAudience(Fact):
    """An owner decided who may speak in a group.

    Attributes:
        channel: the name of the channel.
        group: the id of the chat, or of the space it is part of.
        audience: who may speak there; one that this version does not know lets nobody in whom nothing else lets in.
        by: who decided: `terminal` or `channel:id`.
        title: as the platform reported it then; empty if unknown.
    """

    EVENTS = ("access/group",)
    channel: str
    group: str
    audience: str
    by: str
    title: str = ""

    @property
    def subject(self) -> tuple[str, str]:
        """The group."""
        return self.channel, self.group


class AccessRequested(Fact):
    """An owner was asked whether a stranger may speak.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        chat: the direct chat of the stranger.
        name: as the platform reported it; empty if unknown.
    """

    EVENTS = ("access/requested",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id", "name")})
    channel: str
    id: PersonId
    chat: str
    name: str

    @property
    def subject(self) -> tuple[str, str]:
        """The account."""
        return self.channel, self.id


class AccessDeclined(Fact):
    """An owner refused a stranger; the codes of the stranger are void.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        by: who refused: `terminal` or `channel:id`.
    """

    EVENTS = ("access/declined",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id")})
    channel: str
    id: PersonId
    by: str

    @property
    def subject(self) -> tuple[str, str]:
        """The account."""
        return self.channel, self.id


class Reading(Fact):
    """Everybody in one chat may read what was said in another one.

    Attributes:
        source: the session that is read.
        reader: the session that reads it.
        by: who granted it, or took it back: `terminal` or `channel:id`.
    """

    EVENTS = ("access/reading_granted", "access/reading_revoked")
    source: SessionId
    reader: SessionId
    by: str

    @property
    def subject(self) -> tuple[str, str]:
        """The pair that is granted."""
        return self.source, self.reader


class Audit(Fact):
    """An auditor may see the tape of a session. It is no role: it gives no right to speak.

    Attributes:
        channel: of the auditor's account; empty for an auditor who has none.
        id: the numeric id of the account, or the name of an auditor without one.
        session: the session.
        by: who granted it, or took it back: `terminal` or `channel:id`.
    """

    EVENTS = ("access/audit_granted", "access/audit_revoked")
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id")})
    channel: str
    id: PersonId
    session: SessionId
    by: str

    @property
    def subject(self) -> tuple[str, str, str]:
        """The pair that is granted."""
        return self.channel, self.id, self.session

    @property
    def auditor(self) -> str:
        """The auditor as people type it: `telegram:42`, or a name."""
        return ":".join(filter(None, (self.channel, self.id)))


class PairingCode(Fact):
    """A stranger got a pairing code; only a salted digest of the code itself is stored.

    Attributes:
        channel: the name of the channel.
        id: the numeric id of the account.
        chat: the direct chat in which it was given out.
        name: as the platform reported it; empty if unknown.
        salt: of the digest, in hexadecimal digits.
        digest: of the code, in hexadecimal digits.
        expires: when it stops working, ISO 8601 in UTC.
    """

    EVENTS = ("access/code",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id", "name", "expires")})
    channel: str
    id: PersonId
    chat: str
    name: str
    salt: str
    digest: str
    expires: str

    @property
    def account(self) -> tuple[str, str]:
        """The account that it was given to."""
        return self.channel, self.id


class CodeReminded(Fact):
    """A stranger wrote again and was told until when the code works.

    Attributes:
        code: the entry of the code.
    """

    EVENTS = ("access/code_reminded",)
    code: EntryId


class CodeUsed(Fact):
    """A code let its person in.

    Attributes:
        code: the entry of the code.
        by: who approved it: `terminal` or `channel:id`.
    """

    EVENTS = ("access/code_used",)
    code: EntryId
    by: str


class CodeRefused(Fact):
    """Somebody gave a code that does not work.

    Attributes:
        by: who gave it: `terminal` or `channel:id`.
        reason: `unknown`, `used` or `expired`.
    """

    EVENTS = ("access/code_refused",)
    by: str
    reason: str


class LinkCode(Fact):
    """An account got a code with which another account says that it belongs to the same person.

    Attributes:
        channel: the channel of the account.
        id: the numeric id of the account.
        session: its direct chat.
        salt: of the digest, in hexadecimal digits.
        digest: of the code, which is not stored itself, in hexadecimal digits.
        expires: when it stops working, ISO 8601 in UTC.
    """

    EVENTS = ("access/link_code",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id", "expires")})
    channel: str
    id: PersonId
    session: SessionId
    salt: str
    digest: str
    expires: str

    @property
    def account(self) -> tuple[str, str]:
        """The account that it was given to."""
        return self.channel, self.id


class LinkClaimed(Fact):
    """Another account typed the code, and waits for a yes.

    Attributes:
        code: the entry of the code.
        channel: the channel of that account.
        id: its numeric id.
    """

    EVENTS = ("access/link_claimed",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id")})
    code: EntryId
    channel: str
    id: PersonId


class LinkDeclined(Fact):
    """The account of a code refused the one that typed it.

    Attributes:
        code: the entry of the code.
    """

    EVENTS = ("access/link_declined",)
    code: EntryId


class AccountsLinked(Fact):
    """Two accounts belong to one person.

    Attributes:
        code: the entry of the code.
        channel: the channel of the account that got the code.
        id: its numeric id.
        other_channel: the channel of the one that typed it.
        other: its numeric id.
    """

    EVENTS = ("access/linked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType(
        {"id": ("channel", "id"), "other": ("other_channel", "other")}
    )
    code: EntryId
    channel: str
    id: PersonId
    other_channel: str
    other: PersonId


class AccountUnlinked(Fact):
    """An account belongs to no other one any more.

    Attributes:
        channel: the channel of the account.
        id: its numeric id.
    """

    EVENTS = ("access/unlinked",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"id": ("channel", "id")})
    channel: str
    id: PersonId


FACTS: tuple[type[Fact], ...] = (
    RoleGranted,
    AccessRevoked,
    GroupAudience,
    AccessRequested,
    AccessDeclined,
    Reading,
    Audit,
    PairingCode,
    CodeReminded,
    CodeUsed,
    CodeRefused,
    LinkCode,
    LinkClaimed,
    LinkDeclined,
    AccountsLinked,
    AccountUnlinked,
)
