"""The feature: which programs read tapes, and what they want to send. What serves them is a process of its own, `bubbot mcp serve`."""

from __future__ import annotations

from secrets import token_urlsafe

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel, Lifecycle
from bubbot.features.mcp.serve.facts import CLIENTS_TAPE
from bubbot.features.mcp.serve.sending import MCP_ORIGIN, SendTurns
from bubbot.features.mcp.serve.service import McpClients
from bubbot.settings.loader import Settings

TOKEN_BYTES = 32


def create_lasting(kernel: Kernel, _settings: Settings) -> Feature:
    """Build the feature; it depends on no settings, and reads its tape when it is first asked."""
    clients = McpClients(
        kernel.open_tape(CLIENTS_TAPE),
        lambda: token_urlsafe(TOKEN_BYTES),
        projections=kernel.projections,
        first_session=kernel.first_session,
        kernel=kernel,
    )
    wishes = clients.wishes
    assert wishes is not None
    return Feature(
        name="mcp.serve",
        tools=make_tools(McpClients, lambda: clients),
        services=(clients,),
        sources={MCP_ORIGIN: SendTurns()},
        traces=(CLIENTS_TAPE,),
        on_merged=(wishes.apply_merge,),
        lifecycle=Lifecycle(on_recovered=wishes.expire),
    )
