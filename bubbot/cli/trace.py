"""`bubbot trace`: opens the page that shows what happened, with or without a running bot."""

from __future__ import annotations

import asyncio
import os
import signal
import webbrowser
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Annotated, Any

from bubbot.app.commands import find_command
from bubbot.app.trace import admit_owner, end_tokens, issue_token, open_trace, pages_address
from bubbot.arguments.fields import Args
from bubbot.cli.commands import carry_out
from bubbot.cli.invocation import Invocation, parse_count, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_on_stderr
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError, ToolRetry
from bubbot.server.pages import serve_pages
from bubbot.settings.environment import has_display
from bubbot.shell_command import Argument, CommandFailure, CommandGroup
from bubbot.tape.boundary import Viewer
from bubbot.tool import validate_args

LOOPBACK = "127.0.0.1"
DEFAULT_TOKEN_DAYS = 30
DAY_SECONDS = 86400


def parse_port(text: str) -> int:
    """Parse a port. Raise `ValueError` with a sentence."""
    if not (text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port: use a number from 0 to 65535")
    return int(text)


class TraceArgs(Args, frozen=True):
    """The arguments of `bubbot trace`."""

    port: Annotated[int, Argument("the port to listen on (default: any)", "PORT", parse_port)] = 0
    no_browser: Annotated[bool, Argument("print the address only")] = False
    token: Annotated[
        str | None,
        Argument(
            "print the running bot's address with a token for an owner or auditor such as telegram:42, and end",
            "ACCOUNT",
        ),
    ] = None
    end_tokens: Annotated[bool, Argument("end all tokens of the running bot's page, once it is started again")] = False
    days: Annotated[
        int, Argument(f"days for which the token is valid (default: {DEFAULT_TOKEN_DAYS})", "N", parse_count)
    ] = DEFAULT_TOKEN_DAYS


@local_command("trace", example="trace\ntrace --token telegram:42 --days 7")
def trace(invocation: Invocation, args: TraceArgs) -> int:
    """Look at sessions, turns and requests in a browser.

    Serve the trace page on this machine until Ctrl-C, and print its address, which holds a token: sessions, turns step by
    step, exactly what a model was shown, search, charts. It works while the bot runs, and writes nothing but your judgements. With [trace] port the
    running bot serves the page itself, to people with a token: --token makes one.
    """
    if args.end_tokens and args.token is not None:
        raise usage_error("bubbot trace", "--token and --end-tokens exclude each other: give one of them")
    setup = load_setup(invocation)
    if args.end_tokens:
        end_tokens(setup.home)
        show("All tokens of the trace page end once the running bot is started again.")
        return 0
    if args.token is not None:
        _print_token(setup, args.token, args.days)
        return 0
    asyncio.run(_serve(setup, args.port, browse=not args.no_browser))
    return 0


def _print_token(setup: CommandSetup, account: str, days: int) -> None:
    person, token = issue_token(setup.home, account, days * DAY_SECONDS)
    address = setup.settings.trace.address
    show(f"{address}/?token={token}" if address else token)
    show_on_stderr(
        f"It shows {person} everything if they own a channel, else the chats that `bubbot access audits` lists."
    )
    if setup.settings.trace.port is None:
        show_on_stderr("Nobody serves the page yet: set [trace] port, and start the bot again.")


async def _serve(setup: CommandSetup, port: int, *, browse: bool) -> None:
    async def submit(name: str, arguments: Mapping[str, Any], _viewer: Viewer) -> None:
        command = find_command(name)
        assert command is not None
        try:
            parsed = validate_args(name, command.args, arguments)
        except ToolRetry as error:
            raise ConfigError(str(error)) from error
        result = await carry_out(setup, command, parsed)
        if isinstance(result, CommandFailure):
            raise ConfigError(result.text.strip())

    token = urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    async with open_trace(setup.settings, setup.home, submit) as opened:
        address = pages_address(setup.settings.trace, host=LOOPBACK, port=port)
        async with serve_pages(opened.pages, address, admit_owner(token)) as bound:
            link = f"http://{LOOPBACK}:{bound}/?token={token}"
            show(link, flush=True)
            show_on_stderr("Whoever has this address sees everything; Ctrl-C ends the page.")
            if browse and has_display():
                await asyncio.to_thread(webbrowser.open, link)
            await _wait_for_signal()


async def _wait_for_signal() -> None:
    """Wait for Ctrl-C, or for SIGTERM: the ordinary ends."""
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    await ending.wait()


TRACE_COMMANDS = CommandGroup("trace", (trace,))
