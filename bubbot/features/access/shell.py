"""The commands `bubbot access`: permissions to speak with the bot. Their settings are the people that config.toml lists."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

from bubbot.features.access.service import ACCESS_TAPE, TERMINAL, AccessService
from bubbot.features.access.state import GRANTED
from bubbot.log import printable
from bubbot.ports.access import ListedPeople
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
from bubbot.tape.entry import TapeEntry

RoleName: TypeAlias = Literal["member", "admin", "owner"]
NOBODY = "Nobody may speak yet. Write to the bot, and approve the code it answers with: bubbot access approve CODE"
NONE: Mapping[str, str] = MappingProxyType(
    {
        "list": NOBODY,
        "pending": "No code is open. A stranger who writes to the bot in a direct chat gets one.",
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


class AccessHistory(ToolArgs):
    limit: Annotated[int, Argument("how many (default: 50)", "N")] = 50


async def _open_access(context: CommandContext) -> AccessService:
    """Return the running bot's own people, so that a change takes effect at once, or those of the home."""
    access = context.service(AccessService) or AccessService(
        context.open_tape(ACCESS_TAPE), now=context.now, random=os.urandom, configured=context.settings
    )
    await access.load()
    return access


Render: TypeAlias = Callable[[AccessService, Any], Awaitable[str]]


def _command(example: str, *, question: RunCommand | None = None) -> Callable[[Render], Command]:
    """Make a command of what renders its answer; its name is the first word of the example."""
    action = example.partition(" ")[0]
    writes = action not in NONE

    def decorate(render: Render) -> Command:
        async def run(context: CommandContext, args: Any) -> CommandResult:
            return CommandResult(f"{await render(await _open_access(context), args)}\n")

        def on_missing_home(people: Mapping[str, ListedPeople], _args: Any) -> CommandResult:
            lines = _configured_lines(people) if action == "list" else []
            return CommandResult(f"{_format_table(lines) if lines else NONE[action]}\n")

        options = described_by(render) | {"on_missing_home": None if writes else on_missing_home}
        return Command(
            name=f"access {action}", run=run, example=f"access {example}", writes=writes, question=question, **options
        )

    return decorate


def _configured_lines(people: Mapping[str, ListedPeople]) -> list[tuple[str, ...]]:
    keys = {Role.OWNER: "owners", Role.ADMIN: "admins", Role.MEMBER: "members"}
    return [
        (channel, sender_id, role.value, f"configured: [channels.{channel}] {keys[role]}")
        for channel, listed in sorted(people.items())
        for sender_id, role in listed.listed_roles().items()
    ]


@_command("list")
async def list_people(access: AccessService, args: NoArgs) -> str:
    """Show who may speak, in which role and why."""
    lines = _configured_lines(access.configured)
    for grant in sorted(access.state.grants.values(), key=lambda grant: (grant.channel, int(grant.id))):
        unused = "" if grant.channel in access.configured else ", but no such channel is configured"
        how = f"granted by {grant.giver} ({grant.method}) on {grant.date[:10]}{unused}"
        lines.append((grant.channel, grant.id, grant.role.value, f"{how}  {printable(grant.name)}".rstrip()))
    return _format_table(lines) if lines else NONE["list"]


@_command("pending")
async def pending(access: AccessService, args: NoArgs) -> str:
    """Show who was given a pairing code that still works."""
    codes = access.pending_codes()
    if not codes:
        return NONE["pending"]
    lines = [
        (code.channel, code.id, f"until {code.expires.isoformat()[11:16]} UTC", printable(code.name)) for code in codes
    ]
    return f"{_format_table(lines)}\n\nThe code itself is not kept: ask the person for it, by a way on which you know them."


@_command("history --limit 20")
async def history(access: AccessService, args: AccessHistory) -> str:
    """Show every grant, revocation and code, newest first."""
    entries = await access.read_history(max(args.limit, 0))
    return "\n".join(_format_entry(entry) for entry in entries) if entries else NONE["history"]


def _format_entry(entry: TapeEntry) -> str:
    data = entry.payload["data"]
    event = (entry.name or "").removeprefix("access/").replace("_", " ")
    parts = [str(data[key]) for key in ("channel", "id", "role", "code", "reason") if key in data]
    if "by" in data:
        parts.append(f"by {data['by']}")
    if entry.name == GRANTED:
        parts.append(f"({data['how']})")
    return printable(f"#{entry.id} {entry.date[:19]} {event}: {' '.join([*parts, data.get('name', '')])}".rstrip())


def _format_table(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


async def _ask_approval(context: CommandContext, args: ApproveCode) -> CommandResult:
    """Name the person who got the code; a wrong code is for the command itself to refuse."""
    access = await _open_access(context)
    if (code := access.find_code(args.code)) is None:
        return CommandResult("")
    name = f" ({printable(code.name)})" if code.name else ""
    return CommandResult(f"Let {code.id}{name} in on {code.channel} as {args.role}?")


@_command("approve 7KQ2M9XB --role owner", question=_ask_approval)
async def approve(access: AccessService, args: ApproveCode) -> str:
    """Let the person in who was given this code."""
    grant = await access.approve(args.code, Role(args.role), TERMINAL)
    name = f" ({printable(grant.name)})" if grant.name else ""
    text = (
        f"{grant.id}{name} is now {grant.role.value} on {grant.channel}. "
        f"`bubbot access revoke {grant.channel} {grant.id}` takes it back."
    )
    if _has_owner(access, grant.channel):
        return text
    # A person who sets up a bot types the command that the bot shows, which grants the role member.
    return f"{text} Nobody is owner there yet; if this is you: bubbot access grant {grant.channel} {grant.id} owner"


def _has_owner(access: AccessService, channel: str) -> bool:
    roles = {grant.role for grant in access.state.grants.values() if grant.channel == channel}
    return Role.OWNER in roles.union(access.configured.get(channel, ListedPeople()).listed_roles().values())


@_command("grant telegram 42 member")
async def grant(access: AccessService, args: GrantRole) -> str:
    """Give a person a role, in place of the one granted before."""
    previous = access.state.grants.get((args.channel, args.id))
    updated = await access.grant(args.channel, args.id, Role(args.role), TERMINAL)
    effective = access.role(updated.channel, updated.id)
    text = f"{updated.id} is now {updated.role.value} on {updated.channel}."
    if updated == previous:
        text = f"Nothing changed: {updated.id} is {updated.role.value} on {updated.channel} already."
    return (
        text if effective is updated.role else f"{text} The configuration makes it {effective.value}, and that holds."
    )


@_command("revoke telegram 42")
async def revoke(access: AccessService, args: Person) -> str:
    """Take back what was granted."""
    await access.revoke(args.channel, args.id, TERMINAL)
    return f"{args.id} may no longer talk to the bot on {args.channel}, except in groups whose members may all talk."


ACCESS_COMMANDS = CommandGroup(
    "access",
    (list_people, pending, approve, grant, revoke, history),
    "Manage who may talk to the bot. Nobody may until you allow it: a stranger who writes to the bot gets a "
    "pairing code and tells it to you, and you approve it here. Or list numeric ids under owners, admins and "
    "members of [channels.NAME] in config.toml. `list`, `pending` and `history` are read-only and work while the"
    " bot runs.",
)
