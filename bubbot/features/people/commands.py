"""The commands about people in a shell, behind the word `access`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bubbot.command import make_group
from bubbot.features.people.consent import CONSENT_TAPE, ConsentService
from bubbot.features.people.export import ExportCommands
from bubbot.features.people.forget import ForgetCommands
from bubbot.features.people.record import PersonalTapes
from bubbot.ports.people import FindAccounts
from bubbot.shell_command import CommandContext, CommandGroup
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService


class PeopleOptions(Struct, frozen=True):
    """What the commands of a shell get.

    Attributes:
        tapes: what the tapes of a home mean to an export.
        find_accounts: returns what knows which accounts belong to one person, for the tapes of a home.
    """

    tapes: PersonalTapes
    find_accounts: Callable[[Callable[[str], TapeService]], FindAccounts]


async def open_consents(context: CommandContext) -> ConsentService:
    """Return the answers of people, as the tapes of a home have them."""
    find_accounts = context.settings.find_accounts(context.open_tape)
    return ConsentService(context.open_tape(CONSENT_TAPE), ProjectionRunner(), find_accounts)


async def open_export(context: CommandContext) -> ExportCommands:
    """Return the command over the tapes of a home."""
    options: PeopleOptions = context.settings
    find_accounts = options.find_accounts(context.open_tape)
    return ExportCommands(context.store, options.tapes, find_accounts, now=context.now, zone=context.zone)


async def open_forget(context: CommandContext) -> ForgetCommands:
    """Return the running bot's own commands, or those over the tapes of the home."""
    find_accounts = context.settings.find_accounts(context.open_tape)
    return context.service(ForgetCommands) or ForgetCommands(context.open_tape, find_accounts)


COMMANDS = CommandGroup(
    "access",
    (
        *make_group("access", ConsentService, open_consents, "").commands,
        *make_group("access", ExportCommands, open_export, "").commands,
        *make_group("access", ForgetCommands, open_forget, "").commands,
    ),
)
