"""Each page of the database damaged in turn: found by the deep check of the doctor, which `tape verify` shares, or without any effect."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from bubbot.ops.doctor.database import read_database
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape.service import session_tape
from tests.contract.test_sqlite_attacks import fill
from tests.doubles import CountingSalt, SteppingClock
from tests.tapes import notes, whole

PAGE = 4096
BITS = {False: 1, True: 40}
"""How many bits are flipped in each page, one at a time; by `--proof`."""


def zeros(_pages: list[bytes], _number: int, _chance: random.Random) -> bytes:
    return bytes(PAGE)


def noise(_pages: list[bytes], _number: int, chance: random.Random) -> bytes:
    return chance.randbytes(PAGE)


def another(pages: list[bytes], number: int, chance: random.Random) -> bytes:
    """As a disk that writes to a wrong place."""
    return chance.choice(pages[:number] + pages[number + 1 :])


def half(pages: list[bytes], number: int, _chance: random.Random) -> bytes:
    """As a disk that loses a sector in the middle."""
    return pages[number][: PAGE // 2] + bytes(512) + pages[number][PAGE // 2 + 512 :]


def bit(pages: list[bytes], number: int, chance: random.Random) -> bytes:
    """Flip one, where the page holds something."""
    page = bytearray(pages[number])
    place = chance.choice([place for place, byte in enumerate(page) if byte] or [0])
    page[place] ^= 1 << chance.randrange(8)
    return bytes(page)


DAMAGES: dict[str, Callable[[list[bytes], int, random.Random], bytes]] = {
    "zeros": zeros,
    "noise": noise,
    "another page": another,
    "a lost sector": half,
    "one bit": bit,
}


async def grow(path: Path, texts: int) -> None:
    """Talk of a session, long enough for inner pages and overflow pages."""
    await fill(path)
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
    tape = session_tape(await store.workspace("/here"), "s")
    for number in range(texts):
        await store.append([notes(*(f"{number} {part} " + "x" * (number * 40) for part in range(4)), tape=tape)])
    await store.aclose()


def history(path: Path) -> Any:
    """Everything that the database answers from its tables, and by its store; an error is an answer that nobody takes for true.

    Forks and leases are the work of running turns, without a hash over it.
    """

    async def answers() -> list[Any]:
        store = await open_readonly(path)
        try:
            tapes = await store.tapes()
            return [tapes, [await whole(store, tape.name) for tape in tapes], await store.workspace("")]
        finally:
            await store.aclose()

    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        rows = [
            conn.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY 1, 2").fetchall()
            for table in ("entries", "tapes", "erased", "blobs")
        ]
    return rows, asyncio.run(answers())


def problems(home: Home) -> list[str]:
    findings = read_database(home, now=datetime(2100, 1, 1, tzinfo=UTC), deep=True)[1]
    return [finding.id for finding in findings if finding.level == "problem"]


def test_a_damaged_page_is_found_or_changes_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    is_proof = request.config.getoption("--proof")
    home, chance = Home(tmp_path), random.Random(35)
    asyncio.run(grow(home.database, 60 if is_proof else 3))
    with closing(sqlite3.connect(home.database)) as conn:
        newest = conn.execute("SELECT seq || ':' || lower(hex(chain)) FROM entries ORDER BY seq DESC").fetchone()[0]
    home.mark_database(newest)
    original = shutil.copy(home.database, tmp_path / "original")
    expected, content = history(home.database), Path(original).read_bytes()
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    assert problems(home) == []
    counts: Counter[tuple[str, str]] = Counter()
    silent: list[tuple[str, int]] = []
    for name, damage in DAMAGES.items():
        for number in range(len(pages)):
            for _ in range(BITS[is_proof] if name == "one bit" else 1):
                changed = damage(pages, number, chance)
                if changed == pages[number]:
                    continue
                home.database.write_bytes(b"".join([*pages[:number], changed, *pages[number + 1 :]]))
                if found := problems(home):
                    counts[name, found[0]] += 1
                elif history(home.database) == expected:
                    counts[name, "no effect"] += 1
                else:
                    silent.append((name, number + 1))
    with capsys.disabled():
        if is_proof:
            print(
                f"\n{len(pages)} pages",
                *(f"{name}: {outcome} {n}" for (name, outcome), n in sorted(counts.items())),
                sep="\n",
            )
    assert silent == []
    assert sum(counts.values()) > 4 * len(pages)
