"""The commands about people in a shell, behind the word `access`."""

from __future__ import annotations

from bubbot.command import make_group
from bubbot.features.people.forget import ForgetCommands
from bubbot.shell_command import CommandContext, CommandGroup


async def open_forget(context: CommandContext) -> ForgetCommands:
    """Return the running bot's own commands, or those over the tapes of the home."""
    return context.service(ForgetCommands) or ForgetCommands(context.open_tape)


COMMANDS = CommandGroup(
    "access",
    (*make_group("access", ForgetCommands, open_forget, "").commands,),
)
