"""What the doctor finds of servers of tools: whether they are on, what is missing, and which tools are off. It reaches none of them."""

from __future__ import annotations

from bubbot.errors import ConfigError, StoreError, TapeCorrupt
from bubbot.features.mcp.facts import MCP_TAPE, ServerAdded
from bubbot.features.mcp.settings import McpSettings
from bubbot.features.mcp.state import MCP_PROJECTION
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command
from bubbot.tape.projection import read_projection


async def check_mcp(home: HomeReader) -> list[Finding]:
    """Report the servers and tools that are on, and what keeps any of them from working."""
    settings = home.settings
    if not isinstance(settings, McpSettings) or not settings.enabled:
        return []
    try:
        async with home.open_tape(MCP_TAPE) as tape:
            state = await read_projection(MCP_PROJECTION, tape)
    except (StoreError, TapeCorrupt):
        return []  # the check of the database reports it
    servers = [each.fact for each in state.servers]
    findings = _check_secrets(home, servers)
    findings += await _check_sandbox(home, settings, [server for server in servers if not server.url])
    for change in state.changed:
        server, tool = change.fact.server, change.fact.tool
        gone = "its server does not offer it any more" if not change.fact.digest else "it is not as you pinned it"
        cause = f"The tool {tool} of {server} is off: {gone}. Look at it, and pin it again if you want it."
        findings.append(Finding("mcp.changed", "warning", cause, f"bubbot mcp pin {server} {tool}"))
    offered = len([*state.offered])
    if servers and not offered:
        cause = "[mcp] is on, but no tool of a server is pinned: models may call none. Look at the tools, and pin some."
        findings.append(Finding("mcp.nothing_pinned", "warning", cause, f"bubbot mcp tools {servers[0].name}"))
    if not servers:
        cause = "[mcp] is on, but there is no server of tools. Add one, with its program or its address."
        findings.append(Finding("mcp.no_servers", "warning", cause, "bubbot mcp add --help"))
    if not findings:
        names = ", ".join(server.name for server in servers)
        findings.append(
            Finding("mcp.ok", "ok", f"Models may call {offered} tools of others, of these servers: {names}.")
        )
    return findings


def _check_secrets(home: HomeReader, servers: list[ServerAdded]) -> list[Finding]:
    # Imported here: `bubbot status` loads the checks, and asks none of them.
    from bubbot.features.mcp.secrets import SECRETS_FILE, McpSecrets

    findings = []
    for server in servers:
        try:
            secrets = McpSecrets(home.home).find(server.name)
        except ConfigError as error:
            return [Finding("mcp.secrets_unreadable", "problem", f"{error}.", "bubbot mcp list")]
        missing = [*(set(server.headers) - set(secrets.headers)), *(set(server.env) - set(secrets.env))]
        if missing:
            cause = (
                f"The server {server.name} needs {', '.join(sorted(missing))}, whose value is not in {SECRETS_FILE}: backups do not hold it. "
                "Remove the server, and add it again."
            )
            findings.append(Finding("mcp.secret_missing", "problem", cause, f"bubbot mcp remove {server.name}"))
    return findings


async def _check_sandbox(home: HomeReader, settings: McpSettings, programs: list[ServerAdded]) -> list[Finding]:
    if not programs:
        return []
    from bubbot.features.mcp.host import ServerSandbox
    from bubbot.sandbox.sandbox import SandboxUnusable, choose_sandbox, format_bubblewrap_command

    try:
        await choose_sandbox(ServerSandbox(settings.sandbox, network=False, readable=()))
    except SandboxUnusable as error:
        names = ", ".join(server.name for server in programs)
        cause = f"The programs of {names} cannot run: {error}. Nothing runs in a weaker sandbox instead."
        fix = format_bubblewrap_command() if settings.sandbox in ("auto", "bwrap") else ""
        return [Finding("mcp.sandbox_unusable", "problem", cause, fix or edit_command(home.config))]
    if settings.sandbox == "none":
        cause = "[mcp] sandbox is none: the program of a server may read and change all that the bot may, its database and its keys included."
        return [Finding("mcp.no_sandbox", "warning", cause, edit_command(home.config))]
    return []


CHECKS = (Check("the servers of tools", check_mcp, reads_tapes=True),)
