"""The gate with admission: who is answered, who is told a code, who is heard; what overtakes, and what changes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec import structs

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import ChannelEvent, ChatMigration, Outbound, Sender, StopRequest, UnparsedUpdate
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.callers import by, run
from tests.gateways import TIME, Stage, admitting, deletion_of, edit_of, reaction_to, rules
from tests.turns import HOME, Bench, KeptChannel, Options, Played, asked, running, says, texts_of
from tests.virtual import virtual

INBOX = "bubbot/inbox/test"
OLD = "2026-11-19T20:21:00+00:00"

SAY = Texts().say


def gone(count: int, first: str, last: str) -> str:
    """What a chat is told of messages that came too long ago."""
    begin, end = (time[:16].replace("T", " ") for time in (first, last))
    return SAY("too_old", count=count, when=begin if count == 1 else f"{begin} to {end}")


def admitted(
    store: TapeStore, model: Any = None, channel: KeptChannel | None = None, life: str = "first", **listed: Any
) -> Any:
    """A bot with an admission."""
    listed = listed or {"owners": {"1"}}
    options = Options(rules=admitting(store, **listed))
    return running(store, model or ScriptedModel(), options, channel=channel or Stage(), life=life)


async def slow(bench: Bench, text: str = "first", **given: Any) -> asyncio.Future[Any]:
    """A turn under way that takes five seconds."""
    result = await bench.post(text, **given)
    await asyncio.sleep(1)
    assert bench.app.session_activity(HOME)[0]
    return result


SLOW = {"text": "slow", "delay": 5}


class TestDecisions:
    @virtual
    async def test_who_is_listed_is_answered(self) -> None:
        async with admitted(InMemoryStore()) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await bench.quiet()
            assert bench.channel.texts == ["You said: hello"]

    @virtual
    async def test_a_stranger_is_told_a_code_and_how_long_it_works_and_the_first_message_alone_waits(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            for key in ("s1", "s2", "s1"):
                await bench.gate.receive(bench.inbound("a secret", sender="9", chat="9", external_id=key))
            await bench.quiet()
            code, reminder = bench.channel.texts
            assert "Your code is" in code
            assert re.fullmatch(
                r"The code I sent at \d\d:\d\d works until \d\d:\d\d\. "
                r"If it did not arrive, write again after \d\d:\d\d for another one\.",
                reminder,
            )
            names = [(entry.name, entry.key) for entry in await bench.entries(INBOX)]
            assert names == [("inbox/refused", "s1"), ("inbox/waiting", "waiting:s1"), ("inbox/refused", "s2")]
            assert bench.requests == []
            tapes = [tape.name for tape in await store.tapes() if tape.name != INBOX]
            assert "a secret" not in str([await bench.entries(name) for name in tapes])

    @virtual
    async def test_of_what_cannot_be_read_a_stranger_leaves_nothing_and_nobody_no_content(self) -> None:
        async with admitted(InMemoryStore()) as bench:
            for sender in ("1", "9", ""):
                await bench.gate.receive(UnparsedUpdate("test", f"u{sender}", sender, b"raw of it", "odd", sender))
            kept = [(data["reason"], data["raw"]) for data in await bench.events("inbox/unparsed", INBOX)]
            assert kept == [("odd", "cmF3IG9mIGl0"), ("odd (9 bytes of an unknown sender)", "")]

    @virtual
    async def test_a_flood_of_a_stranger_leaves_the_facts_of_two_answers(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            for number in range(100):
                await bench.gate.receive(bench.inbound("x", sender="9", chat="9", external_id=f"s{number}"))
            await bench.quiet()
            facts = [entry.name for tape in await store.tapes() for entry in await bench.entries(tape.name)]
            assert sorted(map(str, facts)) == [
                "access/code",
                "access/code_reminded",
                "inbox/refused",
                "inbox/refused",
                "inbox/waiting",
                "outbox/intent",
                "outbox/receipt",
            ]
            assert len(bench.channel.texts) == 2

    @virtual
    async def test_without_an_owner_the_command_makes_one(self) -> None:
        async with admitted(InMemoryStore(), members={"1"}) as bench:
            await bench.gate.receive(bench.inbound("hello", sender="9", chat="9", external_id="s1"))
            await run(bench.line.policy.access.grant, by("terminal"), "7", "test", "owner")
            await bench.gate.receive(bench.inbound("hello", sender="8", chat="8", external_id="s2"))
            await bench.quiet()
            first, second = (text.rpartition("bubbot access approve ")[2] for text in bench.channel.texts)
            assert re.fullmatch(r"\w{8} --role owner", first)
            assert re.fullmatch(r"\w{8}", second)

    @virtual
    async def test_a_reminder_that_a_dying_process_stored_is_sent_by_the_next_and_only_once(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            await bench.gate.receive(bench.inbound("hello", sender="9", chat="9", external_id="s1"))
            await bench.quiet()
            bench.line.is_cancelled = True  # as if killed between the fact and the notice
            await bench.gate.receive(bench.inbound("hello?", sender="9", chat="9", external_id="s2"))
            assert len(bench.channel.texts) == 1
        async with admitted(store, life="second") as bench:
            await bench.deliverer.resume()
            await bench.line.policy.access.load()
            for key in ("s2", "s3"):
                await bench.gate.receive(bench.inbound("hello??", sender="9", chat="9", external_id=key))
            await bench.quiet()
            (reminder,) = bench.channel.texts
            assert "works until" in reminder

    @virtual
    async def test_what_was_refused_stays_refused_after_its_sender_was_let_in(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            await bench.gate.receive(bench.inbound("early", sender="9", chat="9", external_id="s1"))
            await run(bench.line.policy.access.grant, by("terminal"), "9", "test", "member")
            await bench.gate.receive(bench.inbound("early", sender="9", chat="9", external_id="s1"))
            await bench.gate.receive(bench.inbound("late", sender="9", chat="9", external_id="s2"))
            await bench.quiet()
            assert [asked(one)[-1][1][-4:] for one in bench.requests] == ["late"]

    @virtual
    async def test_the_first_of_an_album_speaks_for_the_others(self) -> None:
        async with admitted(InMemoryStore(), owners={"1"}) as bench:
            for sender, group, addressed in (
                ("1", "a", True), ("1", "a", False), ("1", "b", False), ("2", "a", False), ("1", "", False),
            ):  # fmt: skip
                album = {"direct": False, "addressed": addressed, "group": group}
                await bench.gate.receive(bench.inbound(f"{sender}{group}", chat="-5", sender=sender, **album))
            received = await bench.events("inbox/received", bench.inbox.name)
            assert [data["text"] for data in received] == ["1a", "1a"]

    @virtual
    async def test_a_stranger_in_a_group_leaves_no_trace(self) -> None:
        async with admitted(InMemoryStore()) as bench:
            await bench.gate.receive(bench.inbound("hello", sender="9", chat="-5", direct=False))
            await bench.quiet()
            assert (bench.channel.texts, await bench.entries(INBOX)) == ([], ())

    @virtual
    async def test_what_is_not_for_the_bot_leaves_no_trace(self) -> None:
        async with admitted(InMemoryStore(), owners={"1"}, groups={"-5"}) as bench:
            await bench.gate.receive(bench.inbound("hello", chat="-5", direct=False, addressed=False))
            assert await bench.entries(INBOX) == ()

    @virtual
    async def test_what_is_heard_is_shown_with_its_speaker_and_never_answered(self) -> None:
        async with admitted(InMemoryStore(), owners={"1"}, groups={"-5"}, record_only={"-5"}) as bench:
            heard = bench.inbound("it rains", sender="2", chat="-5", direct=False, addressed=False)
            await bench.gate.receive(structs.replace(heard, sender=Sender("2", "Bob")))
            await bench.quiet()
            assert (bench.channel.texts, bench.requests) == ([], [])
            await bench.gate.receive(bench.inbound("what?", chat="-5", direct=False))
            await bench.quiet()
            shown = [content for role, content in asked(bench.requests[-1]) if role == "user"]
            assert [one.partition("] ")[2] for one in shown] == ["Bob (#2): it rains", "Ann (#1): what?"]
            assert len(bench.channel.texts) == 1
            assert (await bench.recover()).inbounds == ()
            assert await bench.inbox.open_changes() == ()

    @virtual
    async def test_who_lost_the_right_to_speak_while_waiting_is_not_answered(self) -> None:
        store = InMemoryStore()
        async with admitted(store, Played(SLOW, says("never"))) as bench:
            access = bench.line.policy.access
            await run(access.grant, by("terminal"), "9", "test", "member")
            await slow(bench)
            waiting = await bench.post("let me in", sender="9")
            await run(access.revoke, by("terminal"), "9", "test")
            await bench.quiet()
            assert (await waiting).status == "silent"
            assert (len(bench.requests), bench.channel.texts) == (1, ["slow"])
            assert (await bench.recover()).inbounds == ()


class TestOvertaking:
    @virtual
    async def test_a_stop_ends_the_turn_at_once(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            result = await slow(bench)
            await bench.gate.receive(bench.inbound(",stop"))
            await bench.quiet()
            assert (await result).status == "stopped"
            assert bench.channel.texts == [SAY("stopped")]
            outcomes = [done["outcome"] for done in await bench.events("inbox/done", INBOX)]
            assert sorted(outcomes) == ["overtook", "stopped"]

    @virtual
    async def test_a_status_is_answered_at_once_and_the_turn_goes_on(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            await slow(bench)
            await bench.post("behind it")
            await bench.gate.receive(bench.inbound(",status"))
            await bench.deliverer.wait_until_idle()
            doing = SAY("doing_since", doing=SAY("doing_asking"), length="1 second")
            assert bench.channel.texts == [SAY("answering", doing=doing, count=1)]
            await bench.quiet()
            assert bench.channel.texts[1:] == ["slow", "slow"]

    @virtual
    async def test_a_command_that_comes_while_a_message_is_accepted_does_not_wait_for_its_turn(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            both = asyncio.gather(
                bench.gate.receive(bench.inbound("slow one")), bench.gate.receive(bench.inbound(",status"))
            )
            assert [*await both] == [True, True]
            await bench.deliverer.wait_until_idle()
            assert bench.channel.texts == [SAY("about_to_answer", count=1)]
            await bench.quiet()
            assert bench.channel.texts[1:] == ["slow"]

    @virtual
    async def test_a_stop_takes_no_place_among_what_waits(self) -> None:
        options = Options(rules=structs.replace(rules(), queue_limit=1))
        async with running(InMemoryStore(), Played(SLOW), options, channel=Stage()) as bench:
            result = await slow(bench)  # it has the only place
            async with asyncio.timeout(0.5):  # the turn takes longer
                await bench.gate.receive(bench.inbound(",stop"))
            assert (await result).status == "stopped"

    @virtual
    async def test_a_stop_that_comes_while_a_message_is_accepted_stops_it(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            both = asyncio.gather(
                bench.gate.receive(bench.inbound("slow one")), bench.gate.receive(bench.inbound(",stop"))
            )
            assert [*await both] == [True, None]
            await bench.quiet()
            assert bench.channel.texts == [SAY("stopped")]

    @pytest.mark.parametrize("command", [",stop", ",status"])
    def test_where_nothing_runs_that_is_said(self, command: str) -> None:
        @virtual
        async def test() -> None:
            async with admitted(InMemoryStore()) as bench:
                await bench.gate.receive(bench.inbound(command))
                await bench.quiet()
                (told,) = bench.channel.texts
                assert told == SAY("NothingToStop") if command == ",stop" else told.startswith("I am listening.")

        test()

    @virtual
    async def test_a_repeated_stop_stops_once(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            first = await slow(bench)
            await bench.gate.receive(bench.inbound(",stop", external_id="s"))
            await first
            second = await slow(bench, "second")
            await bench.gate.receive(bench.inbound(",stop", external_id="s"))
            await bench.quiet()
            assert (await second).status == "answered"

    @virtual
    async def test_a_stop_from_before_the_absence_stops_nothing(self) -> None:
        options = Options(rules=rules(stale_after=86_400.0))
        async with running(InMemoryStore(), Played(SLOW), options, channel=Stage()) as bench:
            first = await slow(bench)
            await bench.gate.receive(bench.inbound(",stop", time=OLD))
            await bench.quiet()
            assert (await first).status == "answered"
            assert bench.channel.texts == ["slow", gone(1, OLD, OLD)]

    @virtual
    async def test_a_stop_that_a_dying_process_accepted_is_answered_by_the_next(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            await bench.inbox.accept(bench.inbound(",stop"))
        async with admitted(store, life="second") as bench:
            await bench.resume()
            await bench.quiet()
            assert bench.channel.texts == [SAY("NothingToStop")]

    @virtual
    async def test_the_platforms_own_stop_finds_a_chat_that_moved(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW)) as bench:
            result = await slow(bench)
            await bench.gate.receive(ChatMigration("test", "mv", "home", "new", TIME))
            await bench.gate.receive(StopRequest("test", "new"))
            assert (await result).status == "stopped"


class TestDropping:
    @virtual
    async def test_what_comes_in_mid_turn_is_dropped_and_that_is_said_once_for_each_turn(self) -> None:
        options = Options(rules=rules(busy="drop"))
        async with running(InMemoryStore(), Played(SLOW), options, channel=Stage()) as bench:
            for turn in ("first", "second"):
                await bench.gate.receive(bench.inbound(turn))
                await asyncio.sleep(1)
                await bench.gate.receive(bench.inbound("meanwhile"))
                await bench.gate.receive(bench.inbound(",help"))
                await bench.gate.receive(bench.inbound("meanwhile too"))
                await bench.quiet()
            assert [text for text in bench.channel.texts if text in ("slow", SAY("dropped"))] == [
                SAY("dropped"),
                "slow",
            ] * 2
            outcomes = [done["outcome"] for done in await bench.events("inbox/done", INBOX)]
            assert outcomes.count("dropped") == 4
            assert (await bench.recover()).inbounds == ()


class TestChanges:
    @virtual
    async def test_only_what_is_known_here_can_be_changed(self) -> None:
        async with admitted(InMemoryStore()) as bench:
            await bench.gate.receive(bench.inbound("helo", external_id="7"))
            await bench.quiet()
            receipt = (await bench.events("outbox/receipt", "bubbot/outbox/test"))[0]["external_id"]
            for event in (
                edit_of("7", "hello"), reaction_to("7", "👍"), reaction_to(receipt, "👎"), edit_of("8", "?"),
                deletion_of("8"), reaction_to("8", "👍"), edit_of(receipt, "?"), edit_of("7", "by a stranger", sender="9"),
                reaction_to("7", "💩", sender="9"), edit_of("7", "hello"),
            ):  # fmt: skip
                await bench.gate.receive(event)
            await bench.quiet()
            assert [one["content"] for one in await bench.events("correction")] == ["hello"]
            assert [one["emojis"] for one in await bench.events("reaction")] == [("👍",), ("👎",)]
            assert len(await bench.events("inbox/changed", INBOX)) == 3
            await bench.gate.receive(deletion_of("7"))
            await bench.quiet()
            assert (await bench.events("correction"))[-1]["hide"] is True

    @virtual
    async def test_what_is_heard_can_be_changed_while_it_waits(self) -> None:
        async with admitted(InMemoryStore(), Played(SLOW), owners={"1"}, record_only={"home"}) as bench:
            await slow(bench)
            await bench.gate.receive(bench.inbound("it rians", external_id="7", direct=False, addressed=False))
            await bench.gate.receive(edit_of("7", "it rains"))
            await bench.quiet()
            assert [one["content"] for one in await bench.events("correction")] == ["it rains"]

    @virtual
    async def test_what_is_just_being_written_can_be_changed(self) -> None:
        async with admitted(InMemoryStore(), owners={"1"}, record_only={"home"}) as bench:
            async with bench.app.exclusive(HOME):
                await bench.gate.receive(bench.inbound("it rians", external_id="7", direct=False, addressed=False))
                await asyncio.sleep(1)  # the session has taken it up and waits for the tape
                await bench.gate.receive(edit_of("7", "it rains"))
            await bench.quiet()
            assert [one["content"] for one in await bench.events("correction")] == ["it rains"]

    @virtual
    async def test_a_chat_that_moved_goes_on_in_its_session(self) -> None:
        store = InMemoryStore()
        async with admitted(store) as bench:
            await bench.gate.receive(bench.inbound("before", external_id="7"))
            await bench.gate.receive(ChatMigration("test", "mv", "home", "new", TIME))
            await bench.gate.receive(ChatMigration("test", "mv", "home", "new", TIME))
            await bench.gate.receive(bench.inbound("after", chat="new"))
            await bench.gate.receive(edit_of("7", "edited", chat="new"))
            await bench.quiet()
            assert texts_of(await bench.entries(), "user") == ["before", "after"]
            assert bench.channel.sent[-1].chat == "new"
            assert len(await bench.events("correction")) == 1
        async with admitted(store, life="second") as bench:
            await bench.gate.receive(bench.inbound("later", chat="new", external_id="9"))
            await bench.quiet()
            assert texts_of(await bench.entries(), "user")[-1] == "later"
            assert bench.channel.sent[-1].chat == "new"

    @virtual
    @pytest.mark.parametrize("listed", ["-1", "-2"])
    async def test_a_chat_that_moved_is_listed_by_either_id(self, listed: str) -> None:
        async with admitted(InMemoryStore(), groups=[listed], respond_to_all=[listed]) as bench:
            await bench.gate.receive(ChatMigration("test", "mv", "-1", "-2", TIME))
            said = bench.inbound("hi", chat="-2", sender="5", direct=False, addressed=False)
            await bench.gate.receive(said)
            await bench.quiet()
            assert [part.chat for part in bench.channel.sent] == ["-2"]


class Late(InMemoryStore):
    """Commits, and says so only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.committed, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def append(self, batches: Any) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        stored = await super().append(batches)
        self.committed.set()
        await self.go.wait()
        return stored


@pytest.mark.parametrize("what", ["status", "dropped", "heard", "edit"])
def test_a_receiver_that_is_cancelled_half_way_leaves_nothing_undone(what: str) -> None:
    @virtual
    async def test() -> None:
        store = Late()
        listed = {"owners": {"1"}, "record_only": {"home"}}
        line = admitting(store, **listed)
        line = structs.replace(line, queue_policy=structs.replace(line.queue_policy, busy="drop"))
        async with running(store, Played(SLOW), Options(rules=line), channel=Stage()) as bench:
            await slow(bench, external_id="7")
            events: dict[str, ChannelEvent] = {
                "status": bench.inbound(",status"),
                "dropped": bench.inbound("meanwhile"),
                "heard": bench.inbound("overheard", direct=False, addressed=False),
                "edit": edit_of("7", "edited"),
            }
            store.committed.clear()
            store.go.clear()
            receiving = asyncio.create_task(bench.gate.receive(events[what]))
            await store.committed.wait()
            receiving.cancel()
            await asyncio.sleep(0)
            store.go.set()
            await asyncio.gather(receiving, return_exceptions=True)
            await bench.quiet()
            assert await bench.inbox.open_inbounds() == ()
            assert await bench.inbox.open_changes() == ()

    test()


@virtual
async def test_a_notice_that_fails_in_any_way_does_not_fail_the_receiver() -> None:
    stage = Stage()
    stage.fail = lambda _: RuntimeError("a defect")
    async with admitted(InMemoryStore(), channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hello", sender="9", chat="9"))
        assert [entry.name for entry in await bench.entries(INBOX)] == ["inbox/refused", "inbox/waiting"]
        stage.fail, stage.hang = (lambda _: None), {"send"}
        await bench.deliverer.notify(Outbound("test", "9", "hello"))
