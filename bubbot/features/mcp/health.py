"""What is reported of servers: how many tools models may call, and which are off since they changed."""

from __future__ import annotations

from bubbot.features.mcp.facts import MCP_TAPE
from bubbot.features.mcp.settings import McpSettings
from bubbot.features.mcp.state import MCP_PROJECTION, McpState
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow
from bubbot.tape.projection import read_projection

NAME = "mcp"


def mcp_health(context: HealthContext, state: McpState, pid: int | None = None) -> FeatureHealth:
    """Report it; `pid` is the process id of the child if one runs."""
    if not len(state.servers):
        return FeatureHealth(name=NAME)
    say = context.texts.say
    offered, changed = len([*state.offered]), [each.fact for each in state.changed]
    lines = [say("st_mcp_is", servers=len(state.servers), tools=offered)]
    if changed:
        names = ", ".join(f"{each.server}/{each.tool}" for each in changed)
        lines.append(say("st_mcp_changed", tools=names))
    data = {
        "mcp": {"servers": len(state.servers), "tools": offered, "changed": len(changed), "is_running": pid is not None}
    }
    return FeatureHealth(name=NAME, rows=(HealthRow(say("st_mcp"), tuple(lines), is_trouble=bool(changed)),), data=data)


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report it while no bot runs."""
    settings = home.settings
    if not isinstance(settings, McpSettings) or not settings.enabled:
        return FeatureHealth(name=NAME)
    async with home.open_tape(MCP_TAPE) as tape:
        return mcp_health(context, await read_projection(MCP_PROJECTION, tape))
