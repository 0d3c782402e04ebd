"""Messages of programs in a restored home: the original bot may have sent them, so their release ends them."""

from __future__ import annotations

from datetime import datetime

from bubbot.features.mcp.serve.facts import CLIENTS_TAPE
from bubbot.features.mcp.serve.sending import end_open
from bubbot.features.mcp.serve.state import CLIENTS_PROJECTION
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry
from bubbot.tape.projection import read_projection


async def end_open_work(context: CommandContext, _at: datetime) -> tuple[str, list[TapeEntry], int]:
    """Return the tape and the facts that end the messages that wait, and their number."""
    state = await read_projection(CLIENTS_PROJECTION, context.open_tape(CLIENTS_TAPE))
    ended = end_open(state)
    return CLIENTS_TAPE, ended, len(ended)
