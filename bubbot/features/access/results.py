"""What the commands of access return: the contract of `--json`, and the values of the sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from bubbot.formatting import clean, clean_label
from bubbot.log import printable
from bubbot.ports.access import Audience
from bubbot.ports.channel import Role
from bubbot.shell_command import IsoTime

if TYPE_CHECKING:
    from bubbot.command import Caller

MAX_NAME_CHARS = 64
"""Characters of a stranger's name that are shown."""
RoleName = Literal["member", "admin", "owner"]


def format_name(name: str) -> str:
    """Return a name in brackets, after a space; people choose their names themselves."""
    return f" ({clean_label(clean(name), MAX_NAME_CHARS)})" if name.strip() else ""


def parse_role(role: str) -> RoleName:
    """Return a role that was granted; the state holds no other."""
    return cast("RoleName", str(role))


def parse_audience(audience: str) -> Audience:
    """Return an audience that was decided; the state holds no other."""
    return cast("Audience", audience)


class AccessRow(Struct, frozen=True):
    """A person who may speak.

    Attributes:
        channel: the name of the channel.
        id: of the account.
        role: what the person may do.
        name: as the platform reported it; empty if unknown.
        source: `config` for a person that the configuration lists, `grant` for one who was let in.
        by: who let the person in; empty for one of the configuration.
        method: how the person was let in; empty for one of the configuration.
        granted: when that was; None for one of the configuration.
        is_configured: there is such a channel in the configuration.
    """

    channel: str
    id: str
    role: RoleName
    name: str = ""
    source: Literal["config", "grant"] = "config"
    by: str = ""
    method: str = ""
    granted: IsoTime | None = None
    is_configured: bool = True

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return self.source if self.is_configured else "unused"

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        return {"role": caller.texts.role(self.role), "day": (self.granted or "")[:10], "key": f"{self.role}s"}


class GroupRow(Struct, frozen=True):
    """A group or server about which an owner decided, or where the configuration lets everybody speak.

    Attributes:
        channel: the name of the channel.
        group: the id of the group or server.
        audience: who may speak there.
        title: as the platform reported it; empty if unknown.
        source: `config` for one of the configuration, `decision` for one about which an owner decided.
        by: who decided; empty for one of the configuration.
        decided: when that was; None for one of the configuration.
    """

    channel: str
    group: str
    audience: Audience
    title: str = ""
    source: Literal["config", "decision"] = "config"
    by: str = ""
    decided: IsoTime | None = None

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return self.source

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        audience = caller.texts.say(f"group_audience_{self.audience}")
        return {"audience": audience, "day": (self.decided or "")[:10]}


class GroupChange(Struct, frozen=True):
    """Who may speak in a group, after a change.

    Attributes:
        channel: the name of the channel.
        group: the id of the group or server.
        audience: who may speak there.
        changed: false if it was so before.
    """

    channel: str
    group: str
    audience: Audience
    changed: bool = True

    def describe(self, caller: Caller) -> str:
        """Say who may speak there now."""
        text = caller.texts.say(f"GroupChange.{self.audience}", group=self.group)
        return text if self.changed else caller.texts.say("nothing_changed", text=text)


class AccessList(Struct, frozen=True):
    """Who may speak.

    Attributes:
        people: one of the configuration and of the tape each; a person may be in both.
        groups: the groups of the configuration and those about which an owner decided.
    """

    people: tuple[AccessRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()

    @property
    def variant(self) -> str:
        """The variant of its sentence, which is said of an empty list."""
        return "none"

    @property
    def rows(self) -> tuple[AccessRow | GroupRow, ...]:
        """The rows of its table."""
        return (*self.people, *self.groups)


class PendingCode(Struct, frozen=True):
    """A pairing code that still works. The code itself is not kept.

    Attributes:
        channel: the name of the channel.
        id: the account that got it.
        name: as the platform reported it; empty if unknown.
        issued: when it was given out.
        expires: when it stops working.
    """

    channel: str
    id: str
    name: str
    issued: IsoTime
    expires: IsoTime

    def values(self, _caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        return {"until": self.expires[11:16]}


class ReadingRow(Struct, frozen=True):
    """A chat that may read what was said in another one.

    Attributes:
        source: the session that is read.
        reader: the session that reads it.
        by: who granted it.
        granted: when that was.
    """

    source: str
    reader: str
    by: str
    granted: IsoTime


class ReadingChange(Struct, frozen=True):
    """A permission to read after a change.

    Attributes:
        source: the session that is read.
        reader: the session that reads it.
        granted: it may read now.
        changed: false if it was so before.
    """

    source: str
    reader: str
    granted: bool
    changed: bool = True

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return _variant(granted=self.granted, changed=self.changed)


class AuditRow(Struct, frozen=True):
    """An auditor who may see the tape of a chat.

    Attributes:
        auditor: an account such as `telegram:42`, or a name.
        session: the session whose tape the auditor may see.
        by: who granted it.
        granted: when that was.
    """

    auditor: str
    session: str
    by: str
    granted: IsoTime


class AuditChange(Struct, frozen=True):
    """What an auditor may see, after a change.

    Attributes:
        auditor: an account such as `telegram:42`, or a name.
        session: the session.
        granted: the auditor may see its tape now.
        changed: false if it was so before.
    """

    auditor: str
    session: str
    granted: bool
    changed: bool = True

    @property
    def variant(self) -> str:
        """The variant of its sentence."""
        return _variant(granted=self.granted, changed=self.changed)


class AccessRight(Struct, frozen=True):
    """What a person may do in a chat.

    Attributes:
        person: an account such as `telegram:42`, or the name of an auditor.
        name: as the platform reported it; empty if unknown.
        role: on the channel of the account.
        session: the chat.
        read: what was said there is shown to the person: there, or in a chat that may read it.
        write: the bot would answer a message of the person there.
        memory: the person may see what the bot remembers of the chat.
        audit: the person may see the tape on the trace page.
        through: the chats of the person that may read this one.
    """

    person: str
    name: str
    role: str
    session: str
    read: bool
    write: bool
    memory: bool
    audit: bool
    through: tuple[str, ...] = ()

    @property
    def rights(self) -> tuple[str, ...]:
        """The names of what is allowed."""
        return tuple(name for name in ("read", "write", "memory", "audit") if getattr(self, name))

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentence."""
        say = caller.texts.say
        rights = say("list_comma").join(say(f"AccessRight.{name}") for name in self.rights)
        if self.through:
            rights += say("AccessRight.through", chats=say("list_comma").join(self.through))
        return {"role": caller.texts.role(self.role), "name": format_name(self.name), "rights": rights}


def _variant(*, granted: bool, changed: bool) -> str:
    return "revoked" if not granted else "granted" if changed else "unchanged"


class AccessEvent(Struct, frozen=True):
    """A grant, a revocation or a code.

    Attributes:
        entry: the id of the fact on the tape of access.
        date: its time.
        event: the name of the fact, as in the tape format, without `access/`.
        data: its data, as in the tape format.
    """

    entry: int
    date: IsoTime
    event: str
    data: Mapping[str, Any]

    def describe(self, _caller: Caller) -> str:
        """Write it in one line, as a log does."""
        data = self.data
        parts = [str(data[key]) for key in _TOLD if key in data]
        if "by" in data:
            parts.append(f"by {data['by']}")
        if "how" in data:
            parts.append(f"({data['how']})")
        text = " ".join([*parts, data.get("name", data.get("title", ""))])
        return printable(f"#{self.entry} {self.date[:19]} {self.event.replace('_', ' ')}: {text}".rstrip())


_TOLD = ("channel", "id", "group", "role", "audience", "code", "reason", "source", "reader", "session", "purpose")
"""Fields of facts that their line tells."""


class PersonDeclined(Struct, frozen=True):
    """A stranger who stays out.

    Attributes:
        channel: the name of the channel.
        id: of the account.
    """

    channel: str
    id: str


class PersonAccess(Struct, frozen=True):
    """What a person may do on a channel, and why.

    Attributes:
        channel: the name of the channel.
        id: of the account.
        role: what the person may do; `stranger` for nothing.
        name: as the platform reported it; empty if unknown.
        reasons: where the role comes from, of the configuration and of the tape; the highest counts. Empty for a stranger.
        audits: the chats whose tapes the person may see.
    """

    channel: str
    id: str
    role: Literal["stranger", "member", "admin", "owner"]
    name: str = ""
    reasons: tuple[AccessRow, ...] = ()
    audits: tuple[AuditRow, ...] = ()

    def describe(self, caller: Caller) -> str:
        """Say the role, then a line for each reason and each grant of an auditor."""
        say, role = caller.texts.say, caller.texts.role(self.role)
        name = "PersonAccess.known" if self.reasons else "PersonAccess.stranger"
        lines = [say(name, channel=self.channel, id=self.id, name=format_name(self.name), role=role)]
        for reason in self.reasons:
            told = {"channel": self.channel, "by": reason.by, "method": reason.method, **reason.values(caller)}
            lines.append(say(f"PersonAccess.{reason.variant}", **told))
        lines += [
            say("PersonAccess.audit", session=each.session, by=each.by, day=each.granted[:10]) for each in self.audits
        ]
        return "\n".join(lines)


class AccessChange(Struct, frozen=True):
    """A permission after a change.

    Attributes:
        channel: the name of the channel.
        id: of the account.
        role: what was granted; None after a revocation.
        effective: what the person may do now, by the configuration too; `stranger` for nothing.
        changed: false if it was so before.
        name: as the platform reported it; empty if unknown.
        has_owner: somebody is owner on the channel.
    """

    channel: str
    id: str
    role: RoleName | None
    effective: str
    changed: bool = True
    name: str = ""
    has_owner: bool = True

    @property
    def variant(self) -> str:
        """The variant of its first sentence."""
        return "revoked" if self.role is None else "granted" if self.changed else "unchanged"

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its sentences."""
        role, name = caller.texts.role(self.role or Role.STRANGER), format_name(self.name)
        person = caller.texts.say("access_person", id=self.id, name=name, role=role, channel=self.channel)
        return {"role": role, "name": name, "person": person, "effective": caller.texts.role(self.effective)}

    def more(self) -> tuple[str, ...]:
        """Return the names of further sentences that apply."""
        if self.role is None:
            return ()
        is_overruled, lacks_owner = self.effective != self.role, self.changed and not self.has_owner
        return ("AccessChange.overruled",) * is_overruled + ("AccessChange.ownerless",) * lacks_owner
