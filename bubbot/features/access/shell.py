"""The commands `bubbot access`: permissions to speak with the bot. Their settings are the people that config.toml lists."""

from __future__ import annotations

import os

from bubbot.command import make_group
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.ports.command import CommandContext


async def open_access(context: CommandContext) -> AccessService:
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


ACCESS_COMMANDS = make_group(
    "access",
    AccessService,
    open_access,
    "Manage who may talk to the bot. Nobody may until you allow it: a stranger who writes to the bot gets a "
    "pairing code and tells it to you, and you approve it here. Or list numeric ids under owners, admins and "
    "members of [channels.NAME] in config.toml. `list`, `role`, `pending`, `readings`, `audits` and `history` are read-only "
    "and work while the bot runs.",
    help_line="manage who may talk to the bot",
)
