"""The commands about views in a shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from bubbot.command import make_group
from bubbot.features.views.facts import VIEWS_TAPE
from bubbot.features.views.service import ViewService
from bubbot.ports.access import MayRead
from bubbot.shell_command import CommandContext
from bubbot.tape.service import TapeService


class ViewOptions(Struct, frozen=True):
    """What the commands of a shell get.

    Attributes:
        find_grants: returns who may read which chats, as the tapes of a home say.
    """

    find_grants: Callable[[Callable[[str], TapeService]], Awaitable[MayRead]]


async def open_views(context: CommandContext) -> ViewService:
    """Return the running bot's own views, so that a change takes effect at once, or those of the home."""
    if (running := context.service(ViewService)) is not None:
        return running
    may_read = await context.settings.find_grants(context.open_tape)
    views = ViewService(
        context.open_tape(VIEWS_TAPE),
        may_read,
        projections=context.make_projections(),
        first_session=context.first_session,
    )
    await views.load()
    return views


COMMANDS = make_group(
    "view",
    ViewService,
    open_views,
    "Show a chat what goes on in another one that it may read: its newest messages, its anchors, or what shares words with "
    "the newest message. `bubbot access grant-reading` lets one chat read another.",
    help_line="show a chat what goes on in another one",
)
