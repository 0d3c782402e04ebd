"""A daemon whose tools act on a service over HTTP, and may need a yes. Arguments: as those of `kill_daemon`.

The address of the service is in `HOME/service`. Further points: `act:before` and `act:after`, around the request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from bubbot.arguments.fields import Args
from bubbot.ports.turn import Turn
from bubbot.tool import READS_WORLD, CallPlan, Effect, GrantKind, GrantTarget, Tool, tool
from tests.e2e import forked
from tests.e2e.hurried import hurry
from tests.e2e.kill_child import Killer
from tests.e2e.kill_daemon import main

CHILD = "tests.e2e.approval_daemon:run"


class PostArgs(Args, frozen=True):
    """What to send, and to whom."""

    to: str
    text: str = "hello"


class PageArgs(Args, frozen=True):
    """What to read."""

    address: str


def service_tools(address: str, killer: Killer) -> Sequence[Tool]:
    """Build a tool that sends, once and on no account twice, and one that reads an address."""

    async def act(kind: str, text: str) -> None:
        killer.at("act:before")
        body = {"kind": kind, "text": text, "key": ""}
        async with aiohttp.ClientSession(raise_for_status=True) as client, client.post(address, json=body):
            pass
        killer.at("act:after")

    async def plan_post(_turn: Turn, args: PostArgs) -> CallPlan:
        return CallPlan(Effect(), f"to {args.to}:\n{args.text}", GrantTarget(GrantKind.RECIPIENT, args.to))

    @tool("post.send", plan=plan_post)
    async def post_send(turn: Turn, args: PostArgs) -> str:
        """Send a text to somebody."""
        await act("post", f"{args.to}: {args.text}")
        return f"sent to {args.to}"

    async def plan_page(_turn: Turn, args: PageArgs) -> CallPlan:
        domain = args.address.partition("//")[2].partition("/")[0]
        return CallPlan(READS_WORLD, args.address, GrantTarget(GrantKind.DOMAIN, domain), args.address)

    @tool("page.read", effect=READS_WORLD, plan=plan_page)
    async def page_read(turn: Turn, args: PageArgs) -> str:
        """Read a page."""
        await act("page", args.address)
        return "words of a page"

    return post_send, page_read


def run(arguments: Sequence[str]) -> int:
    """The process."""
    os.umask(0o077)
    if forked.ANEW not in os.environ:
        hurry()
    home, *rest = arguments
    point, broken = [*rest, "", ""][:2]
    address = (Path(home) / "service").read_text()
    asyncio.run(main(Path(home), point, broken, build_tools=lambda killer: service_tools(address, killer)))
    return 0
