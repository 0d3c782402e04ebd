"""An answer of a tainted turn, on every door and platform: nothing in it is fetched when it is shown."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest

from bubbot.app.bot import PortWrappers, open_app
from bubbot.app.tapes import new_id, now
from bubbot.cli.chat.service import chat_service
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.gateway.inbox_views import inbound_from
from bubbot.home import Home
from bubbot.ports.channel import Channel, MessagePart
from bubbot.runtime.router import holds_command
from bubbot.server.api import Api
from bubbot.server.completions import Completions
from bubbot.server.network import NetworkSettings, serve_network
from bubbot.server.remote import RemoteChannel
from bubbot.settings.loader import ModelSettings
from channels.terminal.view import render_markdown
from tests.approving import acting_tools, approving
from tests.fakes.discord_sending import outgoing
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.telegram_channel import opened
from tests.fakes.telegram_server import scripted_server
from tests.made_settings import make_settings
from tests.turns import Played, calls, says
from tests.unit.features.trace.test_pages import look, pages_of
from tests.unit.runtime.test_quiet import EVIL, LIVE, is_fetched

TOKEN = "0123456789abcdef"
READ = calls("page_read", address="http://x.org/")
ANSWER = "\n\n".join(LIVE)


async def tainted_parts(home: Path) -> tuple[list[MessagePart], str]:
    """What a tainted turn sends to a platform, and the trace page of its answer with its export."""
    async with approving(home, Played(READ, says(ANSWER))) as bench:
        await bench.say("read http://x.org/")
        tape = bench.app.tape("stdin:default")
        pages = pages_of(bench.app.store)
        shown = "".join(
            [
                await look(pages, f"/session/{tape.name}"),
                await look(pages, f"/session/{tape.name}/export?first=1&last={await tape.head()}"),
            ]
        )
        return list(bench.channel.sent), shown


@asynccontextmanager
async def completing(
    home: Path,
    *,
    is_tainted: bool = True,
    commands: bool = False,
    answer: Mapping[str, Any] = MappingProxyType(says(ANSWER)),
) -> AsyncIterator[int]:
    """The port of a bot whose answers are programs' to show."""
    remote = RemoteChannel("stdin")

    def channel(_: Channel) -> Channel:
        return remote

    steps = (READ, answer) if is_tainted else (answer,)
    wrappers = PortWrappers(
        channel=channel, model=lambda _: Played(*steps), tools=acting_tools(lambda _name, _text: None)
    )
    settings = make_settings(ApprovalSettings(), model=ModelSettings(name="scripted"))
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(settings, Home(home), wrappers=wrappers))
        await app.recover_all()
        api = Api({})
        completions = Completions(
            api, remote, chat_service(app, remote), model="bot", commands=commands, now=now, new_id=new_id
        )
        yield await stack.enter_async_context(serve_network(api, NetworkSettings("127.0.0.1", 0, TOKEN), completions))


async def complete(port: int, *, stream: bool, text: str = "read http://x.org/") -> tuple[str, bool]:
    """What a program shows of an answer, and whether it was told that it is tainted."""
    body = {"messages": [{"role": "user", "content": text}], "stream": stream}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as answer,
    ):
        text, is_told = await answer.text(), answer.headers.get("X-Bubbot-Tainted") == "true"
    if not stream:
        return json.loads(text)["choices"][0]["message"]["content"], is_told
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    told = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk.get("bubbot_tainted")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks), told == ["stop"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_program_that_draws_a_completion_fetches_nothing(tmp_path: Path, stream: bool) -> None:
    async with completing(tmp_path) as port:
        shown, is_told = await complete(port, stream=stream)
    assert is_fetched(shown) == []
    assert "qk7" in shown, "the words stay"
    assert is_told


async def test_an_answer_says_what_all_its_model_calls_used(tmp_path: Path) -> None:
    said = {"role": "user", "content": "read http://x.org/"}
    body = {"messages": [said], "stream": True, "stream_options": {"include_usage": True}}
    async with (
        completing(tmp_path) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}) as session,
    ):
        async with session.post("/v1/chat/completions", json={"messages": [said]}) as answer:
            whole = (await answer.json())["usage"]
        async with session.post("/v1/chat/completions", json=body) as answer:
            *_, last = [json.loads(line[6:]) for line in (await answer.text()).splitlines() if line[:7] == "data: {"]
    assert last["choices"] == []
    for usage in (whole, last["usage"]):
        assert usage["prompt_tokens"] > usage["completion_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_a_clean_turn_stays_as_it_is(tmp_path: Path, stream: bool) -> None:
    async with completing(tmp_path, is_tainted=False) as port:
        assert await complete(port, stream=stream) == (ANSWER, False)


@pytest.mark.parametrize("commands", [False, True])
async def test_a_text_that_begins_with_a_comma_is_a_command_only_if_the_owner_says_so(
    tmp_path: Path, commands: bool
) -> None:
    """After a restart, too: what was accepted is on the tape."""
    async with completing(tmp_path, is_tainted=False, commands=commands) as port:
        for text in (",memory.save Eve is the owner.", " ,schedules", "\n,help"):
            answer, _ = await complete(port, stream=False, text=text)
            assert (answer == ANSWER) is not commands
    async with approving(tmp_path, Played(says("ok"))) as bench:
        found = await bench.events("inbox/received", "bubbot/inbox/stdin")
        assert [entry.data.get("is_plain_text", False) for entry in found] == [not commands] * 3
        assert all(holds_command(inbound_from(entry.data)) is commands for entry in found)


async def test_telegram_is_told_to_fetch_nothing(tmp_path: Path) -> None:
    parts, _ = await tainted_parts(tmp_path)
    async with scripted_server() as server, opened(server, link_previews=True) as channel:
        for part in parts:
            await channel.send(part)
        sent = server.sent("sendMessage")
    assert sent
    assert all(each["link_preview_options"] == {"is_disabled": True} for each in sent)


async def test_discord_is_told_to_fetch_nothing(tmp_path: Path) -> None:
    parts, _ = await tainted_parts(tmp_path)
    async with DiscordServer(limits=None) as server:
        room = server.guild("Home", server.user("Ann")).text("general")
        async with outgoing(server, link_previews=True) as out:
            for part in parts:
                await out.sending.send(
                    MessagePart(str(room.id), part.text[:1900], has_no_link_previews=part.has_no_link_previews)
                )
        assert room.messages
        assert all(message.flags & 1 << 2 for message in room.messages)


async def test_a_terminal_shows_no_image_and_no_link_that_it_opens_by_itself(tmp_path: Path) -> None:
    parts, _ = await tainted_parts(tmp_path)
    for part in parts:
        shown = render_markdown(part.text, width=100, colour=True)
        assert not re.search(r"\x1b[\]P_^]", shown), "no hyperlinks, and no images of any terminal's own"


async def test_the_trace_page_and_its_export_fetch_nothing(tmp_path: Path) -> None:
    _, shown = await tainted_parts(tmp_path)
    assert html.escape(EVIL) in shown
    assert not re.search(
        r"<(img|svg|image|link|iframe|object|video|source)\b[^>]*(evil|page)\.test", shown, re.IGNORECASE
    )
    assert not re.search(r'(?:href|src|srcset|style|action)="[^"]*(evil|page)\.test', shown)
