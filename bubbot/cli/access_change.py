"""What `bubbot access` changes, in this process or in the bot that runs for the home."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import asdict, dataclass

from bubbot.access import ACCESS_TAPE, AccessService
from bubbot.cli.access import act, listed
from bubbot.cli.session_names import service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.wiring.app import now


@dataclass(frozen=True, slots=True)
class ChangeAccess:
    """One grant, revocation or approval, as it was typed; what an action does not take is empty."""

    action: str
    code: str = ""
    channel: str = ""
    id: str = ""
    role: str = ""


async def change(desk: CommandContext, asked: ChangeAccess) -> CommandResult:
    """Does it, through the bot's own record where that runs, so that it counts at once."""
    access = desk.access or AccessService(
        service(desk.store, ACCESS_TAPE), now=now, random=os.urandom, configured=listed(desk.settings)
    )
    return CommandResult(f"{await act(access, Namespace(**asdict(asked)))}\n")
