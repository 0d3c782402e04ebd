"""Doctor findings of turns and messages that do not come to an end, and of backups. Each fault is planted."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.gateway.quarantine import Quarantine, release_entry
from bubbot.home import Home, WriterLock
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.ports.checks import Finding
from bubbot.stores.sqlite.backups import ExtraFiles, write_backup
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from tests.doubles import START, CountingIds
from tests.planting import examine, found, plants, write
from tests.raw import tamper

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")


def outbox(store: SqliteStore, channel: str) -> Outbox:
    return Outbox(TapeService(store, outbox_tape(channel), now=lambda: START, new_id=CountingIds()))


def stuck(home: Home, later: timedelta, *, runs: bool = False) -> dict[str, Finding]:
    """What the doctor says of turns and messages, while a bot has the home or none."""
    with WriterLock(home) if runs else nullcontext():
        return found(examine(home, "delivery.", "turn.", "tape.", now=START + later))


def odd(path: Path, what: str) -> None:
    """Puts something into the place of a file."""
    if what == "folder":
        path.mkdir()
    elif what == "broken link":
        path.symlink_to("nowhere-at-all")
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes({"garbage": b"\xff\x00[=" * 3000, "nothing": b"", "closed": b"x"}[what])
    if what == "closed":
        path.chmod(0)


class TestMessages:
    @plants("delivery.ok", "delivery.late", "delivery.stuck")
    def test_those_that_wait_for_long(self, home: Home) -> None:
        async def say(store: SqliteStore) -> None:
            for number in range(3):
                await outbox(store, "work-bot").enqueue(
                    f"work-bot:{number}", f"k{number}", (MessagePart("7", "hello"),), {}
                )

        write(home, say)
        assert "3 messages wait" in stuck(home, HOUR / 2, runs=True)["delivery.ok"].cause
        late = stuck(home, 2 * HOUR, runs=True)["delivery.late"]
        assert "3 messages of the channel work-bot" in late.cause
        assert "delivery.ok" in stuck(home, 2 * HOUR)  # no bot runs that could deliver them
        assert list(stuck(home, 2 * DAY, runs=True)) == ["delivery.late"]
        assert stuck(home, 2 * DAY)["delivery.stuck"].fix == "bubbot run"

    def test_those_that_arrived_were_given_up_or_wait_in_a_terminal_are_well(self, home: Home) -> None:
        async def say(store: SqliteStore) -> None:
            box = outbox(store, "telegram")
            first = await box.enqueue("telegram:1", "a", (MessagePart("1", "hello"),), {})
            await box.record_receipt(first, 0, Receipt("9"))
            await box.abandon(await box.enqueue("telegram:1", "b", (MessagePart("1", "hello"),), {}), "blocked")
            await outbox(store, "stdin").enqueue("stdin:default", "c", (MessagePart("default", "hello"),), {})

        write(home, say)
        assert list(stuck(home, 30 * DAY, runs=True)) == ["delivery.ok"]


class TestTurns:
    @staticmethod
    async def begun(store: SqliteStore) -> None:
        tape = TapeService(store, "chat", now=lambda: START, new_id=CountingIds())
        await tape.append_event("before")
        await tape.open_fork([event("turn/start", {"attempt": 1})])

    @staticmethod
    async def begun_with_a_fork(store: SqliteStore) -> None:
        tape = TapeService(store, "chat", now=lambda: START, new_id=CountingIds())
        await tape.append_event("before")
        turn = await tape.open_fork([event("turn/start", {"attempt": 1})])
        await turn.fork([event("noted")])

    def test_a_fork_of_a_turn_is_no_turn(self, home: Home) -> None:
        write(home, self.begun_with_a_fork)
        assert stuck(home, HOUR)["turn.interrupted"].cause.startswith("1 turn was interrupted")

    @plants("turn.interrupted", "turn.stuck")
    def test_one_that_is_open_for_long(self, home: Home) -> None:
        write(home, self.begun)
        assert "turn.interrupted" in stuck(home, HOUR)
        assert list(stuck(home, HOUR, runs=True)) == ["delivery.ok"]
        for runs, fix in ((True, f"kill {os.getpid()}"), (False, "bubbot run")):
            finding = stuck(home, 2 * DAY, runs=runs)["turn.stuck"]
            assert (finding.level, finding.fix) == ("warning", fix)
            assert "on the tape chat is open since 2026-11-21" in finding.cause


class TestReading:
    @plants("tape.damaged")
    def test_a_tape_that_cannot_be_read(self, home: Home) -> None:
        async def say(store: SqliteStore) -> None:
            await outbox(store, "telegram").enqueue("telegram:1", "a", (MessagePart("1", "hello"),), {})

        write(home, say)
        tamper(home.database, "UPDATE entries SET payload = '{'")
        finding = stuck(home, HOUR)["tape.damaged"]
        assert (finding.level, finding.fix) == ("problem", "bubbot tape verify")
        assert "bubbot/outbox/telegram" in finding.cause

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("what", ["folder", "broken link", "loop", "pipe", "garbage", "nothing", "closed"])
    def test_whatever_stands_in_the_place_of_a_file_no_check_fails_over_it(self, home: Home, what: str) -> None:
        shutil.rmtree(home.path)
        for name in ("config.toml", "bubbot.db", "bubbot.db-wal", "daemon.lock", "backups", "key"):
            home.path.mkdir(mode=0o700, exist_ok=True)
            if name == "key":
                home.config.write_text('[model]\napi_key_file = "key"\n[channels.telegram]\ntoken_file = "key"\n')
            odd(home.path / name, what)
            told = found(examine(home, deep=True))
            assert "doctor.failed" not in told, (name, told["doctor.failed"])
            assert {"home.ok", "disk.ok", "python.ok"} <= set(told)
            shutil.rmtree(home.path)

    def test_a_home_in_use_is_read_and_left_alone(self, home: Home) -> None:
        with WriterLock(home):
            told = found(examine(home, deep=True))
        assert f"Process {os.getpid()} " in told["lock.held"].cause


class TestBackups:
    def told(self, home: Home, later: timedelta) -> dict[str, Finding]:
        return found(examine(home, "backup.", now=START + later))

    @plants("backup.young", "backup.none", "backup.old", "backup.ok")
    def test_none_and_an_old_one(self, home: Home) -> None:
        async def say(store: SqliteStore) -> None:
            await outbox(store, "telegram").enqueue("telegram:1", "a", (MessagePart("1", "hello"),), {})

        assert not self.told(home, 30 * DAY)  # nothing was said yet
        write(home, say)
        assert list(self.told(home, DAY)) == ["backup.young"]
        assert self.told(home, 8 * DAY)["backup.none"].fix == "bubbot backup"
        assert list(self.told(home, 7 * DAY)) == ["backup.young"]
        folder = home.path / "backups"
        folder.mkdir()
        for useless in (folder / ".being-made", folder / "empty"):
            useless.mkdir()
        (folder / "nothing.db").touch()
        assert "backup.none" in self.told(home, 8 * DAY)
        (folder / "a.db").write_text("not one of ours")
        assert "backup.none" in self.told(home, 8 * DAY)
        for name, made in (("b", START), ("c", START - 9 * DAY)):
            write_backup(home.database, folder / name, ExtraFiles(), made)
        assert list(self.told(home, 3 * DAY)) == ["backup.ok"]
        assert list(self.told(home, 7 * DAY)) == ["backup.ok"]
        assert "10 days ago" in self.told(home, 10 * DAY)["backup.old"].cause


class TestQuarantine:
    @plants("home.quarantine")
    def test_a_restored_home_until_it_is_released(self, home: Home) -> None:
        def tape(store: SqliteStore) -> TapeService:
            return TapeService(store, "bubbot/home", now=lambda: START, new_id=CountingIds())

        async def restore(store: SqliteStore) -> None:
            await Quarantine(tape(store)).record_restore(
                "copy", created="2026-11-21T20:21:00+00:00", head="1:0f", bubbot="1"
            )

        async def release(store: SqliteStore) -> None:
            await tape(store).append([release_entry(deliver=False, intents=0, inbounds=0, jobs=0)])

        assert not examine(home, "home.quarantine")
        write(home, restore)
        told = found(examine(home))["home.quarantine"]
        assert (told.level, told.fix) == ("warning", f"bubbot restore --release --home {home.path}")
        assert "restored from copy, of 2026-11-21T20:21:00 UTC" in told.cause
        write(home, release)
        assert not examine(home, "home.quarantine")
