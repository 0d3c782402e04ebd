"""Power cuts: what a working store has acknowledged is there, whatever the disk lost of what was not synced."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbot.app.stores import find_loss
from bubbot.errors import TapeCorrupt
from bubbot.home import Home
from bubbot.ops.doctor.database import read_database

ROOT = Path(__file__).parents[2]
CUTS = {False: 6, True: 20}
"""How many instants of how many stores; by `--proof`."""
SEEDS = {False: 1, True: 10}
HEADER, FRAME, PAGE = 32, 24 + 4096, 4096


def cuts(home: Home, seed: int, count: int) -> Iterator[set[int]]:
    """Stop a working store at random instants; yield the numbers of the entries that it has acknowledged."""
    chance = random.Random(seed)
    command = [sys.executable, "-m", "tests.contract.power_child", str(home.path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, bufsize=0) as child:
        output, text = child.stdout, b""
        assert output is not None
        try:
            for _ in range(count):
                for _ in range(chance.randrange(1, 25)):
                    text += output.readline()
                os.kill(child.pid, signal.SIGSTOP)
                os.waitpid(child.pid, os.WUNTRACED)
                os.set_blocking(output.fileno(), False)
                with suppress(BlockingIOError):
                    while block := os.read(output.fileno(), 1 << 16):
                        text += block
                os.set_blocking(output.fileno(), True)
                yield set(map(int, text.split()))
                os.kill(child.pid, signal.SIGCONT)
        finally:
            child.kill()


class Cut:
    """The files of a stopped store, to be damaged and looked at again and again."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = Home(folder)
        folder.mkdir()
        self.wal = folder / "bubbot.db-wal"
        self.files = {
            path: (home.path / path).read_bytes()
            for path in ("bubbot.db", "bubbot.db-wal", "had-database")
            if (home.path / path).exists()
        }
        self.log = self.files.get("bubbot.db-wal", b"")

    def put(self, log: bytes | None, database: bytes | None = None) -> Home:
        """Write the files, with another log or database; None as a log: none."""
        shutil.rmtree(self.home.path)
        self.home.path.mkdir()
        for name, content in self.files.items():
            (self.home.path / name).write_bytes(database if database and name == "bubbot.db" else content)
        self.wal.unlink(missing_ok=True)
        if log is not None:
            self.wal.write_bytes(log)
        return self.home

    def frames(self) -> Iterator[tuple[int, int, bool]]:
        """Where each frame of the log begins, its page, and whether a commit ends with it; none of an older log."""
        for start in range(HEADER, len(self.log) - FRAME + 1, FRAME):
            if self.log[start + 8 : start + 16] != self.log[16:24]:
                return
            page, size = (int.from_bytes(self.log[start + at : start + at + 4], "big") for at in (0, 4))
            yield start, page, size > 0

    def borders(self) -> list[int]:
        """Where a commit ends in the log, and where none has begun."""
        return [0, *(start + FRAME for start, _, commits in self.frames() if commits)]


def numbers(home: Home) -> set[int]:
    with closing(sqlite3.connect(home.database)) as conn:
        rows = conn.execute("SELECT json_extract(payload, '$.content') FROM entries WHERE payload IS NOT NULL")
        return {int(content.split()[0]) for (content,) in rows if content and content[0].isdecimal()}


def is_whole(home: Home, acknowledged: set[int]) -> bool:
    """Nothing that was acknowledged is missing, the mark is not ahead, and SQLite can read it.

    It cannot read a log that ends before what a checkpoint has taken from it: that log was synced, so no power cut leaves it.
    """
    try:
        return find_loss(home) is None and acknowledged <= numbers(home)
    except (sqlite3.DatabaseError, TapeCorrupt):
        return False


def problems(home: Home) -> list[str]:
    findings = read_database(home, now=datetime(2100, 1, 1, tzinfo=UTC), deep=True)[1]
    return [finding.id for finding in findings if finding.level == "problem"]


def tails(cut: Cut, synced: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """What a disk may have of a log that was synced up to there."""
    log, end = cut.log, max([synced, *cut.borders()])
    kept = log[:synced]
    yield "cut behind what was synced", kept
    yield "half a frame behind it", kept + chance.randbytes(chance.randrange(1, FRAME))
    if end > synced:
        yield "cut at another border", log[: chance.choice([border for border in cut.borders() if border >= synced])]
        yield "cut anywhere", log[: chance.randrange(synced, end)]
        place = chance.randrange(synced, end)
        yield "a byte changed", log[:place] + bytes([log[place] ^ 0xFF]) + log[place + 1 :]
        hole = chance.randrange(synced, end)
        yield "a sector never written", log[:hole] + bytes(min(512, len(log) - hole)) + log[hole + 512 :]


def torn_database(cut: Cut, synced: int, chance: random.Random) -> bytes:
    """The database during a checkpoint: of what the synced log holds, any page may be half written."""
    database = bytearray(cut.files["bubbot.db"])
    for page in {page for start, page, _ in cut.frames() if start < synced}:
        place = (page - 1) * PAGE
        if 0 < place < len(database) and chance.random() < 0.5:  # the first one says that there is a log
            database[place : place + PAGE // 2] = chance.randbytes(PAGE // 2)
    return bytes(database)


def test_a_power_cut_loses_nothing_acknowledged_and_a_lost_log_is_seen(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    is_proof = request.config.getoption("--proof")
    counts: Counter[str] = Counter()
    for seed in range(SEEDS[is_proof]):
        home, chance = Home(tmp_path / f"bot {seed}"), random.Random(seed)
        home.ensure()
        for number, acknowledged in enumerate(cuts(home, seed, CUTS[is_proof])):
            cut = Cut(home, tmp_path / f"cut {seed} {number}")
            assert is_whole(cut.put(cut.log), acknowledged), (seed, number)
            synced = cut.borders()[-1]
            for border in reversed(cut.borders()):
                if not is_whole(cut.put(cut.log[:border]), acknowledged):
                    break
                synced = border
            for name, log in tails(cut, synced, chance):
                assert is_whole(cut.put(log), acknowledged), (seed, number, name)
                counts[name] += 1
            assert problems(cut.put(cut.log[:synced], torn_database(cut, synced, chance))) == []
            assert acknowledged <= numbers(cut.home), (seed, number)
            counts["a checkpoint cut off"] += 1

            lost = acknowledged - numbers(cut.put(None))
            if find_loss(cut.put(None)) is None:
                assert len(lost) <= 10, "what was acknowledged since the last note"
                counts[f"log lost: {'up to 10 entries missing' if lost else 'nothing missing'}"] += 1
            else:
                counts["log lost: refused"] += 1
            shutil.rmtree(cut.home.path)
        counts["entries acknowledged"] += len(acknowledged)
        counts["instants"] += number + 1
    if is_proof:
        with capsys.disabled():
            print("", *(f"{name}: {count}" for name, count in counts.items()), sep="\n")
    assert counts["log lost: refused"] > 0
