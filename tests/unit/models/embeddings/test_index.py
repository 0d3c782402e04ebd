"""The index of passages by meaning, with its real model in its real child process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bubbot.errors import ModelUnavailable
from bubbot.models.embeddings.index import EmbeddingIndex
from bubbot.ports.passages import Coverage, Passage

PASSAGES = [
    Passage(3, "The automobile is parked on level four."),
    Passage(5, "We planted roses in the garden."),
    Passage(9, "Dinner was pasta."),
]


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[EmbeddingIndex]:
    made = EmbeddingIndex(tmp_path / "passages.db")
    yield made
    await made.aclose()


def children() -> set[int]:
    """The processes that this one started."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for each in lists for pid in each.read_text().split()}


async def child_of(index: EmbeddingIndex) -> int:
    """Make it start its child; returns that one's id."""
    before = children()
    await index.coverage("chat")
    (pid,) = children() - before
    return pid


async def end_of(path: Path) -> None:
    """Wait until a file of a process is gone."""
    async with asyncio.timeout(20):
        while path.is_symlink() or path.exists():  # noqa: ASYNC110, ASYNC240 - nothing tells of it
            await asyncio.sleep(0)


async def test_passages_are_found_by_what_they_mean_and_the_file_is_derived(
    index: EmbeddingIndex, tmp_path: Path
) -> None:
    child = await child_of(index)
    assert await index.coverage("chat") == Coverage()
    assert await index.find("chat", "car", 100, 5) == []
    await index.add("chat", PASSAGES, Coverage(9, "noon"))
    assert await index.coverage("chat") == Coverage(9, "noon")
    (first, *others) = await index.find("chat", "Where did I leave my car?", 100, 2)
    assert first.id == 3
    assert len(others) == 1
    assert first.likeness > 0.4 > others[0].likeness
    assert 3 not in [found.id for found in await index.find("chat", "Where did I leave my car?", 3, 5)]
    assert await index.find("another chat", "car", 100, 5) == []
    assert (tmp_path / "passages.db").stat().st_mode & 0o777 == 0o600

    os.kill(child, signal.SIGKILL)
    assert (await index.find("chat", "What did we eat?", 100, 1))[0].id == 9, "another child reads the file"

    (tmp_path / "passages.db").unlink()  # as an erasure does
    assert await index.find("chat", "car", 100, 5) == []
    assert await index.coverage("chat") == Coverage()
    await index.add("chat", PASSAGES, Coverage(9, "noon"))
    await index.forget("chat")
    assert await index.coverage("chat") == Coverage()

    await index.aclose()
    (tmp_path / "passages.db").write_bytes(b"no database, but long enough to be one" * 100)
    assert await index.coverage("chat") == Coverage(), "a damaged file begins anew"


async def test_the_likenesses_are_those_of_the_published_model(index: EmbeddingIndex) -> None:
    texts = ["That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    await index.add("chat", [Passage(number, text) for number, text in enumerate(texts, 1)], Coverage(3, ""))
    found = {each.id: each.likeness for each in await index.find("chat", "That is a happy person", 100, 3)}
    # From its model card.
    assert [found[1], found[2], found[3]] == pytest.approx([0.695, 0.943, 0.257], abs=0.002)


async def test_a_child_that_nobody_asks_ends(tmp_path: Path) -> None:
    index = EmbeddingIndex(tmp_path / "passages.db", idle_seconds=0.0)
    await end_of(Path(f"/proc/{await child_of(index)}"))
    assert await index.coverage("chat") == Coverage(), "it starts again"
    await index.aclose()


async def test_a_child_that_says_no_more_is_ended_before_another_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(
        "import os\n"
        "input()\n"
        """os.write(1, b'{"coverage": [0, ""]}\\n')\n"""
        "os.close(1)\n"
        "os.read(0, 1)  # until its input ends\n"
    )
    monkeypatch.setattr("bubbot.models.embeddings.index.WORKER_FILE", program)
    index = EmbeddingIndex(tmp_path / "passages.db")
    first = await child_of(index)
    await end_of(Path(f"/proc/{first}/fd/1"))
    assert first in children()
    await index.coverage("chat")
    assert first not in children()
    await index.aclose()


async def test_without_the_extra_the_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.models.embeddings.index.find_spec", lambda _: None)
    with pytest.raises(ModelUnavailable, match="embeddings is not installed"):
        await EmbeddingIndex(tmp_path / "passages.db").coverage("chat")
