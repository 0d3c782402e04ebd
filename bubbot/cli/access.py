"""`bubbot access`: who may speak with the bot, from the shell."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from bubbot.access import ACCESS_TAPE, TERMINAL, AccessService, ListedPeople
from bubbot.cli.output import show
from bubbot.cli.session_names import service
from bubbot.cli.setup import CommandSetup, setup
from bubbot.cli.write_command import perform
from bubbot.errors import StoreUnavailable
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.settings.channels import channel_settings
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.views.access import GRANTED
from bubbot.wiring.app import now, open_tapes

ROLES = ("member", "admin", "owner")
ACCESS_WRITE_ACTIONS = frozenset({"approve", "grant", "revoke"})
"""The actions that write; the others work beside a running bot."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    parser.description = (
        "Say who may speak with the bot. Nobody may until you let them: a stranger who writes to the bot gets a "
        "pairing code, tells it to you, and you approve it here. Or list numeric ids under owners, admins and members "
        "of [channels.NAME] in config.toml. List, pending and history only read, and work beside a running bot."
    )
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, helps: str, example: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(
            name, help=helps, description=f"{helps[0].upper()}{helps[1:]}.", epilog=f"example: bubbot access {example}"
        )
        return made

    def person(of: argparse.ArgumentParser) -> None:
        of.add_argument("channel", help="the NAME of [channels.NAME], such as telegram")
        of.add_argument("id", help="the numeric id of the account; pending shows those of people who wrote")

    action("list", "show who may speak, in which role and why", "list")
    action("pending", "show who was given a pairing code that still works", "pending")
    approve = action("approve", "let the person in who was given this code", "approve 7KQ2M9XB --role owner")
    approve.add_argument("code", help="as the person read it to you; it works once, for an hour after it was given")
    approve.add_argument("--role", choices=ROLES, default="member", help="member where left out; for you, owner")
    grant = action("grant", "give a person a role, in place of the one granted before", "grant telegram 42 member")
    person(grant)
    grant.add_argument("role", choices=ROLES, help="member speaks, admin also lets others in, owner may do everything")
    person(action("revoke", "take back what was granted", "revoke telegram 42"))
    history = action("history", "show every grant, revocation and code, newest first", "history --limit 20")
    history.add_argument("--limit", type=int, default=50, metavar="N", help="how many, 50 where left out")


def run(args: argparse.Namespace) -> int:
    """Runs one action."""
    made = setup(args)
    if args.action in ACCESS_WRITE_ACTIONS:
        # Loaded here: what only reads needs nothing of it, and it needs this file.
        arguments = import_module("bubbot.cli.access_change").ChangeAccess
        given = {name: value for name, value in vars(args).items() if name in arguments.__dataclass_fields__}
        return asyncio.run(perform(made, "access", arguments(**given)))
    show(asyncio.run(_read(made, args)))
    return 0


async def list_people(made: CommandSetup) -> str:
    """Return the table of `bubbot access list`: who may speak, by the configuration and by grants; empty for nobody."""
    found = await _read(made, argparse.Namespace(action="list"))
    return "" if found == _NONE["list"] else found


async def _read(made: CommandSetup, args: argparse.Namespace) -> str:
    people = listed(made.settings)
    try:
        async with open_tapes(made.home) as (store, _):
            access = AccessService(service(store, ACCESS_TAPE), now=now, random=os.urandom, configured=people)
            return await act(access, args)
    except StoreUnavailable:
        if made.home.database.exists():
            raise
        return _nothing_yet(people, args.action)


def listed(settings: Settings) -> dict[str, ListedPeople]:
    """The people that the configuration lists, by channel. Raises `ConfigError`."""
    made = {name: channel_settings(name, table)[0] for name, table in settings.channels.items()}
    return {
        name: ListedPeople(frozenset(one.owners), frozenset(one.admins), frozenset(one.members))
        for name, one in made.items()
    }


async def act(access: AccessService, args: argparse.Namespace, by: str = TERMINAL) -> str:
    """Does what was asked and returns what to print. Whoever holds the home's lock can call it, for `by`."""
    await access.load()
    return await _ACTIONS[args.action](access, args, by)


def _nothing_yet(people: Mapping[str, ListedPeople], action: str) -> str:
    """What there is to tell where the bot has never run."""
    lines = _configured_lines(people) if action == "list" else []
    return _table(lines) if lines else _NONE[action]


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
        for channel, some in sorted(people.items())
        for sender_id, role in some.people().items()
    ]


async def _list(access: AccessService, _args: argparse.Namespace, _by: str) -> str:
    lines = _configured_lines(access.configured)
    for grant in sorted(access.state.grants.values(), key=lambda one: (one.channel, int(one.id))):
        unused = "" if grant.channel in access.configured else ", but no such channel is configured"
        how = f"granted by {grant.by} ({grant.how}) on {grant.date[:10]}{unused}"
        lines.append((grant.channel, grant.id, grant.role.value, f"{how}  {printable(grant.name)}".rstrip()))
    return _table(lines) if lines else _NONE["list"]


async def _pending(access: AccessService, _args: argparse.Namespace, _by: str) -> str:
    codes = access.pending()
    if not codes:
        return _NONE["pending"]
    lines = [
        (code.channel, code.id, f"until {code.expires.isoformat()[11:16]} UTC", printable(code.name)) for code in codes
    ]
    return f"{_table(lines)}\n\nThe code itself is not kept: ask the person for it, by a way on which you know them."


async def _approve(access: AccessService, args: argparse.Namespace, by: str) -> str:
    grant = await access.approve(args.code, Role(args.role), by)
    name = f" ({printable(grant.name)})" if grant.name else ""
    told = (
        f"{grant.id}{name} is now {grant.role.value} on {grant.channel}. "
        f"`bubbot access revoke {grant.channel} {grant.id}` takes it back."
    )
    if _has_owner(access, grant.channel):
        return told
    # Who sets a bot up types what the bot says, which makes a member.
    return f"{told} Nobody is owner there yet; if this is you: bubbot access grant {grant.channel} {grant.id} owner"


def _has_owner(access: AccessService, channel: str) -> bool:
    granted = {one.role for one in access.state.grants.values() if one.channel == channel}
    return Role.OWNER in granted.union(access.configured.get(channel, ListedPeople()).people().values())


async def _grant(access: AccessService, args: argparse.Namespace, by: str) -> str:
    before = access.state.grants.get((args.channel, args.id))
    grant = await access.grant(args.channel, args.id, Role(args.role), by)
    holds = access.role(grant.channel, grant.id)
    told = f"{grant.id} is now {grant.role.value} on {grant.channel}."
    if grant == before:
        told = f"Nothing changed: {grant.id} is {grant.role.value} on {grant.channel} already."
    return told if holds is grant.role else f"{told} The configuration makes it {holds.value}, and that holds."


async def _revoke(access: AccessService, args: argparse.Namespace, by: str) -> str:
    await access.revoke(args.channel, args.id, by)
    return f"{args.id} may no longer speak on {args.channel}, but for groups whose people may all speak."


async def _history(access: AccessService, args: argparse.Namespace, _by: str) -> str:
    found = await access.history(max(args.limit, 0))
    return "\n".join(_line(entry) for entry in found) if found else _NONE["history"]


def _line(entry: TapeEntry) -> str:
    data = entry.payload["data"]
    what = (entry.name or "").removeprefix("access/").replace("_", " ")
    shown = [str(data[key]) for key in ("channel", "id", "role", "code", "reason") if key in data]
    if "by" in data:
        shown.append(f"by {data['by']}")
    if entry.name == GRANTED:
        shown.append(f"({data['how']})")
    return printable(f"#{entry.id} {entry.date[:19]} {what}: {' '.join([*shown, data.get('name', '')])}".rstrip())


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


_ACTIONS: Mapping[str, Callable[[AccessService, argparse.Namespace, str], Awaitable[str]]] = {
    "list": _list,
    "pending": _pending,
    "approve": _approve,
    "grant": _grant,
    "revoke": _revoke,
    "history": _history,
}
