"""Workers on one PostgreSQL server are killed, frozen and restarted, and the server too: nothing lost, doubled, swapped or overspent."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import psycopg
import pytest

from bubbot.stores.postgres.schema import SCHEMA
from tests.e2e import chaos_judge, hurried, unfenced
from tests.e2e.chaos import LIMIT_TOKENS, Chaos, Seat, chaos
from tests.e2e.chaos_judge import Verdict, begin, judge, live
from tests.e2e.chaos_provider import CALL_TOKENS
from tests.postgres_server import OWNER, SUPERUSER, wake_statement, without_savepoint

WORKERS = 4


@pytest.mark.timeout(300)
async def test_workers_that_are_killed_and_frozen_keep_every_promise(tmp_path: Path) -> None:
    async with chaos(tmp_path, workers=WORKERS, chats=6, spenders=1) as stage:
        stage.provider.seconds = 1.0  # so that previews are on their way
        stage.odds = {"kill": 2, "freeze": 2, "restart": 1}
        found = await live(stage, messages=36, seconds=8, times=4, seed=1)
    assert found.faults() == {}, show(stage, found)


@pytest.mark.proof
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [47])
async def test_sixty_disturbances_of_many_workers(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with chaos(tmp_path, workers=WORKERS, chats=200, spenders=4) as stage:
        found = await live(stage, messages=3_000, seconds=600, times=60, seed=seed)
    with capsys.disabled():
        print(f"\n{show(stage, found)}")
    assert found.faults() == {}, show(stage, found)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_the_judge_finds_what_is_planted(tmp_path: Path) -> None:
    """Each fault is planted from outside into a run without one, as it would look if workers had made it."""
    async with chaos(tmp_path, workers=1, chats=4, spenders=1) as stage:
        found = await live(stage, messages=24, seconds=3, times=0, seed=3)
        assert found.faults() == {}, show(stage, found)
        on_telegram = next(seat for seat in stage.seats if seat.platform.name == "telegram" and len(plain(seat)) > 1)
        [first, second, *_] = plain(on_telegram)

        on_telegram.said.append("say never")  # as if the platform had been told that the message was taken
        assert list((await judge(stage)).faults()) == ["lost"]
        on_telegram.said.pop()

        await bot_api(stage, "sendMessage", chat_id=on_telegram.chat, text=f"answer to <{first}>")
        assert list((await judge(stage)).faults()) == ["doubled"]
        await bot_api(stage, "deleteMessage", chat_id=on_telegram.chat, message_id=max(on_telegram.room.chat.messages))

        numbers = {text: number_of(on_telegram, f"answer to <{text}>") for text in (first, second)}
        for number, text in ((numbers[first], second), (numbers[second], first)):
            await edit(stage, on_telegram, number, f"answer to <{text}>")
        assert list((await judge(stage)).faults()) == ["swapped"]
        for text, number in numbers.items():
            await edit(stage, on_telegram, number, f"answer to <{text}>")

        act = next(text for kind, text in stage.service.done if kind == "never")
        stage.service.act("never", act, "")
        assert list((await judge(stage)).faults()) == ["twice"]
        stage.service.done["never", act] -= 1

        stage.service.act("post", "say 1", "")
        assert list((await judge(stage)).faults()) == ["twice"], "nobody said yes"
        del stage.service.done["post", "say 1"]

        del stage.service.done["key", act]
        assert list((await judge(stage)).faults()) == ["undone"]
        stage.service.done["key", act] = 1

        stage.provider.used["0"] = LIMIT_TOKENS + 2 * CALL_TOKENS
        assert list((await judge(stage)).faults()) == ["overspent"]
        del stage.provider.used["0"]
        assert (await judge(stage)).faults() == {}

        with psycopg.connect(stage.url.replace(f"//{OWNER}@", f"//{SUPERUSER}@"), autocommit=True) as conn:
            conn.execute("ALTER TABLE bubbot.entries DISABLE TRIGGER USER")
            conn.execute("DELETE FROM bubbot.entries WHERE payload LIKE '%inbox/done%'")
        assert list((await judge(stage)).faults()) == ["lost", "damaged"]


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_without_the_fence_workers_that_freeze_break_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos_judge, "SETTLE_SECONDS", 60.0)
    found = {}
    for name, target in (("fenced", hurried.BOT), ("unfenced", unfenced.BOT)):
        (tmp_path / name).mkdir()
        async with chaos(tmp_path / name, workers=3, chats=8, target=target) as stage:
            stage.provider.seconds, stage.odds = 1.0, {"freeze": 1}
            found[name] = await live(stage, messages=80, seconds=20, times=14, seed=1)
        with capsys.disabled():
            print(f"\n{name}: {show(stage, found[name])}")
    assert found["fenced"].faults() == {}
    assert found["unfenced"].faults()


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_without_the_savepoint_around_a_job_messages_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos_judge, "SETTLE_SECONDS", 40.0)
    async with chaos(tmp_path, workers=2, chats=4) as stage:
        stage.provider.seconds = 1.0
        await begin(stage)  # a process would not start with it
        with psycopg.connect(stage.url, autocommit=True) as conn:
            conn.execute(f"SET search_path = {SCHEMA}, {SCHEMA}_jobs, pg_temp")
            conn.execute(without_savepoint(wake_statement()).encode())
        found = await live(stage, messages=40, seconds=5, times=0, seed=1)
    with capsys.disabled():
        print(f"\n{show(stage, found)}")
    assert found.lost


def plain(seat: Seat) -> list[str]:
    """The messages that needed no card."""
    return [text for text in seat.said if text.startswith("say")]


def number_of(seat: Seat, text: str) -> int:
    """The number of the message of the bot with this text."""
    found: int = next(number for number in seat.room.chat.messages if seat.room.text_of(number) == text)
    return found


async def edit(stage: Chaos, seat: Seat, number: int, text: str) -> None:
    """Let the bot's account change a message."""
    await bot_api(stage, "editMessageText", chat_id=seat.chat, message_id=number, text=text)


async def bot_api(stage: Chaos, method: str, **values: object) -> None:
    """Do something with the bot's account on Telegram, beside the bot."""
    server = stage.telegram.server
    address = f"{server.base_url}{server.bot.token}/{method}"
    async with aiohttp.ClientSession(raise_for_status=True) as client, client.post(address, json=values):
        pass


def show(stage: Chaos, found: Verdict) -> str:
    """What happened, for people."""
    faults = [f"{kind}: {fault}" for kind, some in found.faults().items() for fault in some[:10]]
    ends = {worker.home.name: worker.codes for worker in stage.workers}
    return "\n".join([str(found), f"{dict(stage.counts)}, ended {ends}", *faults])
