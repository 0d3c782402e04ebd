"""Tools that act outside, for tests of approvals, and people's answers to their cards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import Field

from bubbot.ports.tool import (
    READS_WORLD,
    CallPlan,
    Effect,
    EffectKind,
    GrantKind,
    GrantTarget,
    Tool,
    ToolArgs,
    tool,
)
from bubbot.ports.turn import Turn

CARD = re.compile(r"Approval ([2-9A-Z]{5})")
SANDBOXED = Effect(EffectKind.OUTSIDE, has_network=False)


class PostArgs(ToolArgs):
    """The arguments of `post.send`."""

    to: str
    text: str = Field(default="hello")


class PageArgs(ToolArgs):
    """The arguments of `page.read`."""

    address: str


class RunArgs(ToolArgs):
    """The arguments of `sandbox.run`."""

    command: str


def acting_tools(send: Callable[[str, str], None], pages: Callable[[str], str] = lambda _: "a page") -> Sequence[Tool]:
    """Make tools that send something, read a page, and run a command; `send` gets the name and what was done."""

    async def plan_post(_turn: Turn, args: PostArgs) -> CallPlan:
        return CallPlan(Effect(), f"to {args.to}:\n{args.text}", GrantTarget(GrantKind.RECIPIENT, args.to))

    @tool("post.send", plan=plan_post)
    async def post_send(turn: Turn, args: PostArgs) -> str:
        """Send a text to somebody."""
        send("post.send", f"{args.to}: {args.text}")
        return f"sent to {args.to}"

    async def plan_page(_turn: Turn, args: PageArgs) -> CallPlan:
        domain = args.address.partition("//")[2].partition("/")[0]
        return CallPlan(READS_WORLD, args.address, GrantTarget(GrantKind.DOMAIN, domain), args.address)

    @tool("page.read", effect=READS_WORLD, plan=plan_page)
    async def page_read(turn: Turn, args: PageArgs) -> str:
        """Read a page."""
        send("page.read", args.address)
        return pages(args.address)

    async def plan_run(_turn: Turn, args: RunArgs) -> CallPlan:
        return CallPlan(SANDBOXED, args.command)

    @tool("sandbox.run", effect=SANDBOXED, plan=plan_run)
    async def sandbox_run(turn: Turn, args: RunArgs) -> str:
        """Run a command."""
        send("sandbox.run", args.command)
        return "done"

    return post_send, page_read, sandbox_run


def card_ids(texts: Sequence[str]) -> list[str]:
    """The ids of the cards among these messages, oldest first, each once."""
    return list(dict.fromkeys(found[1] for text in texts for found in CARD.finditer(text.replace("*", ""))))
