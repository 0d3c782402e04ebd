"""A bot with owners, members and strangers, and tools that read pages of a world; what it wrote, by whose words it is."""

from __future__ import annotations

from typing import Any

from bubbot.arguments.fields import Args
from bubbot.features.agents.settings import AgentsSettings
from bubbot.ports.channel import Inbound, Role
from bubbot.ports.turn import ShownEntries, Turn
from bubbot.tape.entry import TapeEntry
from bubbot.tape.provenance import Source, source_of
from bubbot.tool import READS_WEB, READS_WORLD, Tool, tool
from tests.strategy_tools import make_reading_tools
from tests.turns import Bench, Options

OWNER, MEMBER, STRANGER = "1", "5", "9"
_ROLES = {OWNER: Role.OWNER, "0": Role.OWNER, MEMBER: Role.MEMBER, "6": Role.ADMIN}


def role_of(inbound: Inbound) -> Role:
    """The role of a sender."""
    return _ROLES.get(inbound.sender.id, Role.STRANGER)


class PageArgs(Args, frozen=True):
    """The arguments of the tool."""

    url: str = ""


def page_tool(text: str = "a page", name: str = "web.get", *, is_web: bool = True) -> Tool:
    """A tool that answers with a page of the world."""

    @tool(name, effect=READS_WEB if is_web else READS_WORLD)
    async def get_page(turn: Turn, args: PageArgs) -> str:
        """Read a page."""
        return text.replace("{url}", args.url)

    return get_page


def looking(seen: list[ShownEntries], name: str = "look") -> Tool:
    """A tool that keeps what its turn was shown."""

    @tool(name, effect=READS_WEB)
    async def look(turn: Turn, args: PageArgs) -> str:
        """Look."""
        shown = turn.shown
        seen.append(ShownEntries(shown.world, shown.people, shown.find_quote, shown.weigh_query))
        return ""

    return look


def provenance_options(*tools: Tool, **fields: Any) -> Options:
    """The options of a bench with these tools, the roles of the three people and sub-tasks."""
    given = {"agents": AgentsSettings(), "role_of": role_of, **fields}
    return Options(tools=[*make_reading_tools(), *tools], **given)


async def sources(bench: Bench, tape: str = "test:home") -> list[tuple[TapeEntry, Source]]:
    """Everything on a tape, with whose words it is."""
    return [(entry, source_of(entry)) for entry in await bench.entries(tape)]
