"""`bubbot trace`: opens the page that shows what happened, with or without a running bot."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import webbrowser
from base64 import urlsafe_b64encode

from bubbot.app.trace import admit_owner, end_tokens, issue_token, open_trace, pages_address
from bubbot.cli.arguments import decode_text, parse_count
from bubbot.cli.output import show, show_on_stderr
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.server.pages import serve_pages
from bubbot.settings.environment import has_display

LOOPBACK = "127.0.0.1"
DEFAULT_TOKEN_DAYS = 30
DAY_SECONDS = 86400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Serve the trace page on this machine until Ctrl-C, and print its address, which holds a token: sessions, turns step by "
        "step, exactly what a model was shown, search, charts. It only reads, and works while the bot runs. "
        "With [trace] port the running bot serves the page itself, to people with a token: --token makes one."
    )
    parser.epilog = "example: bubbot trace\nexample: bubbot trace --token telegram:42 --days 7"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--port", type=_port, default=0, metavar="PORT", help="the port to listen on (default: any)")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--token",
        metavar="ACCOUNT",
        help="print the running bot's address with a token for an owner or auditor such as telegram:42, and end",
    )
    group.add_argument(
        "--end-tokens", action="store_true", help="end all tokens of the running bot's page, once it is started again"
    )
    parser.add_argument(
        "--days",
        type=parse_count,
        default=DEFAULT_TOKEN_DAYS,
        metavar="N",
        help=f"days for which the token is valid (default: {DEFAULT_TOKEN_DAYS})",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C, or print a token."""
    setup = load_setup(args)
    if args.end_tokens:
        end_tokens(setup.home)
        show("All tokens of the trace page end once the running bot is started again.")
        return 0
    if args.token is not None:
        _print_token(setup, decode_text(args.token, "--token"), args.days)
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
    token = urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    async with open_trace(setup.settings, setup.home) as trace:
        address = pages_address(setup.settings.trace, host=LOOPBACK, port=port)
        async with serve_pages(trace.pages, address, admit_owner(token)) as bound:
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


def _port(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use a number from 0 to 65535")
    return int(text)
