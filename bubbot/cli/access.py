"""`bubbot access`: permissions to speak with the bot, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType

from bubbot.app.bot import now, open_tapes
from bubbot.cli.access_change import ChangeAccess, configured_people
from bubbot.cli.output import show
from bubbot.cli.session_names import tape_service
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.write_command import run_write_command
from bubbot.errors import StoreUnavailable
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.features.access.state import GRANTED
from bubbot.log import printable
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role
from bubbot.tape.entry import TapeEntry

ROLES = ("member", "admin", "owner")
ACCESS_WRITE_ACTIONS = frozenset({"approve", "grant", "revoke"})
"""The actions that write; the others only read, also while the bot runs."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the help texts and the subcommands."""
    parser.description = (
        "Manage who may talk to the bot. Nobody may until you allow it: a stranger who writes to the bot gets a "
        "pairing code and tells it to you, and you approve it here. Or list numeric ids under owners, admins and "
        "members of [channels.NAME] in config.toml. `list`, `pending` and `history` are read-only and work while the"
        " bot runs."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = commands.add_parser(
            name, help=helps, description=f"{helps[0].upper()}{helps[1:]}.", epilog=f"example: bubbot access {example}"
        )
        return subparser

    def person(of: argparse.ArgumentParser) -> None:
        of.add_argument("channel", help="the NAME of [channels.NAME], such as telegram")
        of.add_argument("id", help="the numeric id of the account; pending shows those of people who wrote")

    action("list", "show who may speak, in which role and why", "list")
    action("pending", "show who was given a pairing code that still works", "pending")
    approve = action("approve", "let the person in who was given this code", "approve 7KQ2M9XB --role owner")
    approve.add_argument("code", help="as the person read it to you; it works once, within an hour")
    approve.add_argument("--role", choices=ROLES, default="member", help="default: member; owner for yourself")
    grant = action("grant", "give a person a role, in place of the one granted before", "grant telegram 42 member")
    person(grant)
    grant.add_argument("role", choices=ROLES, help="member speaks, admin also lets others in, owner may do everything")
    person(action("revoke", "take back what was granted", "revoke telegram 42"))
    history = action("history", "show every grant, revocation and code, newest first", "history --limit 20")
    history.add_argument("--limit", type=int, default=50, metavar="N", help="how many (default: 50)")


def run(args: argparse.Namespace) -> int:
    """Run one action; return its exit code."""
    setup = load_setup(args)
    if args.action in ACCESS_WRITE_ACTIONS:
        names = {field.name for field in fields(ChangeAccess)}
        arguments = ChangeAccess(**{name: value for name, value in vars(args).items() if name in names})
        return asyncio.run(run_write_command(setup, "access", arguments))
    show(asyncio.run(_read(setup, args)))
    return 0


async def list_people(setup: CommandSetup) -> str:
    """Return the table of `bubbot access list`, from configuration and grants; empty if nobody may speak."""
    table = await _read(setup, argparse.Namespace(action="list"))
    return "" if table == _NONE["list"] else table


async def _read(setup: CommandSetup, args: argparse.Namespace) -> str:
    people = configured_people(setup.settings)
    try:
        async with open_tapes(setup.home, setup.settings.store) as (store, _):
            access = AccessService(tape_service(store, ACCESS_TAPE), now=now, random=os.urandom, configured=people)
            await access.load()
            return await _READ_ACTIONS[args.action](access, args)
    except StoreUnavailable:
        if setup.home.database.exists():
            raise
        return _describe_unused_home(people, args.action)


def _describe_unused_home(people: Mapping[str, ListedPeople], action: str) -> str:
    """Return the text for a home in which the bot has never run."""
    lines = _configured_lines(people) if action == "list" else []
    return _format_table(lines) if lines else _NONE[action]


_NONE = MappingProxyType(
    {
        "list": "Nobody may speak yet. Write to the bot, and approve the code it answers with: bubbot access approve CODE",
        "pending": "No code is open. A stranger who writes to the bot in a direct chat gets one.",
        "history": "Nothing was granted or revoked yet.",
    }
)


def _configured_lines(people: Mapping[str, ListedPeople]) -> list[tuple[str, ...]]:
    keys = {Role.OWNER: "owners", Role.ADMIN: "admins", Role.MEMBER: "members"}
    return [
        (channel, sender_id, role.value, f"configured: [channels.{channel}] {keys[role]}")
        for channel, listed in sorted(people.items())
        for sender_id, role in listed.listed_roles().items()
    ]


async def _list(access: AccessService, _args: argparse.Namespace) -> str:
    lines = _configured_lines(access.configured)
    for grant in sorted(access.state.grants.values(), key=lambda grant: (grant.channel, int(grant.id))):
        unused = "" if grant.channel in access.configured else ", but no such channel is configured"
        how = f"granted by {grant.giver} ({grant.method}) on {grant.date[:10]}{unused}"
        lines.append((grant.channel, grant.id, grant.role.value, f"{how}  {printable(grant.name)}".rstrip()))
    return _format_table(lines) if lines else _NONE["list"]


async def _pending(access: AccessService, _args: argparse.Namespace) -> str:
    codes = access.pending_codes()
    if not codes:
        return _NONE["pending"]
    lines = [
        (code.channel, code.id, f"until {code.expires.isoformat()[11:16]} UTC", printable(code.name)) for code in codes
    ]
    return f"{_format_table(lines)}\n\nThe code itself is not kept: ask the person for it, by a way on which you know them."


async def _history(access: AccessService, args: argparse.Namespace) -> str:
    entries = await access.read_history(max(args.limit, 0))
    return "\n".join(_format_entry(entry) for entry in entries) if entries else _NONE["history"]


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


_READ_ACTIONS: Mapping[str, Callable[[AccessService, argparse.Namespace], Awaitable[str]]] = {
    "list": _list,
    "pending": _pending,
    "history": _history,
}
