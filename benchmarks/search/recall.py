"""Recall measured on long conversations with marked evidence: python -m benchmarks.search.recall FOLDER [--meaning].

FOLDER has a folder for each chat, with `chat.json` and `questions.json` as BEAM publishes them (`chats/100K/N/chat.json` and
`probing_questions/probing_questions.json` of mohammadtavakoli78/BEAM). It has no licence: it is read from a path. A message
may have its `date`; a question is asked on the day after the last one. All chats are tapes of one database with one index. A
question counts as hit if one of the entries that are marked as its evidence is among the first 5, 8 and 20, and among those
that the model would be shown. Chats with odd and with even numbers are reported apart, so that a rule that was fitted to
one half shows on the other.
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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from bubbot.features.strategies.meaning import MAX_ALIKE, MAX_PASSAGE_CHARS, MeaningSearch, lasting_name
from bubbot.features.strategies.recall import choose_evidence, join_ranks, rank_before
from bubbot.features.strategies.settings import ContextSettings
from bubbot.models.embeddings.index import EmbeddingIndex
from bubbot.stores.sqlite.index.fill import IndexWriter
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.service import TapeService
from bubbot.times.past import find_past_days

FIRST = (5, 8, 20)
_MARK = re.compile(r"\s*->->.*", re.DOTALL)
"""What ends a message of a person in the published files: the place of its plan."""

_UNDATED = datetime(2026, 11, 21, 12, tzinfo=UTC)
_BUDGET = ContextSettings().recall_tokens

Ranker: TypeAlias = Callable[[TapeService, str], Awaitable[Sequence[Sequence[int]]]]
"""Returns the rankings of a question."""


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
    """A conversation: messages as (role, text, date), and the questions about it."""

    number: int
    messages: Sequence[tuple[str, str, datetime]]
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
        messages = [(each["role"], _MARK.sub("", each["content"]), _read_date(each.get("date"))) for each in said]
        return cls(int(folder.name), messages, questions)

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


def _read_date(value: str | None) -> datetime:
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if value else _UNDATED


def ranker_by_words(asked: Mapping[str, datetime]) -> Ranker:
    """Return the ranking by words and by days, for tapes that are asked at these times."""

    async def rank(tape: TapeService, text: str) -> Sequence[Sequence[int]]:
        return await rank_before(tape, text, 1 << 40, find_past_days(text, asked[tape.name], UTC), UTC)

    return rank


def ranker_with_meaning(rank_by_words: Ranker, index: EmbeddingIndex, names: Mapping[str, str]) -> Ranker:
    """Return the ranking by words and by meaning together."""

    async def rank(tape: TapeService, text: str) -> Sequence[Sequence[int]]:
        found = await index.find(names[tape.name], text[:MAX_PASSAGE_CHARS], 1 << 40, MAX_ALIKE)
        alike = sorted(found, key=lambda passage: passage.likeness, reverse=True)
        return [*await rank_by_words(tape, text), [passage.id for passage in alike]]

    return rank


async def measure(chats: Sequence[Chat], rank: Ranker, open_tape: Callable[[str], TapeService]) -> None:
    """Print the share of questions that are hit, by half and by sort, and the time of a question."""
    hits: dict[str, list[list[bool]]] = defaultdict(list)
    began, asked = time.perf_counter(), 0
    for chat in chats:
        tape = open_tape(chat.tape)
        for question in chat.questions:
            found, asked = join_ranks(*await rank(tape, question.text)), asked + 1
            shown = await choose_evidence(tape, found, 1 << 40, _BUDGET)
            hit = [bool(question.evidence & {*some}) for some in (*(found[:most] for most in FIRST), shown)]
            for name in ("odd" if chat.number % 2 else "even", "all", question.sort):
                hits[name].append(hit)
    for name, some in hits.items():
        shares = "  ".join(
            f"{most} {100 * sum(column) / len(some):5.1f}"
            for most, column in zip((*(f"@{most}" for most in FIRST), "shown"), zip(*some, strict=True), strict=True)
        )
        print(f"{name:26} {len(some):4}  {shares}")
    print(f"{1000 * (time.perf_counter() - began) / max(1, asked):.1f} ms a question")


async def run(folder: Path, *, by_meaning: bool) -> None:
    """Measure all chats of a folder."""
    chats = [Chat.read(each) for each in sorted(folder.iterdir(), key=lambda path: path.name) if each.is_dir()]
    with tempfile.TemporaryDirectory() as made:
        store = await open_store(Path(made) / "bubbot.db", salt=os.urandom, now=lambda: _UNDATED)
        try:
            await _write(store, chats)
            rank_by_words = ranker_by_words({chat.tape: chat.messages[-1][2] + timedelta(days=1) for chat in chats})

            def open_tape(name: str) -> TapeService:
                return _tape_at(store, name, _UNDATED)

            await measure(chats, rank_by_words, open_tape)
            if by_meaning:
                index = EmbeddingIndex(Path(made) / "passages.db")
                search = MeaningSearch(index, open_tape, is_on=lambda: True)
                for chat in chats:
                    await search.follow(open_tape(chat.tape))
                names = {chat.tape: await lasting_name(open_tape(chat.tape)) for chat in chats}
                print("\nwith meaning")
                await measure(chats, ranker_with_meaning(rank_by_words, index, names), open_tape)
                await index.aclose()
        finally:
            await store.aclose()


def _tape_at(store: SqliteStore, name: str, now: datetime) -> TapeService:
    return TapeService(store, name, now=lambda: now, new_id=str)


async def _write(store: SqliteStore, chats: Sequence[Chat]) -> None:
    for chat in chats:
        turn = 0
        for date, said in groupby(chat.messages, lambda each: each[2]):
            entries = list[TapeEntry]()
            for role, text, _ in said:
                turn += role == "user"
                entries.append(message(role, text, turn=f"{chat.tape}-{turn}"))
            await _tape_at(store, chat.tape, date).append(entries)
    writer = IndexWriter(store.path)
    while await writer.step():
        pass
    await writer.aclose()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--meaning", action="store_true", help="also with embeddings; takes some minutes")
    given = parser.parse_args()
    asyncio.run(run(given.folder, by_meaning=given.meaning))


if __name__ == "__main__":
    main()
