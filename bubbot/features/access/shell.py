"""The commands `bubbot access`: permissions to speak with the bot. Their settings are the people that config.toml lists."""

import os
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, cast

from bubbot.features.access.service import ACCESS_TAPE, TERMINAL, AccessService
from bubbot.features.access.state import GRANTED
from bubbot.log import printable
from bubbot.ports.access import Audience, ListedPeople
from bubbot.ports.channel import Role
from bubbot.ports.command import (
    Argument,
    Command,
    CommandContext,
    CommandGroup,
    CommandResult,
    RunCommand,
    described_by,
)
from bubbot.ports.tool import NoArgs, ToolArgs
from bubbot.records import IsoTime, dataclass, json_data
from bubbot.tape.entry import TapeEntry, timestamp

RoleName: TypeAlias = Literal["member", "admin", "owner"]
NOBODY = "Nobody may speak yet. Write to the bot, and approve the code it answers with: bubbot access approve CODE"
NONE: Mapping[str, str] = MappingProxyType(
    {
        "list": NOBODY,
        "pending": "No code is open. A stranger who writes to the bot in a direct chat gets one.",
        "readings": "No chat may read in another one. bubbot access grant-reading SOURCE READER lets one.",
        "audits": "No auditor may see a chat. bubbot access grant-audit AUDITOR SESSION lets one.",
        "history": "Nothing was granted or revoked yet.",
    }
)
"""What each reading command answers if there is nothing to show."""


class ApproveCode(ToolArgs):
    code: Annotated[str, Argument("as the person read it to you; it works once, within an hour")]
    role: Annotated[RoleName, Argument("default: member; owner for yourself")] = "member"
    yes: Annotated[bool, Argument("do not ask before")] = False


class Person(ToolArgs):
    channel: Annotated[str, Argument("the NAME of [channels.NAME], such as telegram")]
    id: Annotated[str, Argument("the numeric id of the account; pending shows those of people who wrote")]


class GrantRole(Person):
    """A person, and a role."""

    role: Annotated[RoleName, Argument("member speaks, admin also lets others in, owner may do everything")]


class GroupChoice(ToolArgs):
    channel: Annotated[str, Argument("the NAME of [channels.NAME], such as telegram")]
    group: Annotated[str, Argument("the id of the group, such as -1001234567, or of a server or channel of Discord")]
    who: Annotated[Audience, Argument("everybody there as a member, known people with a role alone, or nobody")]


class ReadingGrant(ToolArgs):
    source: Annotated[str, Argument("the chat that is read, such as telegram:42; bubbot tape list shows all")]
    reader: Annotated[str, Argument("the chat that reads it; everybody in it can")]


class Audit(ToolArgs):
    auditor: Annotated[str, Argument("who looks: an account such as telegram:42, or a name")]
    session: Annotated[str, Argument("the chat whose tape is shown, such as telegram:7; bubbot tape list shows all")]


class AccessHistory(ToolArgs):
    limit: Annotated[int, Argument("how many (default: 50)", "N")] = 50


@dataclass(frozen=True, slots=True)
class AccessRow:
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


@dataclass(frozen=True, slots=True)
class GroupRow:
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


@dataclass(frozen=True, slots=True)
class GroupChange:
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


@dataclass(frozen=True, slots=True)
class AccessList:
    """Who may speak.

    Attributes:
        people: one of the configuration and of the tape each; a person may be in both.
        groups: the groups of the configuration and those about which an owner decided.
    """

    people: tuple[AccessRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCode:
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


@dataclass(frozen=True, slots=True)
class PendingCodes:
    """The pairing codes that still work.

    Attributes:
        codes: the codes.
    """

    codes: tuple[PendingCode, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingRow:
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


@dataclass(frozen=True, slots=True)
class ReadingList:
    """Which chats may read which others.

    Attributes:
        readings: sorted by the chat that is read.
    """

    readings: tuple[ReadingRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingChange:
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


@dataclass(frozen=True, slots=True)
class AuditRow:
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


@dataclass(frozen=True, slots=True)
class AuditList:
    """Which auditors may see the tapes of which chats.

    Attributes:
        audits: sorted by auditor.
    """

    audits: tuple[AuditRow, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditChange:
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


@dataclass(frozen=True, slots=True)
class AccessEvent:
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


@dataclass(frozen=True, slots=True)
class AccessEvents:
    """What happened to the permissions.

    Attributes:
        events: newest first.
    """

    events: tuple[AccessEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessChange:
    """A permission after a change.

    Attributes:
        channel: the name of the channel.
        id: of the account.
        role: what was granted; None after a revocation.
        effective: what the person may do now, by the configuration too; `stranger` for nothing.
        changed: false if it was so before.
    """

    channel: str
    id: str
    role: RoleName | None
    effective: str
    changed: bool = True


async def _open_access(context: CommandContext) -> AccessService:
    """Return the running bot's own people, so that a change takes effect at once, or those of the home."""
    access = context.service(AccessService) or AccessService(
        context.open_tape(ACCESS_TAPE),
        now=context.now,
        random=os.urandom,
        configured=context.settings,
        first_session=context.first_session,
    )
    await access.load()
    return access


Render: TypeAlias = Callable[[AccessService, Any], Awaitable[tuple[str, object]]]
"""Answers for people, and for programs."""


def _command(example: str, result: type, *, question: RunCommand | None = None) -> Callable[[Render], Command]:
    """Make a command of what renders its answer as a `result`; its name is the first word of the example."""
    action = example.partition(" ")[0]
    writes = action not in NONE

    def decorate(render: Render) -> Command:
        async def run(context: CommandContext, args: Any) -> CommandResult:
            text, data = await render(await _open_access(context), args)
            return CommandResult(f"{text}\n" if text else "", data=json_data(data), rows=_table(data))

        def on_missing_home(people: Mapping[str, ListedPeople], _args: Any) -> CommandResult:
            data = AccessList(_configured_people(people), _configured_groups(people)) if action == "list" else result()
            rows = _table(data)
            return CommandResult("" if rows else f"{NONE[action]}\n", data=json_data(data), rows=rows)

        options = described_by(render) | {"on_missing_home": None if writes else on_missing_home}
        return Command(
            name=f"access {action}",
            run=run,
            example=f"access {example}",
            writes=writes,
            question=question,
            result=result,
            **options,
        )

    return decorate


def _configured_people(people: Mapping[str, ListedPeople]) -> tuple[AccessRow, ...]:
    return tuple(
        AccessRow(channel, sender_id, _role_name(role))
        for channel, listed in sorted(people.items())
        for sender_id, role in listed.listed_roles().items()
    )


def _configured_groups(people: Mapping[str, ListedPeople]) -> tuple[GroupRow, ...]:
    return tuple(
        GroupRow(channel, group, "everybody")
        for channel, listed in sorted(people.items())
        for group in sorted(listed.groups, key=int)
    )


def _role_name(role: Role) -> RoleName:
    return cast("RoleName", role.value)


def _table(data: object) -> tuple[tuple[str, ...], ...]:
    """Return the rows for people; none if the data is no list of people or codes."""
    if isinstance(data, PendingCodes):
        return tuple(
            (code.channel, code.id, f"until {code.expires[11:16]} UTC", printable(code.name)) for code in data.codes
        )
    if isinstance(data, ReadingList):
        rows = (
            (row.reader, f"may read {row.source}", f"granted by {row.by} on {row.granted[:10]}")
            for row in data.readings
        )
        return tuple(tuple(map(printable, row)) for row in rows)
    if isinstance(data, AuditList):
        seen = (
            (row.auditor, f"may see {row.session}", f"granted by {row.by} on {row.granted[:10]}") for row in data.audits
        )
        return tuple(tuple(map(printable, row)) for row in seen)
    if isinstance(data, AccessList):
        return (*map(_person_row, data.people), *map(_group_row, data.groups))
    return ()


def _group_row(group: GroupRow) -> tuple[str, ...]:
    source = "configured" if group.source == "config" else f"decided by {group.by} on {(group.decided or '')[:10]}"
    return group.channel, group.group, _AUDIENCES[group.audience], printable(f"{source}  {group.title}".rstrip())


_AUDIENCES: Mapping[Audience, str] = MappingProxyType(
    {"everybody": "group, everybody", "known": "group, known people", "nobody": "group, nobody"}
)


def _person_row(person: AccessRow) -> tuple[str, ...]:
    source = f"configured: [channels.{person.channel}] {person.role}s"
    if person.source == "grant":
        unused = "" if person.is_configured else ", but no such channel is configured"
        source = f"granted by {person.by} ({person.method}) on {(person.granted or '')[:10]}{unused}"
    return person.channel, person.id, person.role, f"{source}  {printable(person.name)}".rstrip()


@_command("list", AccessList)
async def list_people(access: AccessService, args: NoArgs) -> tuple[str, AccessList]:
    """Show who may speak, in which role and why, and in which groups."""
    granted = tuple(
        AccessRow(
            grant.channel,
            grant.id,
            _role_name(grant.role),
            grant.name,
            "grant",
            str(grant.giver),
            grant.method,
            grant.date,
            grant.channel in access.configured,
        )
        for grant in sorted(access.state.grants.values(), key=lambda grant: (grant.channel, int(grant.id)))
    )
    decided = tuple(
        GroupRow(group.channel, group.group, group.audience, group.title, "decision", group.giver, group.date)
        for group in access.list_groups()
    )
    people = (*_configured_people(access.configured), *granted)
    groups = (*_configured_groups(access.configured), *decided)
    return "" if people or groups else NONE["list"], AccessList(people, groups)


@_command("pending", PendingCodes)
async def pending(access: AccessService, args: NoArgs) -> tuple[str, PendingCodes]:
    """Show who was given a pairing code that still works."""
    codes = access.pending_codes()
    data = PendingCodes(
        tuple(
            PendingCode(code.channel, code.id, code.name, timestamp(code.issued), timestamp(code.expires))
            for code in codes
        )
    )
    if not codes:
        return NONE["pending"], data
    return "\nThe code itself is not kept: ask the person for it, by a way on which you know them.", data


@_command("history --limit 20", AccessEvents)
async def history(access: AccessService, args: AccessHistory) -> tuple[str, AccessEvents]:
    """Show every grant, revocation and code, newest first."""
    entries = await access.read_history(max(args.limit, 0))
    text = "\n".join(_format_entry(entry) for entry in entries) if entries else NONE["history"]
    events = (
        AccessEvent(entry.id, entry.date, (entry.name or "").removeprefix("access/"), entry.payload["data"])
        for entry in entries
    )
    return text, AccessEvents(tuple(events))


def _format_entry(entry: TapeEntry) -> str:
    data = entry.payload["data"]
    event = (entry.name or "").removeprefix("access/").replace("_", " ")
    parts = [
        str(data[key])
        for key in ("channel", "id", "group", "role", "audience", "code", "reason", "source", "reader", "session")
        if key in data
    ]
    if "by" in data:
        parts.append(f"by {data['by']}")
    if entry.name == GRANTED:
        parts.append(f"({data['how']})")
    return printable(
        f"#{entry.id} {entry.date[:19]} {event}: {' '.join([*parts, data.get('name', data.get('title', ''))])}".rstrip()
    )


async def _ask_approval(context: CommandContext, args: ApproveCode) -> CommandResult:
    """Name the person who got the code; a wrong code is for the command itself to refuse."""
    access = await _open_access(context)
    if (code := access.find_code(args.code)) is None:
        return CommandResult("")
    name = f" ({printable(code.name)})" if code.name else ""
    return CommandResult(f"Let {code.id}{name} in on {code.channel} as {args.role}?")


@_command("approve 7KQ2M9XB --role owner", AccessChange, question=_ask_approval)
async def approve(access: AccessService, args: ApproveCode) -> tuple[str, AccessChange]:
    """Let the person in who was given this code."""
    grant = await access.approve(args.code, Role(args.role), TERMINAL)
    name = f" ({printable(grant.name)})" if grant.name else ""
    text = (
        f"{grant.id}{name} is now {grant.role.value} on {grant.channel}. "
        f"`bubbot access revoke {grant.channel} {grant.id}` takes it back."
    )
    if not _has_owner(access, grant.channel):
        # A person who sets up a bot types the command that the bot shows, which grants the role member.
        text += f" Nobody is owner there yet; if this is you: bubbot access grant {grant.channel} {grant.id} owner"
    return text, _change(access, grant.channel, grant.id, grant.role)


def _change(
    access: AccessService, channel: str, account: str, role: Role | None, *, changed: bool = True
) -> AccessChange:
    effective = access.role(channel, account).value
    return AccessChange(channel, account, _role_name(role) if role else None, effective, changed)


def _has_owner(access: AccessService, channel: str) -> bool:
    roles = {grant.role for grant in access.state.grants.values() if grant.channel == channel}
    return Role.OWNER in roles.union(access.configured.get(channel, ListedPeople()).listed_roles().values())


@_command("grant telegram 42 member", AccessChange)
async def grant(access: AccessService, args: GrantRole) -> tuple[str, AccessChange]:
    """Give a person a role, in place of the one granted before."""
    previous = access.state.grants.get((args.channel, args.id))
    updated = await access.grant(args.channel, args.id, Role(args.role), TERMINAL)
    effective = access.role(updated.channel, updated.id)
    text = f"{updated.id} is now {updated.role.value} on {updated.channel}."
    if updated == previous:
        text = f"Nothing changed: {updated.id} is {updated.role.value} on {updated.channel} already."
    if effective is not updated.role:
        text += f" The configuration makes it {effective.value}, and that holds."
    return text, _change(access, updated.channel, updated.id, updated.role, changed=updated != previous)


@_command("revoke telegram 42", AccessChange)
async def revoke(access: AccessService, args: Person) -> tuple[str, AccessChange]:
    """Take back what was granted."""
    await access.revoke(args.channel, args.id, TERMINAL)
    text = f"{args.id} cannot talk to the bot on {args.channel} any more. In groups where everybody may talk to it, they still can."
    return text, _change(access, args.channel, args.id, None)


@_command("group telegram -1001234567 everybody", GroupChange)
async def group(access: AccessService, args: GroupChoice) -> tuple[str, GroupChange]:
    """Decide who may talk to the bot in a group, or on a server of Discord."""
    before = access.audience(args.channel, args.group)
    decided = await access.set_audience(args.channel, args.group, args.who, TERMINAL)
    changed = before != decided.audience
    sentences: Mapping[Audience, str] = {
        "everybody": "Everybody in the group {group} may talk to the bot.",
        "known": "In the group {group} the bot answers people with a role only.",
        "nobody": "The bot answers nobody in the group {group}.",
    }
    text = sentences[decided.audience].format(group=decided.group)
    text = text if changed else f"Nothing changed: {text}"
    return printable(text), GroupChange(decided.channel, decided.group, decided.audience, changed)


@_command("readings", ReadingList)
async def list_readings(access: AccessService, args: NoArgs) -> tuple[str, ReadingList]:
    """Show which chats may read what was said in which others."""
    rows = tuple(ReadingRow(one.source, one.reader, one.giver, one.date) for one in access.list_readings())
    return "" if rows else NONE["readings"], ReadingList(rows)


@_command("grant-reading telegram:42 discord:7", ReadingChange)
async def grant_reading(access: AccessService, args: ReadingGrant) -> tuple[str, ReadingChange]:
    """Let everybody in one chat read what was said in another one."""
    before = access.list_readings()
    grant = await access.grant_reading(args.source, args.reader, TERMINAL)
    changed = grant not in before
    text = (
        f"{grant.reader} may read {grant.source} now."
        if changed
        else f"Nothing changed: {grant.reader} may read it already."
    )
    undo = f"bubbot access revoke-reading {grant.source} {grant.reader}"
    return f"{text} `{undo}` takes it back.", ReadingChange(grant.source, grant.reader, granted=True, changed=changed)


@_command("revoke-reading telegram:42 discord:7", ReadingChange)
async def revoke_reading(access: AccessService, args: ReadingGrant) -> tuple[str, ReadingChange]:
    """Take back that one chat reads what was said in another one."""
    await access.revoke_reading(args.source, args.reader, TERMINAL)
    text = f"{args.reader} may no longer read {args.source}; answers under way read no further."
    return printable(text), ReadingChange(args.source, args.reader, granted=False)


@_command("audits", AuditList)
async def list_audits(access: AccessService, args: NoArgs) -> tuple[str, AuditList]:
    """Show which auditors may see the tapes of which chats."""
    rows = tuple(AuditRow(one.auditor_name, one.session, one.giver, one.date) for one in access.list_audits())
    return "" if rows else NONE["audits"], AuditList(rows)


@_command("grant-audit anna telegram:7", AuditChange)
async def grant_audit(access: AccessService, args: Audit) -> tuple[str, AuditChange]:
    """Let an auditor see the tape of one chat on the trace page; it gives no right to speak."""
    before = access.list_audits()
    grant = await access.grant_audit(args.auditor, args.session, TERMINAL)
    changed, auditor = grant not in before, grant.auditor_name
    text = f"{auditor} may see {grant.session} now." if changed else f"Nothing changed: {auditor} may see it already."
    undo = f"bubbot access revoke-audit {auditor} {grant.session}"
    return f"{text} `{undo}` takes it back.", AuditChange(auditor, grant.session, granted=True, changed=changed)


@_command("revoke-audit anna telegram:7", AuditChange)
async def revoke_audit(access: AccessService, args: Audit) -> tuple[str, AuditChange]:
    """Take back that an auditor sees the tape of a chat."""
    await access.revoke_audit(args.auditor, args.session, TERMINAL)
    text = f"{args.auditor} may no longer see {args.session}; the next page shows nothing of it."
    return printable(text), AuditChange(args.auditor, args.session, granted=False)


ACCESS_COMMANDS = CommandGroup(
    "access",
    (
        *(list_people, pending, approve, grant, revoke, group, list_readings, grant_reading, revoke_reading),
        *(list_audits, grant_audit, revoke_audit, history),
    ),
    "Manage who may talk to the bot. Nobody may until you allow it: a stranger who writes to the bot gets a "
    "pairing code and tells it to you, and you approve it here. Or list numeric ids under owners, admins and "
    "members of [channels.NAME] in config.toml. `list`, `pending`, `readings`, `audits` and `history` are read-only and work"
    " while the bot runs.",
)
