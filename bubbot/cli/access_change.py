"""The changes of `bubbot access`, made in this process or in the running bot."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import asdict, dataclass

from bubbot.access import ACCESS_TAPE, AccessService
from bubbot.cli.access import configured_people, perform_action
from bubbot.cli.session_names import tape_service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.wiring.app import now


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
    return CommandResult(f"{await perform_action(access, Namespace(**asdict(arguments)))}\n")
