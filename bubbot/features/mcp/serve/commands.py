"""The commands about programs that read tapes, in a shell; `bubbot mcp serve` is the process that serves them."""

from __future__ import annotations

import sys
from secrets import token_urlsafe
from typing import Annotated

from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.command import make_group
from bubbot.errors import ConfigError
from bubbot.features.mcp.serve.facts import CLIENT_NAME, CLIENT_NAME_FORM, CLIENTS_TAPE
from bubbot.features.mcp.serve.options import ServeOptions
from bubbot.features.mcp.serve.service import McpClients
from bubbot.shell_command import Argument, Command, CommandContext, CommandResult, command

TOKEN_BYTES = 32


def parse_port(text: str) -> int:
    """Parse a port. Raise `ValueError` with a sentence."""
    if not (text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port: use a number from 0 to 65535")
    return int(text)


class ServeArgs(Args, frozen=True):
    """Whom to serve, and how."""

    client: Annotated[
        str,
        Meta(pattern=rf"^({CLIENT_NAME})?\Z", extra={"form": CLIENT_NAME_FORM}),
        Argument("serve this program by standard input and output", "NAME"),
    ] = ""
    http: Annotated[
        int | None,
        Argument("serve all programs with a token on this port of 127.0.0.1; 0 is any free one", "PORT", parse_port),
    ] = None


@command("mcp serve", example="mcp serve --client my-editor\nmcp serve --http 8765")
async def serve(context: CommandContext, args: ServeArgs) -> CommandResult:
    """Serve granted chats to programs that speak MCP.

    Programs search, read, list anchors and topics, read the memory of a chat, and ask how an answer came about: in the chats that
    `bubbot mcp client-add` granted to them, and in no others. Nothing is written. It works while the bot runs, and ends with its
    standard input, Ctrl-C or SIGTERM.
    """
    if bool(args.client) is (args.http is not None):
        raise ConfigError(
            "name either --client NAME, to serve one program by standard input and output, or --http PORT, to serve those with a token"
        )
    options: ServeOptions = context.settings
    # Imported here: the SDK takes a second to import, and only this command needs it.
    from bubbot.features.mcp.serve.serving import serve_http, serve_stdio

    if args.http is None:
        await serve_stdio(context, options, args.client)
    else:
        await serve_http(context, options, args.http, _show_address)
    return CommandResult("")


def _show_address(port: int) -> None:
    sys.stdout.write(f"http://127.0.0.1:{port}/mcp\n")
    sys.stdout.flush()


async def open_clients(context: CommandContext) -> McpClients:
    """Return the running bot's own programs, or those of the home."""
    if (running := context.service(McpClients)) is not None:
        return running
    return McpClients(
        context.open_tape(CLIENTS_TAPE), lambda: token_urlsafe(TOKEN_BYTES), first_session=context.first_session
    )


SERVE: Command = serve
COMMANDS = make_group(
    "mcp",
    McpClients,
    open_clients,
    "Let programs on this machine that speak MCP, the Model Context Protocol, read chats: an editor, an assistant.",
    (SERVE,),
    help_line="let programs read chats",
)
