"""What an earlier process left open: merged as it is, counted, run again, and given up in the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import LeaseLost
from bubbot.feature import Feature
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.inbox_views import INBOX_PROJECTION
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart
from bubbot.ports.inbox import done_entry
from bubbot.ports.turn import Turn
from bubbot.runtime.queue import QueuePolicy
from bubbot.runtime.recovery import OpenWork, find_open_work
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import Kind, event, tool_call
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, Tool, tool
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.gateways import edit_of
from tests.tapes import note, notes
from tests.turns import HOME, WAIT, Bench, KeptChannel, Options, Played, calls, running, says, texts_of

INBOX_CHECKPOINT_INTERVAL = 50
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"


AWAY = "test:away"


@pytest.fixture(params=["memory", "sqlite", "sharded"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """Each store in turn, and one with sharded system tapes."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


@dataclass
class Gate:
    """A tool that only reads, and stands still until it is let through; `entered` says that it runs."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def tool(self) -> Tool:
        @tool("wait.here", effect=READS_OWN)
        async def wait_here(turn: Turn, args: NoArguments) -> str:
            """Stands still."""
            self.entered.set()
            await self.opened.wait()
            return "went on"

        return wait_here


async def cut_off(store: TapeStore, text: str = "do it", *, life: str = "first", chat: str = "home") -> None:
    """A process that dies while a tool runs."""
    gate = Gate()
    model = Played(calls("wait_here", call_id="c1"), says("never"))
    async with running(store, model, Options(tools=[gate.tool()]), life=life) as bench:
        await bench.post(text, chat=chat)
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
        await bench.kill()


@pytest.mark.law("T14")
async def test_a_turn_cancelled_from_outside_stays_an_open_fork_with_its_calls(store: TapeStore) -> None:
    await cut_off(store)
    (record,) = await store.forks()
    names = [entry.name or entry.kind for batch in record.staged for entry in batch.entries]
    assert names[:3] == ["session/start", "turn/start", "message"]
    assert names[-2:] == ["tool_call", "loop.step"]
    assert await store.head(HOME) == 0


@pytest.mark.law("T14")
async def test_recovery_merges_the_fork_with_the_outcome_unknown_and_the_interruption(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.recover()
        result, last = (await bench.entries())[-2:]
        assert [item["content"] for item in result.payload["results"]] == [OUTCOME_UNKNOWN]
        assert (last.name, last.meta["turn"]) == ("turn/interrupted", last.payload["data"]["turn"])
        assert last.meta["turn"] == result.meta["turn"]
        assert await store.forks() == []


async def test_what_was_interrupted_is_owed_still_with_its_attempts_counted(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        (owed,) = (await bench.recover()).inbounds
        assert (owed.inbound.text, owed.attempts) == ("do it", 1)
        assert await bench.events("inbox/done", bench.inbox.name) == []


async def test_a_second_recovery_finds_nothing_more_to_merge_and_the_same_debt(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        first = await bench.recover()
        head = await store.head(HOME)
        again = await bench.recover()
        assert (again.sessions, again.inbounds, await store.head(HOME)) == ((), first.inbounds, head)


async def test_a_run_again_cites_the_message_that_is_on_the_tape(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        (result,) = await bench.resume()
        assert (result.status, result.text) == ("answered", "You said: do it")
        assert texts_of(await bench.entries(), "user") == ["do it"]
        assert [start["attempt"] for start in await bench.events("turn/start")] == [1, 2]
        assert bench.channel.texts == ["You said: do it"]


async def test_a_run_again_sees_what_the_interrupted_attempt_had_done(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, Played(says("done")), life="second") as bench:
        await bench.resume()
        roles = [message["role"] for message in bench.requests[0].messages]
        assert roles == ["assistant", "user", "assistant", "tool"]
        assert bench.requests[0].messages[-1]["content"] == OUTCOME_UNKNOWN


async def test_an_answered_run_again_is_owed_no_more(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.resume()
        assert (await bench.recover()).inbounds == ()


@pytest.mark.law("T14")
async def test_after_two_attempts_the_bot_says_honestly_that_it_gave_up(store: TapeStore) -> None:
    await cut_off(store)
    gate = Gate()
    options = Options(tools=[gate.tool()])
    async with running(store, Played(calls("wait_here")), options, life="second") as bench:
        (owed,) = (await bench.recover()).inbounds
        bench.gate.resume(owed)
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
        await bench.kill()
    async with running(store, ScriptedModel(), life="third") as bench:
        (result,) = await bench.resume()
        assert (result.status, result.text) == ("failed", f"{Texts().say('gave_up')} (trace {result.turn_id[:8]})")
        assert bench.requests == []
        assert bench.channel.texts == [result.text]
        assert [entry.payload["kind"] for entry in await bench.entries() if entry.kind == "error"] == ["interrupted"]
        assert (await bench.recover()).inbounds == ()
        assert texts_of(await bench.entries(), "user") == ["do it"]


JOINED = Options(waiting=QueuePolicy(debounce=0.01))


async def cut_off_batch(store: TapeStore, life: str = "first") -> None:
    """A process that dies while a tool runs for three messages; or, if they are on the tape, for them again."""
    gate = Gate()
    model = Played(calls("wait_here", call_id="c1"), says("never"))
    async with running(store, model, replace(JOINED, tools=[gate.tool()]), life=life) as bench:
        recovered = await bench.recover()
        bench.line.resume(recovered)
        async with bench.app.exclusive(HOME):  # the turn begins when all three are there, however long that takes
            for text in () if recovered.inbounds else ("one", "two", "three"):
                await bench.post(text)
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
        await bench.kill()


async def test_an_interrupted_batch_is_answered_once(store: TapeStore) -> None:
    await cut_off_batch(store)
    async with running(store, Played(says("to all three")), JOINED, life="second") as bench:
        results = await bench.resume()
        assert len({result.turn_id for result in results}) == 1
        assert bench.channel.texts == ["to all three"]
        assert [message["role"] for message in bench.requests[0].messages[-2:]] == ["assistant", "tool"]
        first, again = await bench.events("turn/start")
        assert (
            again["inbounds"] == first["inbounds"] == tuple((bench.inbox.tape_of(HOME), number) for number in (1, 2, 3))
        )
        (interrupted,) = await bench.events("turn/interrupted")
        assert again["again"] == interrupted["turn"]
        said = [entry.id for entry in await bench.entries() if entry.payload.get("role") == "user"]
        assert list(again["messages"]) == said
        assert texts_of(await bench.entries(), "user") == ["one", "two", "three"]
        assert (await bench.recover()).inbounds == ()


@pytest.mark.law("T14")
async def test_an_interrupted_batch_is_given_up_once(store: TapeStore) -> None:
    for life in ("first", "second"):
        await cut_off_batch(store, life)
    async with running(store, ScriptedModel(), JOINED, life="third") as bench:
        results = await bench.resume()
        assert {result.status for result in results} == {"failed"}
        assert bench.channel.texts == [results[0].text]
        assert "That means 3 messages (2026-11-21 20:21 UTC)." in results[0].text
        assert bench.requests == []
        assert (await bench.recover()).inbounds == ()


async def test_what_steered_an_interrupted_turn_is_taken_up_with_it(store: TapeStore) -> None:
    gate = Gate()
    model = Played(calls("tape_info"), calls("wait_here"), says("never"))
    options = Options(tools=[gate.tool()], waiting=QueuePolicy(busy="steer"))
    async with running(store, model, options) as bench:
        async with bench.app.exclusive(HOME):
            first = await bench.post("first")
        await bench.post("steers")
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
        assert not first.done()
        await bench.post("comes too late")
    async with running(store, Played(says("to both"), says("to the last")), options, life="second") as bench:
        one, two, last = await bench.resume()
        assert (one.turn_id == two.turn_id, last.turn_id == two.turn_id) == (True, False)
        assert bench.channel.texts == ["to both", "to the last"]


async def test_a_batch_is_known_from_the_bookkeeping_anchor(store: TapeStore) -> None:
    await cut_off_batch(store)
    async with running(store, Played(says("to all three")), JOINED, life="second") as bench:
        await bench.recover()
        for number in range(2 * INBOX_CHECKPOINT_INTERVAL):
            await bench.inbox.record_change(edit_of(f"of nobody {number}", "x"))
        await bench.inbox.write_checkpoint()
        assert [entry.name for entry in await bench.entries(bench.inbox.name)].count(
            INBOX_PROJECTION.checkpoint_name
        ) == 1
        results = await bench.resume()
        assert len({result.turn_id for result in results}) == 1


@pytest.mark.law("T12")
async def test_a_request_for_a_message_before_an_answer_does_not_end_with_that_answer(store: TapeStore) -> None:
    """A version before did not record which turn an open message was interrupted in: such messages run alone."""
    await cut_off_batch(store)
    async with running(store, ScriptedModel(), JOINED, life="second") as bench:
        await bench.recover()
    async with running(store, ScriptedModel(), JOINED, life="third") as bench:
        recovered = await bench.find_open_work()
        apart = [structs.replace(owed, interrupted_turn="") for owed in recovered.inbounds]
        async with asyncio.timeout(WAIT):
            for one in bench.line.resume(structs.replace(recovered, inbounds=tuple(apart))):
                await one
        assert len(bench.requests) == 3
        assert {request.messages[-1]["role"] for request in bench.requests} <= {"user", "tool"}


async def test_after_giving_up_the_next_message_is_answered(store: TapeStore) -> None:
    for life in ("first", "second"):
        await _begun_again(store, life)
    async with running(store, ScriptedModel(), life="third") as bench:
        await bench.resume()
        assert (await bench.say("hello")).text == "You said: hello"


async def _begun_again(store: TapeStore, life: str) -> None:
    gate = Gate()
    async with running(store, Played(calls("wait_here")), Options(tools=[gate.tool()]), life=life) as bench:
        recovered = await bench.recover()
        if recovered.inbounds:
            bench.gate.resume(recovered.inbounds[0])
        else:
            await bench.post("poison")
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()


async def test_messages_that_waited_behind_the_interrupted_one_are_answered_in_order(store: TapeStore) -> None:
    gate = Gate()
    async with running(store, Played(calls("wait_here")), Options(tools=[gate.tool()])) as bench:
        for text in ("one", "two", "three"):
            await bench.post(text)
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
    async with running(store, ScriptedModel(), life="second") as bench:
        results = await bench.resume()
        assert [result.text for result in results] == ["You said: one", "You said: two", "You said: three"]
        assert bench.channel.texts == [result.text for result in results]


async def test_a_message_that_no_turn_had_begun_is_no_attempt(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.inbox.accept(bench.inbound("hello"))
        (owed,) = (await bench.recover()).inbounds
        assert owed.attempts == 0


async def test_a_message_after_a_handoff_in_the_interrupted_turn_is_cited_too(memory_store: InMemoryStore) -> None:
    gate = Gate()
    model = Played(calls("tape_handoff", name="phase/two", summary="s"), calls("wait_here"))
    async with running(memory_store, model, Options(tools=[gate.tool()])) as bench:
        await bench.post("plan it")
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
    async with running(memory_store, ScriptedModel(), life="second") as bench:
        await bench.resume()
        assert texts_of(await bench.entries(), "user") == ["plan it"]
        assert [text for role, text in _said(bench) if role == "user"] == ["[2026-11-21 20:21] plan it"]


def _said(bench: Bench) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in bench.requests[-1].messages]


async def test_a_recovered_fork_whose_parent_grew_meanwhile_still_merges(store: TapeStore) -> None:
    await cut_off(store)
    await store.append([notes("from elsewhere", tape=HOME)])
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.recover()
        entries = await bench.entries()
        assert texts_of(entries, "user") == ["from elsewhere", "do it"]
        assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
        assert await store.forks() == []
        assert len(await bench.events("inbox/interrupted", bench.inbox.name)) == 1


async def test_what_was_staged_for_other_tapes_is_merged_with_the_fork(
    store: TapeStore, clock: SteppingClock, ids: CountingIds
) -> None:
    fork = await TapeService(store, HOME, now=clock, new_id=ids).open_fork([note("a")])
    fork.stage("elsewhere", [event("job/ran", {"job": "j"})])
    await fork.save()
    async with running(store, ScriptedModel()) as bench:
        await bench.recover()
        assert await bench.events("job/ran", "elsewhere") == [{"job": "j"}]


async def test_features_learn_of_what_a_take_up_merged(
    store: TapeStore, clock: SteppingClock, ids: CountingIds
) -> None:
    tape = TapeService(store, HOME, now=clock, new_id=ids, session=HOME)
    fork = await tape.open_fork([note("a")])
    fork.stage("elsewhere", [event("job/ran", {"job": "j"})])
    await fork.save()
    merged: list[Any] = []

    async def on_merged(result: Any) -> None:
        merged.append(result)

    options = Options(features=[Feature(name="watch", on_merged=[on_merged])])
    async with running(store, ScriptedModel(), options) as bench:
        await bench.recover()
    ((job,),) = [result.staged["elsewhere"] for result in merged]
    assert (job.id, job.name, [len(result.delta) for result in merged]) == (1, "job/ran", [2])


async def test_the_forks_of_channels_that_do_not_run_here_are_left_alone(
    store: TapeStore, clock: SteppingClock, ids: CountingIds
) -> None:
    await cut_off(store)
    other = Inbox(TapeService(store, inbox_tape("other"), now=clock, new_id=ids), ids)
    found = await find_open_work(
        store, {"other": other}, lambda name: TapeService(store, name, now=clock, new_id=ids), str
    )
    assert found == OpenWork()
    assert len(await store.forks()) == 1
    # Nor do they hide one of a channel that runs here.
    await TapeService(store, "web:9", now=clock, new_id=ids, session="web:9").open_fork([note("kept")])
    found = await find_open_work(
        store, {"web": other}, lambda name: TapeService(store, name, now=clock, new_id=ids), str
    )
    assert found == OpenWork(("web:9",))
    assert len(await store.forks()) == 2


async def test_a_fork_that_no_message_began_is_merged_by_whoever_starts(
    store: TapeStore, clock: SteppingClock, ids: CountingIds
) -> None:
    await TapeService(store, "notes", now=clock, new_id=ids).open_fork([note("kept")])
    async with running(store, ScriptedModel()) as bench:
        await bench.recover()
        assert texts_of(await bench.entries("notes"), "user") == ["kept"]


async def test_a_start_writes_nothing_and_recovers_a_session_when_it_is_taken_up(store: TapeStore) -> None:
    for chat in ("home", "away"):
        await cut_off(store, chat, life=chat, chat=chat)
    async with running(store, ScriptedModel(), life="second") as bench:
        open_work = await bench.find_open_work()
        assert open_work.sessions == (AWAY, HOME)
        owed = sorted((one.inbound.text, one.attempts) for one in open_work.inbounds)
        assert owed == [("away", 0), ("home", 0)]
        assert (await store.head(HOME), await store.head(AWAY)) == (0, 0)
        async with asyncio.timeout(WAIT):
            (result,) = [await one for one in bench.line.resume(open_work, HOME)]
        assert result.text == "You said: home"
        assert [start["attempt"] for start in await bench.events("turn/start")] == [1, 2]
        assert [record.session for record in await store.forks()] == [AWAY]
        await bench.say("hello", chat="away")
        assert texts_of(await bench.entries(AWAY), "user") == ["away", "hello"]
        assert await store.forks() == []


async def test_a_command_that_holds_the_tape_takes_the_session_up(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        open_work = await bench.find_open_work()
        async with bench.app.exclusive(HOME):
            assert [entry.name for entry in await bench.entries()][-1] == "turn/interrupted"
        async with asyncio.timeout(WAIT):  # what was read before counts the turn all the same
            (result,) = [await one for one in bench.line.resume(open_work)]
        assert texts_of(await bench.entries(), "user") == ["do it"]
        assert [start["attempt"] for start in await bench.events("turn/start")] == [1, 2]
        assert result.status == "answered"


async def test_a_session_with_a_fork_and_nothing_to_answer_is_taken_up_by_the_start(store: TapeStore) -> None:
    await cut_off(store)
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.inbox.append(done_entry([1], outcome="restored"), session=HOME)
        open_work = await bench.find_open_work()
        assert (open_work.sessions, open_work.inbounds) == ((HOME,), ())
        bench.app.take_up(HOME)
        await bench.quiet()
        assert await store.forks() == []
        assert [entry.name for entry in await bench.entries()][-1] == "turn/interrupted"


async def test_a_fork_on_another_tape_than_its_session_has_is_merged_by_the_start(
    store: TapeStore, clock: SteppingClock, ids: CountingIds
) -> None:
    await TapeService(store, "moved", now=clock, new_id=ids, session=HOME).open_fork([note("kept")])
    async with running(store, ScriptedModel()) as bench:
        assert (await bench.find_open_work()).sessions == ()
        assert texts_of(await bench.entries("moved"), "user") == ["kept"]


async def test_a_fork_of_an_earlier_version_names_its_session_by_its_turn(memory_store: InMemoryStore) -> None:
    await cut_off(memory_store)
    (record,) = await memory_store.forks()
    await memory_store.drop_fork(record.id)
    await memory_store.open_fork(structs.replace(record, session="", epoch=0))
    async with running(memory_store, ScriptedModel(), life="second") as bench:
        assert (await bench.find_open_work()).sessions == (HOME,)
        (result,) = await bench.resume()
        assert result.text == "You said: do it"


@pytest.mark.law("T13")
async def test_the_older_of_two_holders_merges_and_sends_nothing(store: TapeStore) -> None:
    gate = Gate()
    options = Options(tools=[gate.tool()])
    model = Played(calls("wait_here", call_id="c1"), says("of the older"))
    async with running(store, model, options) as older, running(store, ScriptedModel(), life="second") as newer:
        mine = await older.post("do it")
        async with asyncio.timeout(WAIT):
            await gate.entered.wait()
        (result,) = await newer.resume()
        gate.opened.set()
        async with asyncio.timeout(WAIT):
            with pytest.raises(LeaseLost):
                await mine
        await older.quiet()
        assert (result.text, newer.channel.texts, older.channel.texts) == ("You said: do it", [result.text], [])
        entries = await older.entries()
        assert [entry.payload["data"]["status"] for entry in entries if entry.name == "turn/end"] == ["answered"]
        assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
        assert await store.forks() == []
        assert (await older.say("again")).text == "of the older"  # it takes the session up like anybody


async def test_a_receipt_of_the_older_holder_is_refused(store: TapeStore) -> None:
    async with running(store, ScriptedModel()) as older, running(store, ScriptedModel(), life="second") as newer:
        await older.say("one")
        assert [receipt["epoch"] for receipt in await older.events("outbox/receipt", older.outbox.name)] == [1]
        await older.outbox.enqueue(HOME, "k", (MessagePart("home", "late"),), {})
        async with newer.app.exclusive(HOME):
            pass
        await older.deliverer.resume()
        assert older.channel.texts[-1] == "late"
        assert len(await older.events("outbox/receipt", older.outbox.name)) == 1
        assert [message.parts[0].text for message in await newer.outbox.pending()] == ["late"]


async def test_an_answer_that_was_merged_and_not_delivered_is_delivered_at_the_next_start(store: TapeStore) -> None:
    class Deaf(KeptChannel):
        """Never comes back from sending."""

        async def send(self, part: object) -> None:  # type: ignore[override]
            reached.set()
            await asyncio.Event().wait()

    reached = asyncio.Event()
    async with running(store, ScriptedModel(), channel=Deaf()) as bench:
        await bench.post("hello")
        async with asyncio.timeout(WAIT):
            await reached.wait()
    async with running(store, ScriptedModel(), life="second") as bench:
        assert await bench.resume() == []
        assert bench.channel.texts == ["You said: hello"]
        assert bench.requests == []
        (receipt,) = await bench.events("outbox/receipt", "bubbot/outbox/test")
        assert receipt["resumed"] is True


async def test_a_real_file_remembers_an_interrupted_turn(tmp_path: Path, clock: SteppingClock) -> None:
    first = await open_store(tmp_path / "bubbot.db", salt=CountingSalt(), now=clock)
    try:
        await cut_off(first)
    finally:
        await first.aclose()
    second = await open_store(tmp_path / "bubbot.db", salt=CountingSalt(), now=clock)
    try:
        async with running(second, ScriptedModel(), life="second") as bench:
            (result,) = await bench.resume()
            assert result.text == "You said: do it"
        assert (await second.audit()).findings == ()
    finally:
        await second.aclose()


@pytest.mark.law("T13")
async def test_the_forks_of_a_turns_fork_are_merged_before_it_innermost_first(store: TapeStore) -> None:
    entered = asyncio.Event()
    async with running(
        store, Played(calls("go_deeper", call_id="c1")), Options(tools=[deeper(entered)]), life="first"
    ) as bench:
        await bench.post("do it")
        await asyncio.wait_for(entered.wait(), WAIT)
        await bench.kill()
    await store.append([notes("from elsewhere", tape=HOME)])
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.recover()
        assert await store.forks() == []
        entries = await bench.entries()
        assert [entry.name for entry in entries].count("turn/interrupted") == 1
        inner, innermost = [entry for entry in entries if entry.payload.get("content") in ("inner", "innermost")]
        results = [entry for entry in entries if entry.kind == Kind.TOOL_RESULT]
        assert [result.payload["results"][0]["tool_call_id"] for result in results] == ["c3", "c1"]
        assert results[0].meta["fork"] == innermost.meta["fork"]
        assert innermost.meta["fork"].startswith(f"{inner.meta['fork']}/")
        assert {entry.meta.get("turn") for entry in (inner, innermost, *results)} == {results[1].meta["turn"]}
        (correction,) = [entry.payload["data"] for entry in entries if entry.name == "correction"]
        assert correction["corrects"] == innermost.id


def deeper(entered: asyncio.Event) -> Tool:
    """A tool that stands still in a fork of a fork of the turn's fork."""

    @tool("go.deeper")
    async def go_deeper(turn: Turn, args: NoArguments) -> str:
        """Stands still."""
        inner = await turn.tape.fork([note("inner")])
        innermost = await inner.fork([note("innermost")])
        await innermost.correct(innermost.base + 1, "corrected")
        call = {"id": "c3", "type": "function", "function": {"name": "x", "arguments": "{}"}}
        await innermost.append([tool_call([call])])
        await innermost.save()
        entered.set()
        await asyncio.Event().wait()
        return ""

    return go_deeper
