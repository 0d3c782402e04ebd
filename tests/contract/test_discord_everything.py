"""Whatever Discord may send is received and read, and whatever we ask it is what it takes, by Discord's own description.

The default suite makes its messages from the types that discord.py declares. The proof also reads the description of
the API from the file that `BUBBOT_DISCORD_SPEC` names; it has no licence and is not part of this repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.ports.channel import Edit, Inbound, UnparsedUpdate
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.service import TapeService
from channels.discord.inbound import DiscordPlace, MessageScene, read_edit, read_message
from channels.discord.inbound_text import DiscordBotUser
from tests.docs.pages import ROOT
from tests.doubles import CountingIds, SteppingClock
from tests.fakes.discord_channel import receiving
from tests.fakes.discord_library import LibraryTypes
from tests.fakes.discord_messages import (
    DIRECT,
    GUILD,
    ME,
    ROOM,
    UNKNOWN_TYPES,
    MessageMaker,
    may_be_set_aside,
    shown_words,
)
from tests.fakes.discord_spec import RESULTS_VARIABLE, VARIABLE, Spec
from tests.fakes.discordapi.server import Server

needs_description = pytest.mark.skipif(
    not os.environ.get(VARIABLE),
    reason=f"{VARIABLE} does not name a copy of specs/openapi.json of discord/discord-api-spec",
)
PLACES = {ROOM: DiscordPlace(ROOM, space=GUILD), DIRECT: DiscordPlace(DIRECT, is_direct=True)}
BATCH = 100


def check(raw: dict[str, Any], found: object) -> str:
    """How a message ended; an assertion if it may not end so, or lost a word on its way."""
    if found is None:
        assert may_be_set_aside(raw), raw
        return "set aside"
    assert isinstance(found, Inbound | Edit), (found, raw)
    read = repr(found)
    if not isinstance(found, Edit):
        lost = [word for word in shown_words(raw) if word not in read]
        assert not lost, (lost, found, raw)
        assert found.text or found.attachments or found.quote, raw
    return "noted" if "[unsupported message" in read else "read"


def read_all(maker: MessageMaker, count: int) -> Counter[str]:
    """Read as many messages, each also as an edit."""
    ends: Counter[str] = Counter()
    for _ in range(count):
        raw = maker.make()
        scene = MessageScene(
            "dc", DiscordBotUser(ME, "Bubbot"), PLACES[raw["channel_id"]], {"51": "news"}, {"77": "crew"}
        )
        ends[check(raw, read_message(scene, raw))] += 1
        edit = read_edit(scene, {**raw, "edited_timestamp": "2026-11-22T10:05:00+00:00"})
        assert not isinstance(edit, UnparsedUpdate), (edit, raw)
    return ends


async def receive_all(maker: MessageMaker, count: int, inbox: Inbox) -> Counter[str]:
    """Send as many messages over the gateway; what comes of them is stored, and read again as it was."""
    ends: Counter[str] = Counter()
    async with Server(limits=None) as server, receiving(server) as (channel, heard):
        me = str(server.bot.id)
        for first in range(0, count, BATCH):
            batch = [
                json.loads(json.dumps(maker.make()).replace(f'"{ME}"', f'"{me}"'))
                for _ in range(min(BATCH, count - first))
            ]
            heard.events.clear()
            for raw in batch:
                server.gateway.odd("MESSAGE_CREATE", raw)
            for place, more in ((ROOM, {"guild_id": GUILD, "member": {"roles": []}}), (DIRECT, {})):
                number = str(2_000_000 + first + int(place))  # each place has a lane, in which this is the last
                last = {"id": number, "type": 0, "content": f"end {place}", "channel_id": place, **more,
                        "author": {"id": "7", "username": "ada"}, "timestamp": "2026-11-22T10:00:00+00:00"}  # fmt: skip
                server.gateway.odd("MESSAGE_CREATE", last)
            await server.until(lambda: sum(text.startswith("end ") for text in heard.texts) == 2)
            told = {one.message: one for one in heard.inbounds}
            stored = await asyncio.gather(*(inbox.accept(one) for one in heard.inbounds))
            assert [accepted and accepted.inbound for accepted in stored] == heard.inbounds
            assert not heard.unparsed, heard.unparsed
            for raw in batch:
                shown = json.loads(json.dumps(raw).replace(f'"{me}"', f'"{ME}"'))
                ends[check(shown, told.get(raw["id"]))] += 1
        assert channel.health().is_ready
    return ends


@pytest.fixture
def inbox(sqlite_store: SqliteStore, clock: SteppingClock, ids: CountingIds) -> Inbox:
    return Inbox(TapeService(sqlite_store, inbox_tape("dc"), now=clock, new_id=ids), ids)


async def test_every_message_that_the_library_knows_is_received(inbox: Inbox) -> None:
    ends = await receive_all(MessageMaker(1, LibraryTypes().resolve, {"$ref": "message/Message"}), 300, inbox)
    assert ends.total() == 300
    assert all(ends[end] for end in ("read", "set aside", "noted")), ends


@needs_description
@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_every_message_that_discord_describes_is_read() -> None:
    spec = Spec.load(os.environ[VARIABLE])
    maker = MessageMaker(2, lambda name: spec.resolve({"$ref": name}), {"$ref": "#/components/schemas/MessageResponse"})
    ends = read_all(maker, 100_000)
    print(dict(ends))
    assert ends.total() == 100_000
    assert ends["read"] > 40_000


@needs_description
@pytest.mark.proof
async def test_every_message_that_discord_describes_is_received(inbox: Inbox) -> None:
    spec = Spec.load(os.environ[VARIABLE])
    maker = MessageMaker(3, lambda name: spec.resolve({"$ref": name}), {"$ref": "#/components/schemas/MessageResponse"})
    assert (await receive_all(maker, 2_000, inbox)).total() == 2_000


@needs_description
@pytest.mark.proof
def test_the_maker_makes_what_the_description_allows() -> None:
    spec = Spec.load(os.environ[VARIABLE])
    schema = {"$ref": "#/components/schemas/MessageResponse"}
    maker = MessageMaker(4, lambda name: spec.resolve({"$ref": name}), schema)
    made = [message for message in (maker.make() for _ in range(300)) if message["type"] not in UNKNOWN_TYPES]
    assert [problem for message in made for problem in spec.problems(message, schema)] == []


ROUTES = {
    "GET /applications/@me", "GET /applications/{application_id}/commands", "PUT /applications/{application_id}/commands",
    "GET /users/@me", "POST /users/@me/channels", "DELETE /users/@me/guilds/{guild_id}",
    "GET /guilds/{guild_id}/members/{user_id}", "GET /gateway/bot", "GET /channels/{channel_id}", "PATCH /channels/{channel_id}",
    "POST /channels/{channel_id}/typing", "GET /channels/{channel_id}/messages", "POST /channels/{channel_id}/messages",
    "GET /channels/{channel_id}/messages/{message_id}", "PATCH /channels/{channel_id}/messages/{message_id}",
    "POST /interactions/{interaction_id}/{interaction_token}/callback", "POST /webhooks/{webhook_id}/{webhook_token}",
    "PATCH /webhooks/{webhook_id}/{webhook_token}/messages/{message_id}",
    "GET /webhooks/{webhook_id}/{webhook_token}/messages/@original",
    "PATCH /webhooks/{webhook_id}/{webhook_token}/messages/@original",
    "DELETE /webhooks/{webhook_id}/{webhook_token}/messages/@original",
}  # fmt: skip
"""Every request that the channel can make."""
KNOWN_DIFFERENCES = (
    re.compile(
        r"_errors'\]\[\d+\]\.code: '[A-Z_]+' is not of type 'integer'"
    ),  # the pages and the API have words there
    re.compile(r"^answer\$: 'code' is a required property"),  # of a 429; the pages call it optional
)


def judge(tmp_path: Path, *tests: str) -> list[tuple[str, int, list[str], list[str]]]:
    """Run tests of the fake server with the description as the judge of each call."""
    results = tmp_path / "judged"
    command = [sys.executable, "-m", "pytest", "-p", "tests.fakes.discord_judge", "-q", "-n", "0", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, RESULTS_VARIABLE: str(results), "PYTHONPATH": str(ROOT)}, text=True,
        capture_output=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return [tuple(json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def differences(problems: list[str]) -> list[str]:
    """The problems that are not known to be the description's."""
    return [problem for problem in problems if not any(known.search(problem) for known in KNOWN_DIFFERENCES)]


@needs_description
@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_every_request_of_the_channel_is_what_discord_takes(tmp_path: Path) -> None:
    names = sorted(
        str(path) for path in (ROOT / "tests" / "contract").glob("test_discord_*.py") if path != Path(__file__)
    )
    judged = judge(tmp_path, *names, str(ROOT / "tests" / "contract" / "test_channel_promises.py"))
    print(f"{len(judged)} requests, {len({route for route, *_ in judged})} routes")
    assert ROUTES - {route for route, *_ in judged} == set()
    # What a test asks wrongly on purpose is refused.
    assert [(route, wrong) for route, status, wrong, _ in judged if wrong and status not in (400, 404)] == []
    assert sum(1 for _, status, wrong, _ in judged if wrong and status in (400, 404)) <= 2
    assert [(route, status, bad) for route, status, _, told in judged if (bad := differences(told))] == []


@needs_description
@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_every_answer_of_the_fake_server_is_what_discord_gives(tmp_path: Path) -> None:
    names = sorted(str(path) for path in (ROOT / "tests" / "contract").glob("test_discordapi_*.py"))
    judged = judge(tmp_path, *names)
    print(f"{len(judged)} answers, {len({route for route, *_ in judged})} routes")
    assert [(route, status, bad) for route, status, _, told in judged if (bad := differences(told))] == []
