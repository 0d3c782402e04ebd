"""The index file: what it finds, whose it is, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from benchmarks.search.asked import damaged
from bubbot.errors import StoreUnavailable
from bubbot.features.search.view import SearchView
from bubbot.ports.passages import PASSAGES_FILE
from bubbot.ports.store import IndexState
from bubbot.stores.rows import from_row
from bubbot.stores.sqlite import text as text_module
from bubbot.stores.sqlite.index import fill, reader, spellings
from bubbot.stores.sqlite.index.reader import IndexPlace, SqliteIndex, take_turns
from bubbot.stores.sqlite.index.schema import index_path
from bubbot.stores.sqlite.index.spellings import find_spellings
from bubbot.stores.sqlite.index.tokens import MAX_TOKEN_LETTERS
from bubbot.stores.sqlite.indexer import Indexer, IndexerTiming
from bubbot.stores.sqlite.store import SqliteStore, open_readonly, open_store
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import Ranked, TapeQuery, evaluate
from bubbot.tape.service import TapeService
from bubbot.tape.spelling import LONG_WORD_LETTERS, MAX_MISTAKES, find_alike
from bubbot.tape.store import Batch
from bubbot.tape.words import fold_text, is_spelt, strip_accents, tokens
from tests.doubles import CountingIds, SteppingClock
from tests.sentences import sentences
from tests.tapes import notes, whole

LONG_WORD = "".join(chr(97 + place * place % 23 + place % 3) for place in range(97))
HOLDS = [
    ("The database migration is done", "BASE migr"),
    ("The database migration is done", "atabase migration is don"),
    ("The database migration is done", "gratio"),
    ("see " + "w" * 40 + "end of it", "end of"),
    ("see " + "w" * 40 + "end of it", "wend"),
    ("see " + "w" * 40 + "end of it", "w" * 35 + "end"),
    ("see " + "v" * 60, "see " + "v" * 50),
    (LONG_WORD, LONG_WORD[70:90]),
    (LONG_WORD, LONG_WORD[33:60]),
    (LONG_WORD, LONG_WORD[-12:]),
    (LONG_WORD + " follows", LONG_WORD[-5:] + " foll"),
    (LONG_WORD + " follows", LONG_WORD[-35:] + " follows"),
    (LONG_WORD + " follows", LONG_WORD[2:] + " follows"),
    (LONG_WORD * 20, LONG_WORD[90:] + LONG_WORD[:5]),
    (LONG_WORD * 20 + " huge", LONG_WORD[90:] + " hug"),
    ("我们昨天讨论了数据库迁移的问题", "据库迁"),
    ("我们昨天讨论了数据库迁移的问题", "迁"),
    ("我们昨天讨论了数据库迁移的问题", "题"),
    ("用Python入門の本", "thon入"),
    ("昨天 讨论", "天 讨"),
    ("call snake_case_name(x)", "ke_case_na"),
    ("new camelCaseName there", "elcasena"),
    ("Party 🎉 tonight", "🎉 to"),
    ("a → b", "→"),
    ("Die Straße ist gesperrt", "STRASSE"),
    ("year 2026-11-21", "26-11"),
    ("x = (a->b)", "->"),
    ("of the", "of the"),
    ("a cat sleeps", "cat"),
    ("the ending", "ndi"),
    ("the dog barks", "og bark"),
    ("the dog barks", "dog bark"),
    ("hotdog barks", "dog bark"),
]


@pytest.fixture
async def filler(sqlite_store: SqliteStore) -> AsyncIterator[Indexer]:
    """What fills the index of the store."""
    made = Indexer(sqlite_store)
    sqlite_store.indexer = made
    yield made
    await made.aclose()


@pytest.fixture
def chat(sqlite_store: SqliteStore) -> TapeService:
    return TapeService(sqlite_store, "chat", now=SteppingClock(), new_id=CountingIds())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return index_path(tmp_path / "bubbot.db")


async def inspect_index(database: Path) -> IndexState | None:
    store = await open_readonly(database)
    try:
        return await store.index_state()
    finally:
        await store.aclose()


async def found(chat: TapeService, text: str) -> list[int]:
    return [hit.id for hit in (await chat.read(SearchView(text))).hits]


async def rank(chat: TapeService, text: str) -> list[int]:
    return [entry.id for entry in (await chat.fetch([TapeQuery(chat.name, Ranked(text))]))[0]]


def spoil(path: Path, how: str) -> None:
    match how:
        case "torn":
            data = bytearray(path.read_bytes())
            data[4096 : len(data) // 2] = bytes(len(data) // 2 - 4096)
            path.write_bytes(data)
        case "cut":
            os.truncate(path, 9000)
        case "no database":
            path.write_bytes(b"volcano " * 1000)
        case "empty":
            path.write_bytes(b"")
        case _:
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("PRAGMA user_version = 99" if how == "another version" else "PRAGMA application_id = 7")


def inode(path: Path) -> int:
    return path.stat().st_ino if path.is_file() else 0


def in_files(path: Path, word: bytes) -> bool:
    return any(word in one.read_bytes() for one in path.parent.glob(f"{path.name}*"))


async def test_every_part_of_a_text_is_found_through_the_index(chat: TapeService, filler: Indexer) -> None:
    texts = list(dict.fromkeys(text for text, _ in HOLDS))
    await chat.append([message("user", text) for text in texts])
    await filler.fill()
    for text, needle in HOLDS:
        assert texts.index(text) + 1 in await found(chat, needle), needle


async def test_of_equally_close_spellings_the_newest_are_read(
    chat: TapeService, filler: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed: list[int] = []
    find_similar = SqliteIndex.find_similar

    async def noted(self: SqliteIndex, place: IndexPlace, text: str) -> AsyncIterator[int]:
        async for position in find_similar(self, place, text):
            proposed.append(position)
            yield position

    monkeypatch.setattr(SqliteIndex, "find_similar", noted)
    await chat.append([message("user", text) for text in ("volcano", *["volcanos"] * 500, *["volcano"] * 9)])
    await filler.fill()
    result = await chat.read(SearchView("volcanoz"))
    assert [hit.id for hit in result.hits] == [*range(510, 490, -1)]
    assert len(proposed) == len(set(proposed)) == SearchView("volcanoz").max_proposals


async def test_four_turns_of_the_closest_come_before_one_of_the_others() -> None:
    async def each(numbers: Sequence[int]) -> AsyncIterator[int]:
        for number in numbers:
            yield number

    turns = take_turns([each([1] * 10), each([2] * 6), each([3] * 2)])
    assert "".join([str(number) async for number in turns]) == "111121111211223223"
    assert [number async for number in take_turns([])] == []


async def test_misspelt_words_are_found_however_far_back(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message("user", "the Database Migration 数据库迁移 café olé")])
    await chat.append([message("user", f"filling {number}") for number in range(3000)])
    misspelt = ("databse migraton", "数剧库迁移", "cafe", "ole", "dtabaes")
    assert [await found(chat, typed) for typed in misspelt] == [[], [], [1], [1], []], "accents are no mistakes"
    await filler.fill()
    for typed in misspelt:
        assert await found(chat, typed) == [1]
        assert (await chat.read(SearchView(typed))).spelling_from == 0


async def test_a_word_counts_the_entries_that_hold_it_also_after_a_restart(
    chat: TapeService, sqlite_store: SqliteStore, path: Path
) -> None:
    for text in ("harbour harbour lantern", "harbour", "harbour meadow"):
        await chat.append([message("user", text)])
        filler = Indexer(sqlite_store)
        await filler.fill()
        await filler.aclose()
    with closing(sqlite3.connect(index_path(path))) as conn:
        counts = dict(conn.execute("SELECT word, entries FROM term"))
    assert {word: counts[word] for word in ("harbour", "lantern", "meadow")} == {
        "harbour": 3,
        "lantern": 1,
        "meadow": 1,
    }


async def test_every_word_within_the_allowed_mistakes_is_a_spelling(
    chat: TapeService, filler: Indexer, path: Path
) -> None:
    """What a comparison with all words finds, the forms of words find, too."""
    chance = random.Random(8)
    words = sorted({word for text in sentences() for word in tokens(fold_text(text)) if is_spelt(word)})
    words += ["".join(chance.choices(words, k=size)) for size in (2, 3, 4, 5) for _ in range(40)]
    words += ["café", "naïveté", "überraschung", "strassenbahnhaltestelle"]
    await chat.append([message("user", " ".join(words[at : at + 200])) for at in range(0, len(words), 200)])
    await filler.fill()
    meant = [word for word in chance.sample(words, 100) + words[-84:] if len(word) > 5]
    async with aiosqlite.connect(index_path(path)) as conn:
        terms = [row[0] for row in await conn.execute_fetchall("SELECT word FROM term")]
        for word in meant:
            typed = damaged(word, 2 if len(word) >= LONG_WORD_LETTERS else 1, chance)
            found_spellings = await find_spellings(conn, typed)
            if len(typed) <= MAX_TOKEN_LETTERS - MAX_MISTAKES:
                assert strip_accents(word) in found_spellings, (word, typed)
                alike = {term for term, match in find_alike(typed, terms).items() if match.mistakes}
                assert alike <= found_spellings.keys(), typed


async def test_among_many_words_a_short_one_that_is_close_to_a_single_entry_is_no_hit(
    chat: TapeService, filler: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["tanaka went", "mandolin went", "kazuki", "kazuki", "perona said", "mandoline", "caf\u00e9ine"]
    said += ["kolibri", "jasmin"]
    await chat.append([message("user", text) for text in said])
    await filler.fill()
    typed = {
        "tanaki": [1],
        "mandlim": [2],
        "nazuki": [3, 4],
        "peronas": [5],
        "preona": [5],
        "xandollne": [6],
        "cafeine": [7],
        "kolbri": [8],
        "jasmyn": [9],
    }
    assert {word: sorted(await found(chat, word)) for word in typed} == typed
    monkeypatch.setattr(spellings, "TERMS_PER_ENTRY", 6)
    # Swapped letters, accents, a second entry, one more letter in common or another word beside it are no chance.
    typed |= {"tanaki": [], "mandlim": [], "jasmyn": []}
    assert {word: sorted(await found(chat, word)) for word in typed} == typed
    assert await found(chat, "tanaki went") == [1]


async def test_a_word_with_two_mistakes_is_shown_beside_a_closer_one(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message("user", "the mandolin"), *(message("user", "the mandarin") for _ in range(40))])
    await filler.fill()
    hits = await found(chat, "mandarlin")
    assert (len(hits), hits[-1]) == (20, 1)
    await chat.append([message("user", "mandarlin") for _ in range(20)])
    assert 1 not in await found(chat, "mandarlin"), "what is exactly there fills the room"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("typed", ["electroencephalgraphically", "counterrevolutionaris", "avialabel", "prclaen"])
async def test_words_of_any_length_are_repaired(chat: TapeService, filler: Indexer, typed: str) -> None:
    words = "electroencephalographically counterrevolutionaries available preclean"
    await chat.append([message("user", word) for word in words.split()])
    await chat.append([message("user", f"filling {number}") for number in range(2500)])
    await filler.fill()
    (entry,) = await found(chat, typed)
    assert entry <= 4


async def test_what_the_index_finds_is_the_answer(
    chat: TapeService, sqlite_store: SqliteStore, filler: Indexer
) -> None:
    """Nothing twice, nothing too much, and nothing after the entry as of which it is asked."""
    await chat.append([message("user", f"the {'volcano' if number % 3 else 'glacier'}") for number in range(12)])
    await filler.fill()
    kept = await whole(sqlite_store, chat.name)
    for as_of in (None, 2, 7, 11):
        for limit in (None, 1, 3, 50):
            query = TapeQuery(chat.name, searchable_text="volcano", newest=True, limit=limit, as_of=as_of)
            (found,) = await chat.fetch([query])
            assert [one.id for one in found] == [one.id for one in evaluate(kept, query)], query


async def test_a_frequent_word_is_read_no_further_than_it_is_shown(
    chat: TapeService, filler: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    fetch = aiosqlite.Connection.execute_fetchall

    async def noted(self: aiosqlite.Connection, sql: str, values: Any = None) -> Any:
        rows = await fetch(self, sql, values)
        read.extend(row[0] for row in rows if "MATCH ?" in sql)
        return rows

    monkeypatch.setattr(aiosqlite.Connection, "execute_fetchall", noted)
    await chat.append([message("user", f"the volcano {number}") for number in range(1000)])
    await filler.fill()
    await chat.append([message("user", f"filling {number}") for number in range(300)])
    await filler.fill()
    assert len((await chat.read(SearchView("volcano"))).hits) == 20
    assert 20 <= len(read) <= 40


async def test_a_long_tail_is_told(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message("user", "the database")])
    await filler.fill()
    await chat.append([message("user", f"filling {number}") for number in range(2500)])
    assert (await chat.read(SearchView("databse"))).spelling_from == 502
    assert await found(chat, "database") == [1]
    assert await found(chat, "filling 2499") == [2501]


async def test_what_is_not_indexed_yet_is_found(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message("user", "database one")])
    await filler.fill()
    await chat.append([message("user", "database two")])
    assert await found(chat, "database") == [2, 1]
    async with chat.fork_tape(merge_back=False) as fork:
        await fork.append([message("user", "database three"), message("user", "databsae four")])
        result = await fork.read(SearchView("database"))
        assert [(hit.id, hit.exact) for hit in result.hits] == [(3, True), (2, True), (1, True), (4, False)]


async def test_what_is_indexed_and_what_is_not_are_ranked_together(chat: TapeService, filler: Indexer) -> None:
    said = ["the passport is in the box", "a box of tea", "nothing", "the red box"]
    await chat.append([message("user", text) for text in said])
    question = "where are the passports and the boxes?"
    scanned = await rank(chat, question)
    assert scanned[0] == 1
    for step in (2, 1, 1):
        await filler.step(step)
        assert (await rank(chat, question))[0] == 1
    assert await rank(chat, question) == scanned
    await chat.append([message("user", "my passport, in a box")])
    assert sorted((await rank(chat, question))[:2]) == [1, 5]


@pytest.mark.parametrize(
    "text", ["x" * 5000, " ".join(f"wrod{chr(97 + n % 26)}x" for n in range(3000)), '"*:^(NEAR' * 200, "\0"]
)
async def test_a_query_of_any_length_and_signs_ends(chat: TapeService, filler: Indexer, text: str) -> None:
    await chat.append([message("user", "the volcano")])
    await filler.fill()
    assert await found(chat, text) == []
    assert await rank(chat, text) == []


async def test_what_limits_a_question(chat: TapeService, filler: Indexer, monkeypatch: pytest.MonkeyPatch) -> None:
    await chat.append([*[message("user", "tea")] * 10, *[message("user", "milk")] * 4, *[message("user", "x")] * 30])
    await filler.fill()
    assert len(await rank(chat, "tea milk")) == 14
    query = TapeQuery(chat.name, Ranked("tea"), as_of=5, limit=2)
    assert [entry.id for entry in (await chat.fetch([query]))[0]] == [5, 4], "later ones take no place"
    monkeypatch.setattr(reader, "MAX_CANDIDATES", 5)
    assert await rank(chat, "tea milk") == [14, 13, 12, 11], "the rarer word finds"
    monkeypatch.setattr(reader, "MAX_WORD_ENTRIES", 5)
    assert await rank(chat, "tea") == []


async def test_what_a_person_said_comes_first_by_the_index_too(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message(role, "the passport") for role in ("user", "assistant")])
    await chat.append([message("user", f"filling {number}") for number in range(20)])
    await filler.fill()
    assert await rank(chat, "passport") == [1, 2]


async def test_a_run_with_a_wrong_character_is_found_beside_many_that_have_parts_of_it(
    chat: TapeService, filler: Indexer
) -> None:
    await chat.append([message("user", "我们数据库迁移好了"), *[message("user", "迁移据库数据") for _ in range(400)]])
    await filler.fill()
    assert 1 in await found(chat, "数剧库迁移好")


@pytest.mark.parametrize(
    "text", ["!!!", "...", '"', "()", "*", "-", "😀", "a", "的", "AND", "NEAR(a b)", "x:y", "\0", "\ud800"]
)
async def test_no_query_is_taken_for_damage(
    chat: TapeService, sqlite_store: SqliteStore, filler: Indexer, text: str
) -> None:
    await chat.append([message("user", "something")])
    await filler.fill()
    await found(chat, text)
    state = await sqlite_store.index_state()
    assert state is not None
    assert state.fresh


async def test_a_misspelt_word_is_found_beneath_many_of_its_stem(chat: TapeService, filler: Indexer) -> None:
    await chat.append([message("user", "the typings of it"), *[message("user", "a type")] * 200])
    await filler.fill()
    assert await found(chat, "typngs") == [1]


async def test_a_question_ranks_the_entries_of_its_own_tape(
    chat: TapeService, sqlite_store: SqliteStore, filler: Indexer
) -> None:
    await sqlite_store.append([notes(*["a passport"] * 300, tape="other")])
    await chat.append([message("user", "my passport"), message("user", "tea")])
    await filler.fill()
    assert await rank(chat, "the passport?") == [1]


async def test_a_person_is_looked_up_and_others_are_not_read(
    chat: TapeService, filler: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = {"id": "1001", "name": "Zoë Lee"}, {"id": "1002", "name": "Bob"}
    await chat.append([message("user", "tea", sender=ann), *[message("user", "tea", sender=bob) for _ in range(400)]])
    await filler.fill()
    read: list[int] = []

    def note(tape: str, row: tuple[Any, ...]) -> TapeEntry:
        read.append(row[0])
        return from_row(tape, row)

    monkeypatch.setattr(text_module, "from_row", note)
    for person in ("zoe", "@Zoë", "zoë lee", "1001"):
        assert [hit.id for hit in (await chat.read(SearchView("tea", sender=person))).hits] == [1], person
    assert set(read) == {1}


async def test_filling_goes_on_where_it_was_ended(
    chat: TapeService, sqlite_store: SqliteStore, filler: Indexer, path: Path
) -> None:
    await chat.append([message("user", f"word{number}") for number in range(900)])
    assert await filler.step() == 400
    await filler.aclose()
    made = inode(path)
    state = await sqlite_store.index_state()
    assert state is not None
    assert (state.position, state.behind, state.fresh) == (400, 500, True)
    next_filler = sqlite_store.build_indexer()
    assert await next_filler.step() == 400
    await next_filler.fill()
    await next_filler.aclose()
    assert inode(path) == made
    assert await inspect_index(path.with_name("bubbot.db")) == await sqlite_store.index_state()
    assert await found(chat, "word5") == [6, *range(600, 581, -1)], "the word itself comes before longer ones"


async def test_a_filling_that_fails_in_the_middle_is_as_if_it_had_not_been(
    chat: TapeService, filler: Indexer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.stores.sqlite.index.schema.BUSY_SECONDS", 0.001)
    await chat.append([message("user", "volcano")])
    await filler.fill()
    await chat.append([message("user", "cathedral")])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await filler.fill()
        other.execute("ROLLBACK")
    assert await found(chat, "cathedral") == [2]
    await filler.fill()
    assert await found(chat, "cathedral") == [2]


async def test_what_was_written_in_many_parts_is_merged(
    chat: TapeService, filler: Indexer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts() -> int:
        with closing(sqlite3.connect(path)) as conn:
            return int(conn.execute("SELECT count(DISTINCT segid) FROM words_idx").fetchone()[0])

    await chat.append([message("user", f"word{number}") for number in range(1200)])
    await filler.fill()
    before = parts()
    monkeypatch.setattr(fill, "UNTIDY", 1000)
    await filler.fill()
    assert (before > 1, parts()) == (True, 1)
    assert await found(chat, "word1199") == [1200]


@pytest.mark.law("T17")
@pytest.mark.parametrize("kept", [True, False])
async def test_an_erasure_takes_the_words_out_of_the_index_file(
    chat: TapeService, sqlite_store: SqliteStore, filler: Indexer, path: Path, *, kept: bool
) -> None:
    await chat.append([message("user", "the volcano"), message("user", "a cathedral")])
    await sqlite_store.append([notes("the glacier", tape="other")])
    await filler.fill()
    assert await found(chat, "volcano") == [1]
    assert in_files(path, b"volcano")
    if not kept:
        await filler.aclose()
    await chat.reset(archive=False)
    assert not in_files(path, b"volcano")
    assert inode(path) == 0
    assert await found(chat, "volcano") == []
    if kept:
        await filler.fill()
        assert not in_files(path, b"volcano")
        assert in_files(path, b"glacier")


@pytest.mark.law("T17")
async def test_an_erasure_deletes_the_index_of_meanings(chat: TapeService, path: Path) -> None:
    await chat.append([message("user", "the volcano")])
    passages = path.with_name(PASSAGES_FILE)
    passages.write_bytes(b"vectors")
    await chat.reset(archive=True)
    assert passages.exists(), "an archive keeps its words"
    await chat.reset(archive=False)
    assert not passages.exists()


@pytest.mark.law("T17")
async def test_an_index_from_before_an_erasure_is_never_used_and_made_anew(
    chat: TapeService, filler: Indexer, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a crash between the erasing commit and the deletion of the file."""
    await chat.append([message("user", "the volcano")])
    await filler.fill()
    await filler.aclose()
    old = shutil.copy(path, tmp_path / "old")
    await chat.reset(archive=False)
    shutil.copy(old, path)
    state = await inspect_index(tmp_path / "bubbot.db")
    assert state is not None
    assert state.fresh is False
    with caplog.at_level(logging.INFO, "bubbot.stores.sqlite.index.fill"):
        await filler.fill()
    told = [(record.action, record.levelname) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [("index.anew", "INFO"), ("index.new", "INFO")]
    assert not in_files(path, b"volcano")
    state = await inspect_index(tmp_path / "bubbot.db")
    assert state is not None
    assert (state.fresh, state.behind) == (True, 0)


async def test_an_index_of_another_database_is_not_used(
    chat: TapeService, filler: Indexer, path: Path, tmp_path: Path
) -> None:
    """As after the restore of a backup: the same positions hold other entries."""
    (tmp_path / "two").mkdir()
    other = await open_store(tmp_path / "two" / "bubbot.db", salt=os.urandom, now=SteppingClock())
    try:
        await other.append([notes(*["glacier"] * 5, tape="chat")])
        strange = Indexer(other)
        await strange.fill()
        await strange.aclose()
    finally:
        await other.aclose()
    shutil.copy(tmp_path / "two" / path.name, path)
    await chat.append([message("user", "glacier"), message("user", "volcano"), *[message("user", "x")] * 3])
    assert await found(chat, "glacier") == [1]
    assert await found(chat, "volcano") == [2]
    await filler.fill()
    assert await found(chat, "glacier") == [1]


@pytest.mark.parametrize("how", ["torn", "no database", "foreign", "another version", "empty", "cut"])
async def test_a_file_that_is_no_index_is_made_anew(
    chat: TapeService, filler: Indexer, path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.append([message("user", "volcano"), *[message("user", f"word{number}") for number in range(500)]])
    await filler.fill()
    await filler.aclose()
    spoil(path, how)
    assert await found(chat, "volcano") == [1]
    assert await rank(chat, "which volcanoes?") == [1]
    with caplog.at_level(logging.WARNING):
        await chat.append([message("user", "cathedral")])
        await filler.fill()
    assert await found(chat, "volcano") == [1]
    state = await inspect_index(path.with_name("bubbot.db"))
    assert state is not None
    assert (state.fresh, state.behind) == (True, 0)


async def test_the_file_is_for_its_owner_alone(chat: TapeService, filler: Indexer, path: Path) -> None:
    await chat.append([message("user", "volcano")])
    await filler.fill()
    assert {one.stat().st_mode & 0o777 for one in path.parent.glob(f"{path.name}*")} == {0o600}


async def test_the_tapes_of_the_system_are_not_indexed(sqlite_store: SqliteStore, filler: Indexer, path: Path) -> None:
    await sqlite_store.append([Batch("bubbot/inbox/stdin", (event("received", {"text": "volcano"}),))])
    await filler.fill()
    assert not in_files(path, b"volcano")
    ((entry,),) = await sqlite_store.fetch([TapeQuery("bubbot/inbox/stdin", text="volcano")])
    assert entry.id == 1


async def test_commands_that_read_use_the_index(chat: TapeService, filler: Indexer, tmp_path: Path) -> None:
    await chat.append([message("user", "the database"), *[message("user", f"word{n}") for n in range(2500)]])
    await filler.fill()
    beside = await open_readonly(tmp_path / "bubbot.db")
    try:
        tape = TapeService(beside, "chat", now=SteppingClock(), new_id=CountingIds())
        assert await found(tape, "databse") == [1]
    finally:
        await beside.aclose()


def test_while_others_write_the_filling_takes_a_sixteenth_of_the_time() -> None:
    assert IndexerTiming().pause(0.03, disturbed=True) == pytest.approx(0.45)
    assert IndexerTiming().pause(0.03, disturbed=False) < 0.03


async def test_in_the_background_it_fills_gathers_and_goes_on(
    chat: TapeService, sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    seen, waits = asyncio.Event(), asyncio.Event()
    counter = sqlite_store.commit_counter
    wait_beyond = counter.wait_beyond

    async def wait(count: int) -> None:
        waits.set()
        await wait_beyond(count)

    monkeypatch.setattr(counter, "wait_beyond", wait)

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        seen.set()
        await asyncio.sleep(0)

    await chat.append([message("user", f"word{number}") for number in range(500)])
    ticks = iter(range(1_000_000))
    filler = Indexer(
        sqlite_store,
        IndexerTiming(start_delay=7, gather_delay=5, rest_factor=0.5, busy_factor=10),
        clock=lambda: next(ticks),
        sleep=sleep,
    )
    task = asyncio.create_task(filler.run())
    while rests[:3] != [7, 0.5, 0.5]:
        await asyncio.wait_for(seen.wait(), 10)
        seen.clear()
    await asyncio.wait_for(waits.wait(), 10)
    await chat.append([message("user", "one more")])
    while rests[3:] != [5, 0.5]:
        await asyncio.wait_for(seen.wait(), 10)
        seen.clear()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await filler.aclose()
    state = await sqlite_store.index_state()
    assert state is not None
    assert (state.position, state.behind) == (501, 0)


async def test_on_a_disk_without_room_nothing_is_indexed_and_search_goes_on(
    chat: TapeService,
    filler: Indexer,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    await chat.append([message("user", "volcano")])
    with caplog.at_level(logging.WARNING):
        await filler.fill()
        await filler.fill()
    assert len(caplog.records) == 1
    assert inode(path) == 0
    assert await found(chat, "volcano") == [1]


async def test_an_index_that_cannot_be_made_harms_neither_appends_nor_searches(
    chat: TapeService, filler: Indexer, path: Path
) -> None:
    await asyncio.to_thread(path.mkdir)
    await chat.append([message("user", "volcano")])
    with pytest.raises(StoreUnavailable):
        await filler.fill()
    await chat.append([message("user", "volcano again")])
    assert await found(chat, "volcano") == [2, 1]
