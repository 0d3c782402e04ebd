"""What the doctor says of the recording for training."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.errors import ConfigError, TapeCorrupt
from bubbot.features.learn.live.checks import DEFAULT_KEY, check_endpoint, check_late
from bubbot.features.learn.live.facts import RlRewardLate, RlSessionBegan, RlSessionEnded
from bubbot.features.learn.live.health import read_health
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.home import Home
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import HealthContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import timestamp
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.doubles import START
from tests.fakes.rl_proxy import RlProxy, serving
from tests.learn.recording import recorded_by, recording
from tests.planting import found, look, mend, mends, plants, table

CHATS = ["telegram:42"]


def reader(tape: TapeService, **settings: Any) -> HomeReader:
    @asynccontextmanager
    async def open_tape(_name: str) -> AsyncIterator[TapeService]:
        yield tape

    section = LearnSettings(**{"endpoint_key": "a key", "endpoint_sessions": CHATS, **settings})
    return HomeReader(Path("home"), Path("config.toml"), section, lambda: START, ZoneInfo("UTC"), open_tape)


@pytest.fixture
def tape(memory_store: InMemoryStore) -> TapeService:
    return TapeService(memory_store, LEARN_TAPE, now=lambda: START, new_id=str)


async def ids(home: HomeReader) -> list[str]:
    return [*found([*await check_endpoint(home), *await check_late(home)])]


@plants("learn.ok", "learn.default_key", "learn.no_chats", "learn.unreachable", "learn.unencrypted")
async def test_it_says_where_calls_go_and_what_is_unsafe_or_away(tape: TapeService) -> None:
    assert await ids(reader(tape)) == []
    async with serving(RlProxy()) as proxy:
        assert await ids(reader(tape, endpoint=proxy.url)) == ["learn.ok"]
        assert await ids(reader(tape, endpoint=proxy.url, endpoint_key=DEFAULT_KEY)) == [
            "learn.default_key",
            "learn.ok",
        ]
        assert await ids(reader(tape, endpoint=proxy.url, endpoint_sessions=[])) == ["learn.no_chats"]
    assert await ids(reader(tape, endpoint=proxy.url)) == ["learn.unreachable"]
    assert await ids(reader(tape, endpoint="http://proxy.invalid:1")) == ["learn.unencrypted", "learn.unreachable"]


@mends("learn.default_key", "learn.no_chats", "learn.unencrypted")
def test_the_command_of_a_finding_mends_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "plain")
    home.path.mkdir()
    good = {"endpoint": "http://127.0.0.1:1", "endpoint_key": "a key", "endpoint_sessions": CHATS}
    right = f"[learn]\n{table(**good)}"
    for finding, key, wrong in (
        ("learn.default_key", "endpoint_key", DEFAULT_KEY),
        ("learn.no_chats", "endpoint_sessions", []),
        ("learn.unencrypted", "endpoint", "http://proxy.invalid:1"),
    ):
        home.config.write_text(f"[learn]\n{table(**{**good, key: wrong})}")
        mend(lambda: look("learn.live", home), finding, tmp_path, text=right)


@pytest.mark.parametrize("name", ["learn/rl_began", "learn/accepted"])
async def test_a_fact_with_which_no_bot_starts_is_not_kept_secret(tape: TapeService, name: str) -> None:
    await tape.append_event(name, {"offer": "x", "session": 5})
    with pytest.raises(TapeCorrupt, match=name):
        await check_late(reader(tape))


@plants("learn.late")
async def test_it_counts_judgements_that_came_too_late(tape: TapeService) -> None:
    facts = [
        RlSessionBegan("telegram:42", "home/1", "rl-1", "http://127.0.0.1:1"),
        RlSessionEnded("telegram:42", "rl-1"),
        RlRewardLate("telegram:42", "rl-1", "turn", 1.0),
    ]
    await tape.append([fact.to_entry() for fact in facts])
    home = reader(tape, endpoint="http://127.0.0.1:1")
    (finding,) = found(await check_late(home)).values()
    assert finding.id == "learn.late"
    assert finding.cause.startswith("1 judgements came after")
    context = HealthContext(Texts(), timestamp(START), "UTC")
    assert (await read_health(home, context)).rows == (), "no session is open"


async def test_a_proxy_without_its_key_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="endpoint_key"):
        async with recording(tmp_path, recorded_by(RlProxy(url="http://127.0.0.1:1"), endpoint_key=None)):
            pass


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://name:word@host"},
        {"endpoint": "ftp://host"},
        {"endpoint_sessions": ["everybody"]},
        {"endpoint_idle": 1},
        {"endpoint_model": ""},
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LearnSettings(**wrong)
