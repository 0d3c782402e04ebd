"""Search: exact in any script, by spelling, over the whole tape; and what it leaves out."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bubbot.features.search.view import SearchHit, SearchResult, SearchView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message, tool_call, tool_result
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.spelling import find_misspelt
from bubbot.tape.store import TapeStore
from bubbot.tape.words import fold_text
from tests.doubles import CountingIds, SteppingClock
from tests.sentences import sentences

ABSENT = """grandmother volcano banana cat elephant giraffe orchestra strawberry kangaroo saxophone butterfly umbrella
dinosaur cathedral mosquito penguin tornado wedding chocolate bicycle camel honey violin glacier potato"""


@pytest.fixture
def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    return TapeService(store, "chat", now=SteppingClock(), new_id=ids)


def said(*texts: str) -> list[TapeEntry]:
    return [message("user", text) for text in texts]


def call(call_id: str, name: str, arguments: str = "{}", **meta: str) -> TapeEntry:
    function = {"name": name, "arguments": arguments}
    return tool_call([{"id": call_id, "type": "function", "function": function}], **meta)


def answer(call_id: str, content: str, **meta: str) -> TapeEntry:
    return tool_result([{"tool_call_id": call_id, "content": content}], **meta)


def zone(version: int, text: str) -> list[TapeEntry]:
    return [
        anchor("memory/open", {"version": version}, window=False),
        event("memory.long_term", {"content": text}),
        anchor("memory/seal", {"version": version}, window=False),
    ]


def ids_of(result: SearchResult) -> list[int]:
    return [hit.id for hit in result.hits]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The database migration is done", "BASE migr"),
        ("我们昨天讨论了数据库迁移的问题", "数据库迁移"),
        ("データベースの移行を始めました", "移行"),
        ("데이터베이스 이전을 시작했다", "이전을"),
        ("On se voit au café", "CAFÉ"),
        ("On se voit au cafe\u0301", "café"),
        ("Die Straße ist gesperrt", "STRASSE"),
        ("ＡＢＣ１２３ is full width", "abc123"),
        ("Party 🎉 tonight", "🎉"),
        ("Завтра встреча", "ВСТРЕЧА"),
        ("मुझे चाय पसंद है", "चाय"),
    ],
)
async def test_an_exact_text_is_found_in_any_script(chat: TapeService, text: str, query: str) -> None:
    await chat.append(said("something else", text, "and more"))
    result = await chat.read(SearchView(query))
    assert [(hit.id, hit.exact) for hit in result.hits] == [(2, True)]
    assert result.exact == 1


@pytest.mark.parametrize("query", ["", "  \n", "\u3000"])
async def test_a_blank_text_finds_nothing(chat: TapeService, query: str) -> None:
    await chat.append(said("a b", " "))
    assert await chat.read(SearchView(query)) == SearchResult()
    assert await chat.read(SearchView("a", limit=0)) == SearchResult()


async def test_spelling_mistakes_are_forgiven_and_marked(chat: TapeService) -> None:
    await chat.append(said("We planned the Database Migration for May", "the database is fine", "migration of birds"))
    result = await chat.read(SearchView("databse migraton"))
    assert [(hit.id, hit.exact) for hit in result.hits] == [(1, False)]
    assert result.exact == 0
    assert "Database Migration" in result.hits[0].snippet


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("我们昨天讨论了数据库迁移的问题", "数剧库迁移", True),
        ("我们昨天讨论了数据库迁移的问题", "数据迁库移", True),
        ("我们昨天讨论了数据库迁移的问题", "天气预报", False),
        ("我们昨天讨论了数据库迁移的问题", "天气", False),
        ("データベースの移行", "データペース", True),
        ("Python入門の本", "pyhton入門", True),
        ("the year 2025", "2026", False),
        ("version 12 of it", "vesrion 12", True),
        ("version 123 of it", "vesrion 12", False),
        ("we went by train", "main", False),
        ("a house by the sea", "huse", True),
        ("a cat sat here", "cats sat", True),
        ("she is running late", "runs late", True),
        ("a car park", "card", False),
        ("the category of sets", "of cat", False),
        ("migration of the database", "database migration", True),
    ],
)
async def test_what_counts_as_the_same_word(chat: TapeService, text: str, query: str, found: bool) -> None:
    await chat.append(said(text))
    assert ids_of(await chat.read(SearchView(query))) == ([1] if found else [])


async def test_exact_hits_come_before_others_and_the_newest_first_among_each(chat: TapeService) -> None:
    await chat.append(said("migration one", "migratoin", "migration two", *["migratoin"] * 5))
    result = await chat.read(SearchView("migration", limit=4))
    assert ids_of(result) == [3, 1, 8, 7]
    assert [hit.exact for hit in result.hits] == [True, True, False, False]
    assert ids_of(await chat.read(SearchView("migration", limit=2))) == [3, 1]


async def test_words_come_before_parts_of_words_and_those_before_misspelt_ones(chat: TapeService) -> None:
    await chat.append(
        said("feed the cat", "the cats are fed", "location", "send the application/pdf", "cta scan", "cat food")
    )
    result = await chat.read(SearchView("cat"))
    assert [(hit.id, hit.match) for hit in result.hits] == [
        (6, "phrase"), (1, "phrase"), (2, "words"), (4, "part"), (3, "part"),
    ]  # fmt: skip
    assert [(hit.id, hit.match) for hit in (await chat.read(SearchView("the cat"))).hits] == [
        (1, "phrase"),
        (2, "words"),
    ]
    assert [(hit.id, hit.match) for hit in (await chat.read(SearchView("aplication"))).hits] == [(4, "spelling")]


async def test_what_nobody_said_is_no_hit(chat: TapeService) -> None:
    """The type of a file, what a sub-task wrote, what a model only thought, and the records of the bot."""
    file = {"type": "file", "name": "invoice.pdf", "media_type": "application/pdf", "digest": "abcdef", "size": 7}
    await chat.append([
        message("user", [{"type": "text", "text": "here it is"}, file]),
        message("assistant", "an application", fork="f1"),
        message("assistant", "I see", thoughts="an application form"),
        event("approval.asked", {"why": "application", "calls": ["application"]}),
        event("command", {"name": "session.explain", "raw": ",explain application", "output": "application"}),
    ])  # fmt: skip
    assert ids_of(await chat.read(SearchView("application"))) == []
    assert ids_of(await chat.read(SearchView("invoice"))) == [1]


async def test_a_person_and_a_part_of_the_tape_bound_the_search(chat: TapeService) -> None:
    ann, bob = {"id": "1001", "name": "Ann Lee"}, {"id": "1002", "name": "Bob"}
    await chat.append([message("user", "tea, Ann?", sender=bob), message("user", "tea", sender=ann), *said("tea")])
    found = (await chat.read(SearchView("tea", sender="@ann"))).hits
    assert [(hit.id, hit.author) for hit in found] == [(2, "Ann Lee (1001)")]
    assert ids_of(await chat.read(SearchView("tea", sender="1002"))) == [1]
    assert ids_of(await chat.read(SearchView("taee", sender="bob"))) == []
    assert ids_of(await chat.read(SearchView("tea", spans=((1, 1), (3, None))))) == [3, 1]


async def test_the_whole_tape_is_searched_and_not_only_the_window(chat: TapeService) -> None:
    await chat.append(said("the volcano erupted"))
    await chat.handoff("phase/next")
    await chat.append(said("quiet"))
    assert ids_of(await chat.read(SearchView("volcano"))) == [1]
    assert ids_of(await chat.read(SearchView("volcno"))) == [1]


async def test_kinds_and_dates_bound_the_search(chat: TapeService) -> None:
    days = [f"2026-11-{day}T12:00:00+00:00" for day in (20, 21, 22)]
    await chat.append([replace(message("user", "tea"), date=day) for day in days])
    await chat.append([anchor("phase/tea", {"summary": "tea"}), event("note", {"text": "tea"}), answer("c", "tea")])
    assert ids_of(await chat.read(SearchView("tea", kinds=("message",)))) == [3, 2, 1]
    assert ids_of(await chat.read(SearchView("tea", kinds=("event", "anchor")))) == [5, 4]
    since, until = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 21, 23, tzinfo=UTC)
    assert ids_of(await chat.read(SearchView("tea", kinds=("message",), since=since))) == [3, 2]
    assert ids_of(await chat.read(SearchView("tea", kinds=("message",), until=until))) == [2, 1]
    assert ids_of(await chat.read(SearchView("tea", since=since, until=until))) == [6, 5, 4, 2]


async def test_a_fork_is_searched_as_its_parent_will_be(chat: TapeService) -> None:
    """Bub's overlay answered with every entry of the wanted kinds, whatever was asked."""
    await chat.append(said("the volcano erupted", "nothing"))
    fork = await chat.open_fork()
    await fork.append([*said("apples", "another volcano"), event("note", {"text": "volcano"})])
    await fork.append([replace(message("user", "volcano of long ago"), date="2020-01-01T00:00:00+00:00")])
    views = [
        SearchView("volcano"),
        SearchView("volcno"),
        SearchView("volcano", kinds=("message",)),
        SearchView("volcano", since=datetime(2026, 1, 1, tzinfo=UTC)),
        SearchView("volcano", limit=1),
        SearchView("banana"),
    ]
    within = [await fork.read(view) for view in views]
    assert [ids_of(result) for result in within] == [[6, 5, 4, 1], [6, 5, 4, 1], [6, 4, 1], [5, 4, 1], [6], []]
    await fork.merge()
    assert [await chat.read(view) for view in views] == within


@pytest.mark.law("T6")
async def test_hidden_entries_are_left_out_and_corrected_ones_marked(chat: TapeService) -> None:
    await chat.append(said("the key is under the mat", "the key is in the safe", "my key word"))
    await chat.hide(1)
    await chat.correct(2, "the key is with Ann")
    await chat.correct(3, "my key word, edited")
    await chat.hide(3)
    result = await chat.read(SearchView("key"))
    assert [(hit.id, hit.superseded_by) for hit in result.hits] == [(5, None), (2, 5)]
    assert result.hidden == 3, "the deleted entries, and the edit of a deleted one"
    assert result.hits[0].name == "correction"
    assert ids_of(await chat.read(SearchView("kee"))) == []
    assert ids_of(await chat.read(SearchView("correction"))) == [], "nobody said the name of the event"


async def test_the_newest_of_several_corrections_counts(chat: TapeService) -> None:
    await chat.append(said("tea at four"))
    await chat.correct(1, "tea at five")
    await chat.correct(1, "tea at six")
    await chat.hide(3)
    assert [(hit.id, hit.superseded_by) for hit in (await chat.read(SearchView("tea"))).hits] == [(2, None), (1, 2)]


async def test_older_memory_zones_are_left_out(chat: TapeService) -> None:
    await chat.append([*zone(1, "Ann lives in Bonn"), *said("Ann said Bonn is fine"), *zone(2, "Ann moved to Bonn")])
    result = await chat.read(SearchView("bonn"))
    assert ids_of(result) == [6, 4]
    assert result.old_memory == 1
    assert ids_of(await chat.read(SearchView("lives"))) == []
    assert ids_of(await chat.read(SearchView("memory/seal"))) == []


async def test_memory_is_found_however_long_ago_it_was_written(chat: TapeService) -> None:
    await chat.append([*zone(1, "prefers peppermint"), *said(*["filler"] * 40)])
    assert ids_of(await chat.read(SearchView("pepermint", typo_newest=5))) == [2]
    assert ids_of(await chat.read(SearchView("peppermint", kinds=("message",)))) == []


async def test_its_own_earlier_answers_are_left_out_and_counted(chat: TapeService) -> None:
    await chat.append([
        *said("we saw a volcano"),
        call("c1", "tape_search", '{"query":"volcano"}'),
        answer("c1", "#1: we saw a volcano"),
        call("c2", "web_fetch"),
        answer("c2", "a page about a volcano"),
        event("command", {"name": "tape.search", "output": "#1: we saw a volcano"}),
        event("command", {"name": "shell", "output": "volcano.txt"}),
    ])  # fmt: skip
    result = await chat.read(SearchView("volcano"))
    assert ids_of(result) == [7, 5, 1]
    assert result.own_output == 2
    assert ids_of(await chat.read(SearchView("volcno"))) == [7, 5, 1]


async def test_a_call_id_that_is_used_again_does_not_confuse(chat: TapeService) -> None:
    await chat.append([
        call("call_1", "tape_search", turn="a"),
        answer("call_1", "tea", turn="a"),
        call("call_1", "web_fetch", turn="a"),
        answer("call_1", "tea", turn="a"),
        answer("call_1", "tea", turn="b"),
    ])  # fmt: skip
    result = await chat.read(SearchView("tea"))
    assert (ids_of(result), result.own_output) == ([5, 4], 1)


def test_the_call_of_a_result_is_looked_for_among_the_8_and_then_the_24_entries_before_it() -> None:
    """None before the first entry of a tape; nothing at all without a result."""
    results = [replace(answer("c", "volcano"), id=place) for place in (60, 3, 2, 1)]
    steps = SearchView("volcano", limit=1).steps("chat")
    next(steps)
    (query,) = steps.send([[], [], results])
    assert query == TapeQuery("chat", IdRanges(((52, 59), (1, 2), (1, 1))), kinds=("tool_call",))
    (query,) = steps.send([[replace(call("c", "web"), id=1)]])  # too long before the first to be its call
    assert query == TapeQuery("chat", IdRanges(((36, 51),)), kinds=("tool_call",))
    steps = SearchView("volcano", limit=1).steps("chat")
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([[], [], results[-1:]])
    assert ids_of(end.value.value) == [1]


async def test_of_several_results_in_one_entry_only_the_search_is_left_out(chat: TapeService) -> None:
    functions = [{"id": "a", "function": {"name": "tape.search"}}, {"id": "b", "function": {"name": "web_fetch"}}]
    results = [{"tool_call_id": "a", "content": "tea and milk"}, {"tool_call_id": "b", "content": "tea"}]
    await chat.append([tool_call(functions), tool_result(results)])
    assert ids_of(await chat.read(SearchView("tea"))) == [2]
    milk = await chat.read(SearchView("milk"))
    assert (ids_of(milk), milk.own_output) == ([], 1)


async def test_roles_call_ids_and_bookkeeping_are_no_hits(chat: TapeService) -> None:
    step = event("loop.step", {"status": "window", "model": "gpt"})
    await chat.append([*said("hello"), call("call_77", "shell"), step, event("turn/start", {"why": "window"})])
    for query in ("user", "assistant", "function", "call_77", "window", "loop.step"):
        assert ids_of(await chat.read(SearchView(query))) == [], query
    assert ids_of(await chat.read(SearchView("shell"))) == [2]


async def test_bookkeeping_does_not_use_up_what_is_read(chat: TapeService) -> None:
    steps = [event("loop.step", {"selector": "window"})] * 300
    await chat.append([*said("the window is open"), *steps])
    result = await chat.read(SearchView("window", limit=5, typo_newest=10))
    assert ids_of(result) == [1]


async def test_it_says_when_more_was_left_out_than_was_read(chat: TapeService) -> None:
    searches = [entry for n in range(400) for entry in (call(f"c{n}", "tape_search"), answer(f"c{n}", "volcano"))]
    await chat.append([*said("volcano"), *searches])
    cut = await chat.read(SearchView("volcano", limit=5, typo_newest=10))
    assert (ids_of(cut), cut.incomplete) == ([], True)
    assert (cut.own_output, cut.spelling_from) == (210, 792)
    full = await chat.read(SearchView("volcano", limit=100))
    assert (ids_of(full), full.incomplete, full.spelling_from) == ([1], False, 0)


async def test_entries_asked_to_be_left_out_are(chat: TapeService) -> None:
    await chat.append(said("where is the volcano?", "the volcano"))
    assert ids_of(await chat.read(SearchView("volcano", excluded_ids=frozenset({1})))) == [2]


async def test_odd_payloads_of_imported_tapes_do_no_harm(chat: TapeService) -> None:
    await chat.append([
        TapeEntry("tool_call", {"calls": "tea", "search": 1}),
        TapeEntry("tool_call", {"calls": ["search", {"function": {"name": {"a": "tea"}}}, {"function": "x"}]}),
        TapeEntry("tool_result", {"results": [{"content": "tea"}, "tea"]}),
        TapeEntry("event", {"name": "correction", "data": {"corrects": {"a": 1}}}),
        TapeEntry("event", {"name": "correction", "data": "tea"}),
        TapeEntry("event", {"name": "command", "data": {"name": ["tea"]}}),
        TapeEntry("message", {"content": [{"type": "text", "text": "tea"}]}),
    ])  # fmt: skip
    assert ids_of(await chat.read(SearchView("tea"))) == [7, 3, 2]


async def test_an_erased_entry_is_not_found(chat: TapeService, store: TapeStore) -> None:
    await chat.append(said("the secret"))
    archive = await chat.reset(archive=False)
    gone = TapeService(store, archive, now=SteppingClock(), new_id=CountingIds())
    assert ids_of(await chat.read(SearchView("secret"))) == []
    assert ids_of(await gone.read(SearchView("secret"))) == []


async def test_a_snippet_is_one_line_around_the_match(chat: TapeService) -> None:
    texts = ("x" * 300 + "\nfind\tthe   Needle here\n" + "y" * 300, "needle", "ß" * 400 + " Needle " + "ß" * 400)
    await chat.append(said(*texts, "z" * 300 + "needle"))
    grown, short, middle, end = [hit.snippet for hit in (await chat.read(SearchView("needle"))).hits]
    assert "find the Needle here" in middle
    assert middle.startswith("…")
    assert middle.endswith("…")
    assert len(middle) <= 162
    assert short == "needle"
    assert "Needle" in grown
    assert end.endswith("zneedle")


async def test_a_hit_carries_what_is_needed_to_cite_it(chat: TapeService) -> None:
    await chat.append([anchor("phase/tea", {"summary": "Tea"})])
    assert (await chat.read(SearchView("TEA"))).hits == (
        SearchHit(1, "anchor", "2026-11-21T20:21:00.000000+00:00", "phase/tea", "phase/tea Tea", exact=True),
    )


@pytest.mark.law("T8")
async def test_searching_writes_nothing(chat: TapeService, store: TapeStore) -> None:
    await chat.append([*zone(1, "tea"), *said("tea")])
    before = await store.tapes()
    assert await chat.read(SearchView("tea")) == await chat.read(SearchView("tea"))
    assert await store.tapes() == before
    assert await chat.head() == 4


async def test_a_word_that_is_nowhere_finds_nothing_among_600_sentences(clock: SteppingClock, ids: CountingIds) -> None:
    """Bub's scorer found 18 % of such sentences by mistake."""
    sample = random.Random(11).sample(sentences(), 600)
    tape = TapeService(InMemoryStore(), "docs", now=clock, new_id=ids)
    await tape.append(said(*sample))
    everything = fold_text("\n".join(sample))
    words = [word for word in ABSENT.split() if word not in everything][:15]
    assert len(words) == 15
    found = [(word, len((await tape.read(SearchView(word, limit=600))).hits)) for word in words]
    assert sum(count for _, count in found) == 0, found


def _deleted(word: str, at: int) -> str:
    return word[:at] + word[at + 1 :]


def _swapped(word: str, at: int) -> str:
    at = min(at, len(word) - 2)
    return f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}"


def _replaced(word: str, at: int) -> str:
    return f"{word[:at]}{'q' if word[at] != 'q' else 'z'}{word[at + 1 :]}"


@pytest.mark.parametrize("damage", [_deleted, _swapped, _replaced])
@pytest.mark.parametrize("words", [1, 2])
def test_damaged_words_are_found(damage: Callable[[str, int], str], words: int) -> None:
    chance = random.Random(words)
    texts = {place: fold_text(text) for place, text in enumerate(chance.sample(sentences(), 300))}
    missed: list[Sequence[str]] = []
    tried = 0
    for place, text in texts.items():
        long = sorted(set(re.findall(r"[a-z]{5,}", re.sub(r"\w*[\d_]\w*", " ", text))))
        if len(long) < words:
            continue
        tried += 1
        query = [damage(word, chance.randrange(len(word))) for word in chance.sample(long, words)]
        if not find_misspelt(" ".join(query), {place: text}):
            missed.append(query)
    assert tried > 200
    assert len(missed) <= 0.05 * tried, missed


async def test_a_message_is_found_by_its_senders_name(tape: TapeService) -> None:
    await tape.append(
        [
            message(
                "user", "good morning", sender={"id": "7", "name": "Zoë Ångström"}, inbound=["bubbot/inbox/test", 1]
            ),
            message("user", "nothing", sender={"id": "8", "name": "Bob"}),
        ]
    )
    assert [hit.id for hit in (await tape.read(SearchView("zoë"))).hits] == [1]
    assert [hit.id for hit in (await tape.read(SearchView("angstrom"))).hits] == [1]
    assert (await tape.read(SearchView("inbox"))).hits == ()


async def test_the_text_of_a_query_stands_in_payload_or_meta(tape: TapeService) -> None:
    await tape.append([message("user", "good morning", sender={"id": "7", "name": "Zoë"}, origin="human")])
    for text, found in (("MORNING", 1), ("zoë", 1), ("human", 1), ("evening", 0)):
        assert len((await tape.fetch([TapeQuery(tape.name, text=text)]))[0]) == found
    assert (await tape.fetch([TapeQuery(tape.name, searchable_text="human")]))[0] == ()


@pytest.mark.parametrize(("left_out_from", "is_incomplete"), [(3, True), (4, False)])
async def test_a_query_that_was_cut_counts_if_the_oldest_hit_is_older_than_its_end(
    tape: TapeService, left_out_from: int, *, is_incomplete: bool
) -> None:
    """The newest 58 of 60 are read."""
    await tape.append([message("user", "volcano") for _ in range(60)])
    found = await tape.read(SearchView("volcano", limit=2, excluded_ids=frozenset(range(left_out_from, 61))))
    assert found.incomplete is is_incomplete
