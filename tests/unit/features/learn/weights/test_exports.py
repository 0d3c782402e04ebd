"""`[learn] after`: after so many rated turns there is an export, once, wherever the process was cut off, and an owner hears of it."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.offline import offline_snapshot
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights import turns
from bubbot.features.learn.writing import RECEIPT_SUFFIX
from bubbot.gateway.facts import HomeRestored
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.health import HealthContext
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.erasure import HOME_TAPE
from bubbot.texts import Texts
from tests.doubles import SteppingClock
from tests.family import GROUP, MEMBER, OWNER, family
from tests.judging import react, sent
from tests.made_settings import make_settings
from tests.weights import WeightsBench, find_weights_feature, weights_bench

NAME = "learn-0001-trl-sft.jsonl"


def records(path: Path) -> list[Any]:
    """The records of an export whose receipt is right."""
    receipt = json.loads(path.with_name(path.name + RECEIPT_SUFFIX).read_text())
    assert receipt["sha256"] == sha256(path.read_bytes()).hexdigest()
    return [json.loads(line) for line in path.read_text().splitlines()]


def missing(bench: WeightsBench) -> str:
    """What the health says of turns."""
    context = HealthContext(Texts(), "2026-11-30T00:00:00+00:00", "UTC")
    (row,) = bench.feature.feature().health(context).rows  # type: ignore[misc]
    return row.lines[0]


async def test_after_so_many_rated_turns_there_is_an_export_with_its_receipt_and_its_fact(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with weights_bench(home, after=3) as bench:
        await bench.rate(2)
        await bench.say("not rated")
        await bench.act()
        assert await bench.learned("learn/ready") == []
        assert missing(bench) == "2 of 3 rewarded turns; 1 more until the next export"
        assert missing(bench) in await bench.say(",learn", "owner")
        await bench.rate(1, "other")
        await bench.act()
        (fact,) = await bench.learned("learn/ready")
        path = home / "exports" / NAME
        assert (fact["file"], fact["turns"], fact["number"]) == (f"exports/{NAME}", 3, 1)
        assert fact["sha256"] == sha256(path.read_bytes()).hexdigest()
        assert sorted(each["prompt"][-1]["content"][-5:] for each in records(path)) == ["say 0", "say 0", "say 1"]
        names = {bench.bot.tape(f"stdin:{chat}").name for chat in ("default", "other")}
        assert set(fact["heads"]) == set(fact["exported"]) == names
        assert missing(bench) == "0 of 3 rewarded turns; 3 more until the next export"
        assert f"Newest export: number 1, exports/{NAME}." in await bench.say(",learn", "owner")


async def test_the_next_export_has_only_what_came_since(tmp_path: Path) -> None:
    async with weights_bench(tmp_path, after=2) as bench:
        await bench.rate(2)
        await bench.act()
        await bench.say(",rate 1")  # a turn that was exported
        await bench.rate(1)
        await bench.act()
        assert len(await bench.learned("learn/ready")) == 1
    async with weights_bench(tmp_path, after=2) as bench:
        await bench.rate(1, "other")
        await bench.act()
        first, second = await bench.learned("learn/ready")
        assert (first["turns"], second["turns"], second["number"]) == (2, 2, 2)
        assert len(records(tmp_path / "exports" / "learn-0002-trl-sft.jsonl")) == 2


async def test_a_judgement_that_was_taken_back_does_not_count(tmp_path: Path) -> None:
    async with weights_bench(tmp_path, after=5) as bench:
        await bench.rate(2)
        await bench.act()
        assert missing(bench).startswith("2 of 5")
        await bench.say(",rate none")
        await bench.act()
        assert missing(bench).startswith(("1 of 5", "2 of 5"))


async def test_off_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "RewardedTurns", None)
    async with weights_bench(tmp_path) as bench:
        await bench.rate(3)
        await bench.act()
        assert await bench.learned("learn/ready") == []
        context = HealthContext(Texts(), "2026-11-30T00:00:00+00:00", "UTC")
        assert bench.feature.feature().health(context).rows == ()  # type: ignore[misc]
        assert "No export is written by itself" in await bench.say(",learn")


async def test_status_without_a_bot_says_the_same(tmp_path: Path) -> None:
    home = Home(tmp_path)
    async with weights_bench(tmp_path, after=3) as bench:
        await bench.rate(2)
    store = await open_store(home.database, salt=lambda size: b"s" * size, now=SteppingClock())
    try:
        settings = make_settings(LearnSettings(after=3))
        snapshot = await offline_snapshot(store, home, settings, now=lambda: datetime.now(UTC))
    finally:
        await store.aclose()
    (report,) = [each for each in snapshot.reports if each.name == "learn.weights"]
    assert report.rows[0].lines == ("2 of 3 rewarded turns; 1 more until the next export",)
    assert report.data == {"learn": {"turns": 2, "after": 3, "missing": 1}}


class TestCutOff:
    async def test_between_file_and_fact_the_whole_file_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with weights_bench(tmp_path, after=1) as bench:
            await bench.rate(1)
            bench_service = bench.feature.service
            monkeypatch.setattr(type(bench_service), "write", _stop)
            with pytest.raises(_Stopped):
                await bench.feature.act()
        monkeypatch.undo()
        path = tmp_path / "exports" / NAME
        before = path.stat()
        async with weights_bench(tmp_path, after=1) as bench:
            assert await bench.learned("learn/ready") == []
            await bench.act()
            (fact,) = await bench.learned("learn/ready")
            assert path.stat().st_mtime_ns == before.st_mtime_ns
            assert (fact["turns"], fact["sha256"]) == (1, sha256(path.read_bytes()).hexdigest())

    @pytest.mark.parametrize("left", ["part", "receipt", "receipt with both names"])
    async def test_what_is_not_known_to_be_whole_is_written_again(self, tmp_path: Path, left: str) -> None:
        path = tmp_path / "exports" / NAME
        path.parent.mkdir(parents=True)
        path.with_name(f"{NAME}.part").write_bytes(b"{")
        receipt = path.with_name(NAME + RECEIPT_SUFFIX)
        if left != "part":
            receipt.write_bytes(b"{}")
        if left == "receipt with both names":
            receipt.with_name(f"{receipt.name}.part").hardlink_to(receipt)
        async with weights_bench(tmp_path, after=1) as bench:
            await bench.rate(1)
            await bench.act()
            assert len(await bench.learned("learn/ready")) == 1
            assert len(records(path)) == 1
            assert not [*path.parent.glob("*.part")]

    @pytest.mark.parametrize("receipt", ["", "{}", "wrong"])
    async def test_a_file_of_somebody_else_stays_and_is_named(self, tmp_path: Path, receipt: str) -> None:
        path = tmp_path / "exports" / NAME
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        if receipt:
            path.with_name(NAME + RECEIPT_SUFFIX).write_text(receipt)
        async with weights_bench(tmp_path, after=1) as bench:
            await bench.rate(1)
            await bench.act()
            assert await bench.learned("learn/ready") == []
            assert path.read_text() == "mine"
            assert f"{path} or its receipt is there already" in bench.feature.trouble
            path.rename(path.with_name("elsewhere"))
            path.with_name(NAME + RECEIPT_SUFFIX).unlink(missing_ok=True)
            await bench.act()
            assert len(await bench.learned("learn/ready")) == 1
            assert bench.feature.trouble == ""

    async def test_what_stands_in_place_of_a_file_and_never_answers_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "exports").mkdir()
        for name in (NAME, NAME + RECEIPT_SUFFIX):
            os.mkfifo(tmp_path / "exports" / name)
        async with weights_bench(tmp_path, after=1) as bench, asyncio.timeout(20):
            await bench.rate(1)
            await bench.act()
            assert "is there already" in bench.feature.trouble

    @pytest.mark.parametrize("folder", ["taken/exports", "~nobody-is-called-that/exports", "a" * 300, "a\0b"])
    async def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path, folder: str) -> None:
        (tmp_path / "taken").write_text("a file")
        async with weights_bench(tmp_path, after=1, folder=folder) as bench:
            await bench.rate(1)
            await bench.act()
            assert "[learn] folder: " in bench.feature.trouble
            assert await bench.say("still here") != ""


async def test_a_restored_home_exports_nothing_until_its_release(tmp_path: Path) -> None:
    async with weights_bench(tmp_path) as bench:
        await bench.rate(1)
        restored = HomeRestored(backup="2026-11-01", created="2026-11-01T00:00:00", head="", bubbot="1")
        await bench.bot.features._kernel.open_tape(HOME_TAPE).append([restored.to_entry()])
    async with weights_bench(tmp_path, after=1) as bench:
        await bench.act()
        assert await bench.learned("learn/ready") == []
        assert "1 of 1 rewarded turn" in await bench.say(",learn", "owner")
        assert not (tmp_path / "exports").exists()


class _Stopped(Exception):
    """The process ends here."""


async def _stop(*_arguments: Any, **_more: Any) -> None:
    raise _Stopped


async def test_who_does_not_allow_training_does_not_count_and_an_owner_hears_once(tmp_path: Path) -> None:
    model = ScriptedModel({"rules": []})
    async with family(tmp_path, model, LearnSettings(after=2)) as bench:
        feature = find_weights_feature(bench.daemon.bot)
        for person in (OWNER, MEMBER):
            await bench.say("hello", person, person)
            await bench.say(",rate 5", person, person)
        await bench.say("hello, all", MEMBER, GROUP)
        await react(bench, sent(bench, "hello, all"), "👍", sender=OWNER, chat=GROUP)
        await feature.try_to_act()
        assert feature.count == 0
        await bench.say(",consent training yes", MEMBER, MEMBER)
        await feature.try_to_act()
        await bench.quiet()
        (fact,) = [each.data for each in await bench.entries(LEARN_TAPE) if each.name == "learn/ready"]
        assert fact["turns"] == 2


async def test_the_words_of_whom_nobody_asked_are_in_no_export(tmp_path: Path) -> None:
    model = ScriptedModel({"rules": []})
    async with family(tmp_path, model, LearnSettings(after=1)) as bench:
        feature = find_weights_feature(bench.daemon.bot)
        await bench.say("canary of Ben", MEMBER, MEMBER)
        await bench.say(",rate 5", MEMBER, MEMBER)
        await bench.say(",consent training yes", OWNER, OWNER)
        await bench.say("hello", OWNER, OWNER)
        await bench.say(",rate 5", OWNER, OWNER)
        await feature.try_to_act()
        await bench.quiet()
        told = [text for text in bench.channel.texts if "An export for training is ready" in text]
        assert told == ["An export for training is ready: exports/learn-0001-trl-sft.jsonl (1 rewarded turn, trl-sft)."]
        assert "canary" not in (tmp_path / "exports" / NAME).read_text()
        await feature.try_to_act()
        await bench.quiet()
        assert len([text for text in bench.channel.texts if "An export for training is ready" in text]) == 1


async def test_only_owners_offer_and_only_in_person(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel({"rules": []})) as bench:
        line = f",learn.offer openai/x weights=sha256:{'0' * 64}"
        assert "owner" in (await bench.say(line, MEMBER, MEMBER))[0]
        assert "only" in (await bench.say(line, OWNER, GROUP))[0]
        assert not await bench.entries(LEARN_TAPE)


async def test_weights_stay_in_use_if_the_owner_who_accepted_them_is_forgotten(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel({"rules": []}), agents={}) as bench:
        await bench.say(f",learn.offer openai/x weights=sha256:{'0' * 64}", OWNER, OWNER)
        assert "openai/x" in (await bench.say(",learn.accept", OWNER, OWNER))[0]
        await bench.say(",forget.me confirm=true", OWNER, OWNER)
    async with family(tmp_path, ScriptedModel({"rules": []}), agents={}) as bench:
        assert len(find_weights_feature(bench.daemon.bot).service.state.accepted) == 1
        facts = await bench.entries(LEARN_TAPE)
        assert all(f"tg:{OWNER}" not in str(each.payload) for each in facts)
        assert [each.name for each in await bench.entries("bubbot/people")][-1] == "people/finished"
