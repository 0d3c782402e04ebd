"""Recall measured on long conversations with marked evidence: python -m benchmarks.search.recall FOLDER [--meaning].

FOLDER has a folder for each chat, with `chat.json` and `questions.json` as BEAM publishes them (`chats/100K/N/chat.json` and
`probing_questions/probing_questions.json` of mohammadtavakoli78/BEAM). It has no licence: it is read from a path. All chats
are tapes of one database with one index. A question counts as hit if one of the entries that are marked as its evidence is
among the first 5, 8 and 20. Chats with odd and with even numbers are reported apart, so that a rule that was fitted to one
half shows on the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from bubbot.features.strategies.meaning import MAX_ALIKE, MAX_PASSAGE_CHARS, MeaningSearch, lasting_name
from bubbot.features.strategies.recall import MAX_RANKED, join_ranks
from bubbot.features.strategies.retrieval import EVIDENCE_KINDS
from bubbot.models.embeddings.index import EmbeddingIndex
from bubbot.stores.sqlite.index.fill import IndexWriter
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import message
from bubbot.tape.query import Ranked, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch

FIRST = (5, 8, 20)
_MARK = re.compile(r"\s*->->.*", re.DOTALL)
"""What ends a message of a person in the published files: the place of its plan."""

Ranker: TypeAlias = Callable[[TapeService, str], Awaitable[Sequence[int]]]


@dataclass(frozen=True)
class Question:
    """A question about a chat.

    Attributes:
        sort: what it asks for, such as `temporal_reasoning`.
        evidence: the ids of the entries that answer it.
    """

    sort: str
    text: str
    evidence: frozenset[int]


@dataclass(frozen=True)
class Chat:
    """A conversation: messages as (role, text), and the questions about it."""

    number: int
    messages: Sequence[tuple[str, str]]
    questions: Sequence[Question]

    @classmethod
    def read(cls, folder: Path) -> Chat:
        """Read a chat; the entry of a message has the number of its place, from 1."""
        turns = [turn for part in json.loads((folder / "chat.json").read_text("utf-8")) for turn in part["turns"]]
        said = [each for turn in turns for each in turn]
        ids = {each["id"]: place for place, each in enumerate(said, 1)}
        asked = json.loads((folder / "questions.json").read_text("utf-8"))
        questions = [
            Question(sort, each["question"], evidence)
            for sort, some in asked.items()
            for each in some
            if (evidence := frozenset(ids[one] for one in _numbers(each.get("source_chat_ids")) if one in ids))
        ]
        return cls(int(folder.name), [(each["role"], _MARK.sub("", each["content"])) for each in said], questions)

    @property
    def tape(self) -> str:
        """The name of its tape."""
        return f"chat{self.number}"


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)


async def rank_by_words(tape: TapeService, text: str) -> Sequence[int]:
    """Rank as the strategy `retrieval` does."""
    query = TapeQuery(tape.name, Ranked(text), kinds=EVIDENCE_KINDS, limit=MAX_RANKED)
    return [entry.id for entry in (await tape.fetch([query]))[0]]


def ranker_with_meaning(index: EmbeddingIndex, names: dict[str, str]) -> Ranker:
    """Return the ranking by words and by meaning together."""

    async def rank(tape: TapeService, text: str) -> Sequence[int]:
        found = await index.find(names[tape.name], text[:MAX_PASSAGE_CHARS], 1 << 40, MAX_ALIKE)
        alike = sorted(found, key=lambda passage: passage.likeness, reverse=True)
        return join_ranks(await rank_by_words(tape, text), [passage.id for passage in alike])

    return rank


async def measure(chats: Sequence[Chat], rank: Ranker, open_tape: Callable[[str], TapeService]) -> None:
    """Print the share of questions that are hit, by half and by sort, and the time of a question."""
    hits: dict[str, list[list[bool]]] = defaultdict(list)
    began, asked = time.perf_counter(), 0
    for chat in chats:
        for question in chat.questions:
            found, asked = await rank(open_tape(chat.tape), question.text), asked + 1
            hit = [bool(question.evidence & {*found[:most]}) for most in FIRST]
            for name in ("odd" if chat.number % 2 else "even", "all", question.sort):
                hits[name].append(hit)
    for name, some in hits.items():
        shares = "  ".join(
            f"@{most} {100 * sum(column) / len(some):5.1f}"
            for most, column in zip(FIRST, zip(*some, strict=True), strict=True)
        )
        print(f"{name:26} {len(some):4}  {shares}")
    print(f"{1000 * (time.perf_counter() - began) / max(1, asked):.1f} ms a question")


async def run(folder: Path, *, by_meaning: bool) -> None:
    """Measure all chats of a folder."""
    chats = [Chat.read(each) for each in sorted(folder.iterdir(), key=lambda path: path.name) if each.is_dir()]
    with tempfile.TemporaryDirectory() as made:
        store = await open_store(Path(made) / "bubbot.db", salt=os.urandom, now=_now)
        try:
            await _write(store, chats)

            def open_tape(name: str) -> TapeService:
                return TapeService(store, name, now=_now, new_id=str)

            await measure(chats, rank_by_words, open_tape)
            if by_meaning:
                index = EmbeddingIndex(Path(made) / "passages.db")
                search = MeaningSearch(index, open_tape, is_on=lambda: True)
                for chat in chats:
                    await search.follow(open_tape(chat.tape))
                names = {chat.tape: await lasting_name(open_tape(chat.tape)) for chat in chats}
                print("\nwith meaning")
                await measure(chats, ranker_with_meaning(index, names), open_tape)
                await index.aclose()
        finally:
            await store.aclose()


async def _write(store: SqliteStore, chats: Sequence[Chat]) -> None:
    for chat in chats:
        await store.append([Batch(chat.tape, tuple(message(role, text) for role, text in chat.messages))])
    writer = IndexWriter(store.path)
    while await writer.step():
        pass
    await writer.aclose()


def _now() -> datetime:
    return datetime(2026, 11, 21, 12, tzinfo=UTC)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--meaning", action="store_true", help="also with embeddings; takes some minutes")
    given = parser.parse_args()
    asyncio.run(run(given.folder, by_meaning=given.meaning))


if __name__ == "__main__":
    main()
