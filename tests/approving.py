"""Tools that act outside, for tests of approvals, and people's answers to their cards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.arguments.fields import Args
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.settings import SettingsSection
from bubbot.ports.turn import Turn, TurnResult
from bubbot.settings.loader import ModelSettings
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, timestamp
from bubbot.tape.provenance import Source
from bubbot.tape.query import TapeQuery
from bubbot.tool import READS_WEB, CallPlan, Effect, EffectKind, GrantKind, GrantTarget, Tool, tool
from tests.made_settings import make_settings
from tests.turns import KeptChannel

CARD = re.compile(r"Approval ([2-9A-Z]{5})")
SANDBOXED = Effect(EffectKind.OUTSIDE, has_network=False)


HELLO = "hello"
"""What a post says by default."""
POSTS = Effect(source=Source.OWN)
"""It acts outside, and answers in its own words."""


class PostArgs(Args, frozen=True):
    """The arguments of `post.send`."""

    to: str
    text: str = ""


class PageArgs(Args, frozen=True):
    """The arguments of `page.read`."""

    address: str


class RunArgs(Args, frozen=True):
    """The arguments of `sandbox.run`."""

    command: str


def acting_tools(send: Callable[[str, str], None], pages: Callable[[str], str] = lambda _: "a page") -> Sequence[Tool]:
    """Make tools that send something, read a page, and run a command; `send` gets the name and what was done."""

    async def plan_post(_turn: Turn, args: PostArgs) -> CallPlan:
        return CallPlan(POSTS, f"to {args.to}:\n{args.text or HELLO}", GrantTarget(GrantKind.RECIPIENT, args.to))

    @tool("post.send", effect=POSTS, plan=plan_post)
    async def post_send(turn: Turn, args: PostArgs) -> str:
        """Send a text to somebody."""
        send("post.send", f"{args.to}: {args.text or HELLO}")
        return f"sent to {args.to}"

    async def plan_page(_turn: Turn, args: PageArgs) -> CallPlan:
        domain = args.address.partition("//")[2].partition("/")[0]
        site = ".".join(domain.split(".")[-2:])
        return CallPlan(READS_WEB, args.address, GrantTarget(GrantKind.DOMAIN, domain), args.address, site)

    @tool("page.read", effect=READS_WEB, plan=plan_page)
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


class ApprovalBench:
    """A bot with acting tools on a terminal's channel, whose person is the owner.

    Attributes:
        app: the bot.
        channel: what people have read.
        done: what the tools did, as their names and texts.
        sessions: those in which something may be under way.
    """

    def __init__(self, app: Bot, channel: KeptChannel, done: list[tuple[str, str]]) -> None:
        self.app, self.channel, self.done = app, channel, done
        self._count = 0
        self.sessions = {"stdin:default", "stdin:other"}

    async def say(
        self,
        text: str,
        *,
        session: str = "default",
        provenance: str = "own",
        language: str = "",
        direct: bool = True,
    ) -> TurnResult:
        """Say something, or forward it, and wait for the answer."""
        self._count += 1
        self.sessions.add(f"stdin:{session}")
        now = timestamp(datetime.now(UTC))
        sender = Sender("1", "Ann", language=language)
        key = f"{id(self)}:{self._count}"
        result = await self.app.ask(
            Inbound("stdin", key, session, sender, text, now, direct=direct, provenance=provenance)
        )
        await self.settle()
        return result

    async def settle(self) -> None:
        """Wait until no session has anything to do."""
        async with asyncio.timeout(60):
            # Sessions tell nobody that they are done.
            while any(  # noqa: ASYNC110
                self.app.runtime.session_activity(session) != (False, 0) for session in self.sessions
            ):
                await asyncio.sleep(0.01)

    @property
    def card(self) -> str:
        """The id of the newest card."""
        return card_ids(self.channel.texts)[-1]

    @property
    def cards(self) -> list[str]:
        """The ids of all cards."""
        return card_ids(self.channel.texts)

    async def facts(self, name: str, tape: str = "") -> list[JsonObject]:
        """The data of the events of this name, on the tape of the first chat by default."""
        return [entry.payload["data"] for entry in await self.events(name, tape) if not entry.erased]

    async def events(self, name: str, tape: str = "") -> Sequence[TapeEntry]:
        """The events of this name, on the tape of the first chat by default."""
        service = self.app.tape("stdin:default")
        query = TapeQuery(tape or service.name, kinds=(Kind.EVENT,), names=(name,))
        return (await service.fetch([query]))[0]

    async def results(self) -> list[str]:
        """The results of all calls in the first chat."""
        service = self.app.tape("stdin:default")
        entries = (await service.fetch([TapeQuery(service.name, kinds=(Kind.TOOL_RESULT,))]))[0]
        return [item["content"] for entry in entries for item in entry.payload["results"]]


@asynccontextmanager
async def approving(
    home: Path,
    model: ScriptedModel,
    *,
    tools: Sequence[Tool] = (),
    done: list[tuple[str, str]] | None = None,
    pages: Callable[[str], str] = lambda _: "a page",
    sections: Sequence[SettingsSection] = (),
    **settings: Any,
) -> AsyncIterator[ApprovalBench]:
    """Open the bot of `ApprovalBench`; `sections` are further settings, `settings` are those of `[approvals]`."""
    channel, acted = KeptChannel("stdin"), [] if done is None else done
    wrappers = PortWrappers(
        channel=lambda _: channel,
        model=lambda _: model,
        tools=[*acting_tools(lambda name, text: acted.append((name, text)), pages), *tools],
    )
    chosen = make_settings(ApprovalSettings(**settings), *sections, model=ModelSettings(name="scripted"))
    async with open_app(chosen, Home(home), wrappers=wrappers) as app:
        await app.recover_all()
        yield ApprovalBench(app, channel, acted)
