"""The changes of `bubbot access`, made in this process or in the running bot."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bubbot.app.bot import now
from bubbot.cli.session_names import tape_service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.features.access.service import ACCESS_TAPE, TERMINAL, AccessService
from bubbot.log import printable
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role
from bubbot.settings.channels import split_channel_settings
from bubbot.settings.loader import Settings


@dataclass(frozen=True, slots=True)
class ChangeAccess:
    """A grant, revocation or approval as typed; fields that the action does not take are empty.

    Attributes:
        action: `approve`, `grant` or `revoke`.
        code: a pairing code, for `approve`.
        channel: the name of a channel, for `grant` and `revoke`.
        id: the numeric id of a person there.
        role: the role to give.
    """

    action: str
    code: str = ""
    channel: str = ""
    id: str = ""
    role: str = ""


async def change(context: CommandContext, arguments: ChangeAccess) -> CommandResult:
    """Apply the change; a running bot's own access service applies it, so that it takes effect at once."""
    access = context.access or AccessService(
        tape_service(context.store, ACCESS_TAPE),
        now=now,
        random=os.urandom,
        configured=configured_people(context.settings),
    )
    await access.load()
    return CommandResult(f"{await _WRITE_ACTIONS[arguments.action](access, arguments)}\n")


def configured_people(settings: Settings) -> dict[str, ListedPeople]:
    """Return the people that the configuration lists, by channel. Raises `ConfigError`."""
    channels = {name: split_channel_settings(name, table)[0] for name, table in settings.channels.items()}
    return {
        name: ListedPeople(frozenset(channel.owners), frozenset(channel.admins), frozenset(channel.members))
        for name, channel in channels.items()
    }


async def _approve(access: AccessService, arguments: ChangeAccess) -> str:
    grant = await access.approve(arguments.code, Role(arguments.role), TERMINAL)
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


async def _grant(access: AccessService, arguments: ChangeAccess) -> str:
    previous = access.state.grants.get((arguments.channel, arguments.id))
    grant = await access.grant(arguments.channel, arguments.id, Role(arguments.role), TERMINAL)
    effective = access.role(grant.channel, grant.id)
    text = f"{grant.id} is now {grant.role.value} on {grant.channel}."
    if grant == previous:
        text = f"Nothing changed: {grant.id} is {grant.role.value} on {grant.channel} already."
    return text if effective is grant.role else f"{text} The configuration makes it {effective.value}, and that holds."


async def _revoke(access: AccessService, arguments: ChangeAccess) -> str:
    await access.revoke(arguments.channel, arguments.id, TERMINAL)
    return f"{arguments.id} may no longer talk to the bot on {arguments.channel}, except in groups whose members may all talk."


_WRITE_ACTIONS: Mapping[str, Callable[[AccessService, ChangeAccess], Awaitable[str]]] = {
    "approve": _approve,
    "grant": _grant,
    "revoke": _revoke,
}
