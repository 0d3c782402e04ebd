"""The turns of a session, as its page begins with them: over turns that a bot really ran, and over some that none would."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.entry import TapeEntry, error, event, message
from bubbot.tape.store import Batch, ForkRecord, TapeStore
from tests.raw import tamper
from tests.turns import HOME, Options, Played, calls, running, says
from tests.unit.features.trace.test_pages import look, pages_of

SESSION = "telegram:7"
INBOX = "bubbot/inbox/telegram"


def lines_of(page: str) -> list[str]:
    """The words of each line of the list."""
    lines = re.findall(r'<li id="t\d+" class="line">(.*?)</li>', page, re.DOTALL)
    return [" ".join(re.sub("<[^>]+>", " ", line).split()) for line in lines]


async def add_turn(
    store: TapeStore, *entries: TapeEntry, cause: Mapping[str, Any] | None = None, inbox: str = INBOX
) -> None:
    """Add a turn to the tape `talk`, and to the inbox what it was begun for."""
    number = 0
    if cause is not None:
        fact = {"session": SESSION, "sender": {"id": "7", "name": "Alice"}, "origin": "human", **cause}
        ((stored,),) = await store.append([Batch(inbox, (event("inbox/received", fact),))])
        number = stored.id
    start = event("turn/start", {"attempt": 1, "session": SESSION, "inbounds": [[inbox, number]]}, turn="a" * 32)
    end = event("turn/end", {"status": "answered"}, turn="a" * 32)
    dated = [
        TapeEntry(
            id=0, kind=entry.kind, payload=entry.payload, meta=entry.meta, date=f"2026-11-21T20:21:{second:02}+00:00"
        )
        for second, entry in enumerate((start, *entries[-50:], end))
    ]
    await store.append([Batch("talk", (dated[0], *entries[:-50], *dated[1:]))])


@pytest.fixture
async def store(memory_store: InMemoryStore) -> InMemoryStore:
    """A tape with a session and no turns yet."""
    start = TapeEntry(
        id=0, kind="anchor", payload={"name": "session/start", "state": {}}, meta={"session": SESSION}, date=""
    )
    await memory_store.append([Batch("talk", (start,))])
    return memory_store


async def test_a_session_opens_on_its_turns_with_question_answer_and_what_answered(
    memory_store: InMemoryStore,
) -> None:
    model = Played(
        calls("memory_save", content="likes tea", call_id="c1"), says("**Saved**, _now_."), {"error": "refused"}
    )
    async with running(memory_store, model, Options()) as bench:
        for text in ("remember tea", "and now?", ",memory"):
            await bench.say(text)
            await bench.quiet()
    page = await look(pages_of(memory_store), f"/session/{HOME}")
    command, failed, answered = lines_of(page)
    assert re.search(r"^[\d: -]+ Ann command answered ,memory Memory: .* the command memory\.show · [\d.]+ s$", command)
    assert re.search(r"failed and now\? .* scripted · [\d.]+ s · cost unknown · ", failed)
    assert re.search(
        r"answered remember tea Saved , now \. scripted · [\d.]+ s · cost unknown · [\d,]+ read, [\d,]+ written$",
        answered,
    )
    assert "<strong>Saved</strong>, <em>now</em>." in page
    for first in re.findall(r'<li id="t(\d+)"', page):
        assert f"Entries</dt><dd>{first}–" in await look(pages_of(memory_store), f"/session/{HOME}/turn/{first}")


@pytest.mark.parametrize(
    ("cause", "entries", "words"),
    [
        (
            {},
            [event("command", {"name": "usage", "raw": ",usage", "status": "ok", "elapsed_ms": 1, "output": "None."})],
            r"Alice command answered ,usage None\. the command usage · ",
        ),
        (
            {"origin": "schedule"},
            [message("user", "[Scheduled job]", origin="schedule"), message("assistant", "feed the cat", origin="schedule")],
            r"Alice scheduled job answered \[Scheduled job\] feed the cat the job, without a model · ",
        ),
        (
            {"origin": "approval"},
            [message("user", "[Approved]", origin="approval"), message("assistant", "Done.", model="m")],
            r"Alice goes on after an approval answered \[Approved\] Done\. ",
        ),
        (
            {"session": "telegram:8", "sender": {"name": "Mallory"}},  # the inbox of another home, on an imported tape
            [event("command", {"name": "usage", "raw": ",usage", "status": "ok", "output": "None."})],
            r"^[\d: -]+ command answered ,usage None\.",
        ),
        (None, [error("model_refused", "No key.")], r"^[\d: -]+ answered model_refused No key\. no model · "),
        (None, [], r"^[\d: -]+ answered no model · "),
        (
            None,
            [
                message("user", [{"type": "text", "text": "Listen"}, {
                    "type": "file", "digest": "ab" * 32, "media_type": "audio/ogg", "name": "voice.ogg", "size": 48_123,
                    "kind": "voice", "note": "12 s", "text": "Call Ann.", "by": "whisper"}]),
                message("assistant", "I will."),
            ],
            r"Listen Voice message, 12 s , voice\.ogg , 48 kB, transcribed by whisper Call Ann\. I will\. ",
        ),
        (
            None,
            [message("user", [{"type": "image", "digest": "ab" * 32, "media_type": "image/png", "name": "", "size": 5}])],
            r"answered Image, 5 bytes ",
        ),
        (None, [message("user", [{"type": "file", "digest": "ab" * 32, "kind": ["x"], "size": "y"}])], "answered File "),
    ],
)  # fmt: skip
async def test_a_line_says_what_began_a_turn_and_what_answered(
    store: InMemoryStore, cause: Mapping[str, Any] | None, entries: Sequence[TapeEntry], words: str
) -> None:
    await add_turn(store, *entries, cause=cause)
    (line,) = lines_of(await look(pages_of(store), "/session/talk"))
    assert re.search(words, line), line
    assert "{" not in line


@pytest.mark.parametrize("inbounds", [[], "x", [["bubbot/inbox/telegram"]], [[1, "x"]], [["bubbot/access", 1]], [None]])
async def test_a_turn_of_an_imported_tape_may_name_anything(store: InMemoryStore, inbounds: object) -> None:
    data = {"name": "turn/start", "data": {"inbounds": inbounds}}
    start = TapeEntry(id=0, kind="event", payload=data, meta={"turn": 7}, date="2026")
    await store.append([Batch("talk", (start, message("user", "x")))])
    (line,) = lines_of(await look(pages_of(store), "/session/talk"))
    assert line == "2026 not ended x no model"


async def test_the_numbers_of_a_very_long_turn_are_left_to_its_page(store: InMemoryStore) -> None:
    steps = [event("loop.step", {"step": 1, "model": "m", "cost": 0.5}) for _ in range(100)]
    await add_turn(store, message("user", "long"), *steps, message("assistant", "the end"))
    (line,) = lines_of(await look(pages_of(store), "/session/talk"))
    assert re.search(r"long the end m · [\d.]+ s$", line)


async def test_turns_come_in_pages_and_each_once(store: InMemoryStore) -> None:
    for number in range(28):
        await add_turn(store, message("user", f"question {number}"), message("assistant", f"answer {number}"))
    pages, address, shown = pages_of(store), "/session/talk", []
    while address:
        page = await look(pages, address)
        shown += [int(number) for number in re.findall(r"question (\d+)", page)]
        older = re.findall(r'<a rel="next" href="([^"]+)"', page)
        address = older[0] if older else ""
    assert shown == list(range(27, -1, -1))


async def test_what_a_running_turn_has_written_stands_above_the_turns(store: InMemoryStore) -> None:
    await add_turn(store, message("user", "first"), message("assistant", "done"))
    half = Batch("talk", (message("assistant", "half an answer"),))
    await store.open_fork(ForkRecord("f1", "talk", await store.head("talk"), (half,), session=SESSION))
    page = await look(pages_of(store), "/session/talk")
    assert page.index("half an answer") < page.index("first")


async def test_a_tape_without_turns_opens_on_its_timeline(store: InMemoryStore) -> None:
    await store.append([Batch("talk", (message("user", "imported words"),))])
    assert "imported words" in await look(pages_of(store), "/session/talk")
    assert "This session has no turns." in await look(pages_of(store), "/session/talk/turns")
    await store.append([Batch("bubbot/home", (event("turn/start", {}),))])
    assert "turn/start" in await look(pages_of(store), "/session/bubbot%2Fhome")


@pytest.mark.parametrize(("tape", "entry"), [(INBOX, 1), ("talk", 3)])
async def test_damage_to_one_turn_hides_no_other(sqlite_store: SqliteStore, tape: str, entry: int) -> None:
    await sqlite_store.append([Batch("talk", (event("session/note", {}),))])
    for number in range(2):
        await add_turn(sqlite_store, message("user", f"question {number}"), cause={})
    tamper(
        sqlite_store.path,
        """UPDATE entries SET payload = '{"broken"' WHERE id = ? AND tape = (SELECT rowid FROM tapes WHERE name = ?)""",
        (entry, tape),
    )
    reader = await open_readonly(sqlite_store.path)
    try:
        page = await look(pages_of(reader), "/session/talk")
        assert "question 1" in page
        assert len(lines_of(page)) == 2
        assert ">talk<" in await look(pages_of(reader), "/")
    finally:
        await reader.aclose()
