"""What waits for a session: joined, in order, alone where it has to be, and changed as people change it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Deletion, Edit, Inbound, Reaction, Sender
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.queue import MessageQueue, QueuedMessage, QueuePolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.doubles import START, SteppingClock
from tests.gateways import TIME, Stage, deletion_of, edit_of, reaction_to, rules
from tests.turns import HOME, WAIT, Bench, Options, Played, asked, calls, running, says, texts_of
from tests.virtual import virtual

MAX_DEBOUNCE_FACTOR = 5
MAX_JOINED_MESSAGES = 20


LATER = SteppingClock(START + timedelta(minutes=5))


def said(
    number: int, text: str = "", *, sender: str = "1", attempts: int = 0, time: str = TIME, turn: str = ""
) -> QueuedMessage:
    inbound = Inbound("test", f"m{number}", "home", Sender(sender), text or f"text {number}", time, message=str(number))
    return QueuedMessage(AcceptedInbound(number, inbound, attempts, turn), asyncio.get_running_loop().create_future())


def changed(number: int, what: type[Edit | Deletion | Reaction | Inbound], message: int = 1) -> TapeChange:
    who, key, of = Sender("1"), f"c{number}", str(message)
    made: dict[type, Any] = {
        Edit: lambda: Edit("test", key, "home", of, who, f"edit {number}", TIME),
        Deletion: lambda: Deletion("test", key, "home", of, TIME),
        Reaction: lambda: Reaction("test", key, "home", of, who, ("x",), TIME),
        Inbound: lambda: Inbound("test", key, "home", who, "overheard", TIME, message=str(number)),
    }
    return TapeChange(number, made[what]())


def line(*items: QueuedMessage | TapeChange, debounce: float = 1.0, **given: Any) -> MessageQueue:
    made = MessageQueue(QueuePolicy(debounce, **given))
    for item in items:
        made.add(item)
    return made


def taken(waiting: MessageQueue) -> list[int]:
    return [one.accepted.id for one in waiting.take_batch(LATER())[0]]


class TestBatches:
    async def test_messages_of_one_sender_come_together(self) -> None:
        assert taken(line(said(1), said(2), said(3))) == [1, 2, 3]

    async def test_without_debounce_each_comes_alone(self) -> None:
        assert taken(line(said(1), said(2), debounce=0)) == [1]

    async def test_another_sender_ends_the_run_and_order_is_kept(self) -> None:
        waiting = line(said(1), said(2, sender="2"), said(3))
        assert [taken(waiting), taken(waiting), taken(waiting)] == [[1], [2], [3]]

    async def test_a_command_comes_alone(self) -> None:
        waiting = line(said(1), said(2, ",help"), said(3), said(4))
        assert [taken(waiting), taken(waiting), taken(waiting)] == [[1], [2], [3, 4]]

    @pytest.mark.parametrize(
        "fields", [{"model": "local"}, {"instructions": "briefly"}, {"origin": "schedule:j"}, {"text": ",help"}]
    )
    async def test_what_is_answered_in_its_own_way_comes_alone(self, fields: dict[str, Any]) -> None:
        own = said(2)
        accepted = structs.replace(own.accepted, inbound=structs.replace(own.accepted.inbound, **fields))
        own = replace(own, accepted=accepted)
        waiting = line(said(1), own, said(3), said(4))
        assert [taken(waiting), taken(waiting), taken(waiting)] == [[1], [2], [3, 4]]

    async def test_what_was_interrupted_in_an_unknown_turn_comes_alone(self) -> None:
        waiting = line(said(1, attempts=1), said(2, attempts=1), said(3), said(4))
        assert [taken(waiting), taken(waiting), taken(waiting)] == [[1], [2], [3, 4]]

    @pytest.mark.parametrize("debounce", [0.0, 1.0])
    async def test_an_interrupted_batch_comes_again_as_it_was(self, debounce: float) -> None:
        waiting = line(
            *(said(number, attempts=1, turn="a") for number in (1, 2)),
            said(3, sender="2"),  # waited while 4 steered the turn of 1 and 2
            said(4, attempts=1, turn="a"),
            said(5, attempts=1, turn="b"),
            said(6),
            debounce=debounce,
        )
        assert [taken(waiting) for _ in range(4)] == [[1, 2, 4], [3], [5], [6]]

    async def test_there_is_a_limit(self) -> None:
        waiting = line(*(said(number) for number in range(1, 26)))
        assert [len(taken(waiting)), len(taken(waiting))] == [MAX_JOINED_MESSAGES, 5]

    async def test_what_was_heard_between_ends_the_run(self) -> None:
        waiting = line(said(1), changed(2, Inbound), said(3))
        assert taken(waiting) == [1]
        assert waiting.take_change() is not None
        assert taken(waiting) == [3]

    async def test_other_changes_do_not(self) -> None:
        waiting = line(said(1), changed(2, Reaction, 9), said(3))
        assert taken(waiting) == [1, 3]

    @pytest.mark.parametrize("debounce", [0.0, 1.0])
    async def test_everything_too_old_comes_together_whoever_said_it(self, debounce: float) -> None:
        old = "2026-11-19T20:21:00+00:00"
        items: list[QueuedMessage | TapeChange] = [
            said(1, time=old),
            changed(2, Inbound),
            said(3, ",new", sender="2", time=old),
            said(4),
        ]
        waiting = line(*items, debounce=debounce, stale_after=86_400.0)
        batch, too_old = waiting.take_batch(LATER())
        assert ([one.accepted.id for one in batch], too_old) == ([1, 3], True)
        assert waiting.take_change() is not None
        batch, too_old = waiting.take_batch(LATER())
        assert ([one.accepted.id for one in batch], too_old) == ([4], False)

    async def test_what_was_begun_is_never_too_old(self) -> None:
        waiting = line(said(1, time="2020-01-01T00:00:00+00:00", attempts=1), stale_after=60.0)
        assert waiting.take_batch(LATER())[1] is False

    async def test_a_time_that_cannot_be_read_is_not_old(self) -> None:
        assert line(said(1, time="yesterday"), stale_after=60.0).take_batch(LATER())[1] is False


class TestSteering:
    async def test_only_where_it_is_asked_for(self) -> None:
        for busy, found in (("queue", []), ("drop", []), ("steer", [2, 3])):
            waiting = line(said(2), said(3), busy=busy)
            assert [one.accepted.id for one in waiting.take_steering("1", (), LATER())] == found

    @pytest.mark.parametrize(
        "first", [{"sender": "2"}, {"text": ",help"}, {"attempts": 1}, {"time": "2020-01-01T00:00:00+00:00"}]
    )
    async def test_nothing_steers_past_what_cannot(self, first: dict[str, Any]) -> None:
        waiting = line(said(1, **first), said(2), busy="steer", stale_after=86_400.0)
        assert waiting.take_steering("1", (), LATER()) == []
        assert waiting.message_count == 2

    async def test_a_reaction_does_not_hinder_it(self) -> None:
        waiting = line(changed(1, Reaction, 9), said(2), busy="steer")
        assert [one.accepted.id for one in waiting.take_steering("1", (), LATER())] == [2]

    async def test_what_was_heard_before_it_does(self) -> None:
        assert line(changed(1, Inbound), said(2), busy="steer").take_steering("1", (), LATER()) == []


class TestChanges:
    async def test_edits_are_taken_with_their_message_and_nothing_else_is(self) -> None:
        first = said(1)
        waiting = line(first, changed(2, Edit), changed(3, Reaction), changed(4, Edit, 9), changed(5, Deletion, 9))
        taken(waiting)
        assert [one.id for one in waiting.take_edits(first.accepted)] == [2]
        assert [one.id for one in iter(waiting.take_change, None)] == [3, 4, 5]

    async def test_a_message_that_was_deleted_before_its_turn_is_withdrawn(self) -> None:
        waiting = line(said(1), said(2), changed(3, Deletion, 1), said(4, attempts=1), changed(5, Deletion, 4))
        assert [(one.accepted.id, gone.id) for one, gone in waiting.take_withdrawn()] == [(1, 3)]
        assert waiting.take_withdrawn() == []
        assert waiting.message_count == 2

    async def test_messages_without_an_id_of_the_platform_are_never_confused(self) -> None:
        first = said(1)
        first.accepted = structs.replace(first.accepted, inbound=structs.replace(first.accepted.inbound, message=""))
        edit = changed(2, Edit)
        waiting = line(first, TapeChange(2, structs.replace(edit.event, message="")))
        assert waiting.take_edits(first.accepted) == []

    async def test_what_waits_is_known_also_where_it_is_only_heard(self) -> None:
        waiting = line(said(1), changed(2, Inbound), changed(3, Edit, 7))
        assert [waiting.has_message(one) for one in "1237"] == [True, True, False, False]


class TestQuiet:
    """Seconds are those of the loop."""

    @staticmethod
    async def _took(waiting: MessageQueue, *later: tuple[float, QueuedMessage | TapeChange]) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for after, item in later:
            loop.call_later(after, waiting.add, item)
        await waiting.wait_quiet(LATER)
        return loop.time() - began

    @virtual
    async def test_one_message_waits_for_the_debounce(self) -> None:
        assert await self._took(line(said(1))) == pytest.approx(1.0)

    @virtual
    async def test_each_message_begins_the_wait_anew(self) -> None:
        assert await self._took(line(said(1)), (0.5, said(2)), (1.25, said(3))) == pytest.approx(2.25)

    @virtual
    async def test_a_change_does_not(self) -> None:
        assert await self._took(line(said(1)), (0.5, changed(2, Reaction))) == pytest.approx(1.0)

    @virtual
    async def test_the_wait_ends_even_if_messages_keep_coming(self) -> None:
        later = [(number / 2, said(number + 1)) for number in range(1, 15)]
        assert await self._took(line(said(1)), *later) == pytest.approx(MAX_DEBOUNCE_FACTOR)

    @virtual
    async def test_somebody_else_ends_the_wait(self) -> None:
        assert await self._took(line(said(1)), (0.25, said(2, sender="2"))) == pytest.approx(0.25)

    @virtual
    async def test_a_command_ends_the_wait(self) -> None:
        assert await self._took(line(said(1)), (0.25, said(2, ",help"))) == pytest.approx(0.25)

    @virtual
    async def test_what_cannot_be_joined_does_not_wait(self) -> None:
        for first in (said(1, ",help"), said(1, attempts=1), changed(1, Reaction)):
            assert await self._took(line(first)) == 0
        assert await self._took(line(said(1), debounce=0)) == 0
        assert await self._took(line(*(said(number) for number in range(MAX_JOINED_MESSAGES)))) == 0

    @virtual
    async def test_what_is_too_old_waits_for_the_rest_of_it(self) -> None:
        old = "2026-11-01T00:00:00+00:00"
        items = [said(number, sender=str(number % 3), time=old) for number in range(1, 40)]
        waiting = line(*items, stale_after=86_400.0)
        assert await self._took(waiting, (0.5, said(40, ",new", time=old))) == pytest.approx(1.5)
        assert len(taken(waiting)) == 40

    @virtual
    async def test_a_young_message_ends_that_wait(self) -> None:
        waiting = line(said(1, time="2026-11-01T00:00:00+00:00"), stale_after=86_400.0)
        assert await self._took(waiting, (0.5, said(2))) == pytest.approx(0.5)


class TestTurns:
    """The same in a running bot."""

    @virtual
    async def test_rapid_messages_are_answered_once(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules(1.0)), channel=Stage()) as bench:
            for text in ("one", "two", "three"):
                await bench.gate.receive(bench.inbound(text))
            await bench.quiet()
            assert len(bench.requests) == 1
            assert _asked(bench) == ["one", "two", "three"]
            (done,) = await bench.events("inbox/done", bench.inbox.name)
            assert done["inbounds"] == (1, 2, 3)

    @virtual
    async def test_senders_never_share_a_turn_or_a_role(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules(1.0))) as bench:
            for sender in ("1", "2", "1"):
                await bench.gate.receive(bench.inbound(f"from {sender}", sender=sender, direct=False))
            await bench.quiet()
            starts = await bench.events("turn/start")
            assert [len(start["inbounds"]) for start in starts] == [1, 1, 1]

    @virtual
    async def test_an_edit_before_the_turn_replaces_the_text(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules(1.0))) as bench:
            await bench.gate.receive(bench.inbound("helo", external_id="7"))
            await bench.gate.receive(edit_of("7", "hello"))
            await bench.quiet()
            assert _asked(bench) == ["hello"]
            assert [done["inbounds"] for done in await bench.events("inbox/done", bench.inbox.name)] == [(1, 2)]

    @virtual
    async def test_an_edit_while_the_turn_runs_corrects_the_message_after_it(self) -> None:
        model = Played({"text": "slow", "delay": 5}, says("next"))
        async with running(InMemoryStore(), model, Options(rules=rules())) as bench:
            await bench.gate.receive(bench.inbound("helo", external_id="7"))
            await asyncio.sleep(1)
            await bench.gate.receive(edit_of("7", "hello"))
            await bench.gate.receive(reaction_to("7", "👍"))
            await bench.quiet()
            (corrected,) = await bench.events("correction")
            said = next(one for one in await bench.entries() if one.meta.get("message") == "7")
            assert corrected == {"corrects": said.id, "content": "hello"}
            (reaction,) = await bench.events("reaction")
            assert reaction["entry"] == said.id
            assert await bench.inbox.open_changes() == ()

    @virtual
    async def test_a_message_deleted_before_its_turn_is_not_answered_and_not_shown(self) -> None:
        model = Played({"text": "slow", "delay": 5}, says("next"))
        async with running(InMemoryStore(), model, Options(rules=rules())) as bench:
            first = await bench.post("first")
            await asyncio.sleep(1)
            second = await bench.post("a secret", external_id="8")
            await bench.gate.receive(deletion_of("8"))
            await bench.quiet()
            assert ((await first).status, (await second).status) == ("answered", "silent")
            assert texts_of(await bench.entries(), "user") == ["first"]
            assert (await bench.recover()).inbounds == ()
            assert await bench.inbox.open_changes() == ()

    @virtual
    async def test_a_stop_for_a_withdrawn_message_does_not_meet_the_next(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules(1.0))) as bench:
            await bench.gate.receive(bench.inbound("a secret", external_id="8"))
            await bench.gate.receive(deletion_of("8"))
            assert bench.app.stop(HOME)
            await bench.quiet()
            assert (await bench.say("hello")).text == "You said: hello"

    @virtual
    async def test_a_stop_while_only_a_change_waits_stops_nothing_later(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules())) as bench:
            await bench.say("hello", external_id="7")
            async with bench.app.exclusive(HOME):
                await bench.gate.receive(edit_of("7", "hallo"))
                await bench.gate.receive(edit_of("7", "hullo"))
                assert bench.app.session_activity(HOME) == (False, 0)
                assert not bench.app.stop(HOME)
            assert (await bench.say("again")).status == "answered"

    @virtual
    async def test_a_message_steers_the_turn_with_its_edit(self) -> None:
        model = Played({"delay": 5, **calls("tape_info")}, says("both"))
        async with running(InMemoryStore(), model, Options(rules=rules(busy="steer"))) as bench:
            first = await bench.post("first")
            await asyncio.sleep(1)
            await bench.gate.receive(reaction_to("9", "👍"))
            second = await bench.post("secnd", external_id="8")
            await bench.gate.receive(edit_of("8", "second"))
            await bench.quiet()
            assert (await first).turn_id == (await second).turn_id
            assert _asked(bench) == ["first", "second"]
            (joined,) = await bench.events("turn/joined")
            assert joined["inbounds"] == ((bench.inbox.name, 2),)
            assert (await bench.recover()).inbounds == ()
            assert await bench.inbox.open_changes() == ()

    @pytest.mark.parametrize("edited_first", [True, False])
    async def test_an_edit_before_a_run_again_is_shown_to_it(self, store: TapeStore, edited_first: bool) -> None:
        async with running(store, Played({"text": "never", "delay": 60}), Options(rules=rules())) as bench:
            await bench.gate.receive(bench.inbound("helo", external_id="7"))
            await began(bench)
            if edited_first:
                await bench.gate.receive(edit_of("7", "hello"))
        async with running(store, ScriptedModel(), Options(rules=rules()), life="second") as bench:
            if not edited_first:
                open_work = await bench.find_open_work()
                await bench.recover()
                assert await bench.inbox.record_change(edit_of("7", "hello"))
                assert open_work.sessions == (HOME,)
            await bench.resume()
            await bench.quiet()
            assert _asked(bench)[-1].endswith("hello")
            assert [one["content"] for one in await bench.events("correction")] == ["hello"]
            assert await bench.inbox.open_changes() == ()

    async def test_an_edit_the_interrupted_attempt_was_written_with_is_not_repeated(self, store: TapeStore) -> None:
        model = Played({"text": "never", "delay": 60})
        async with running(store, model, Options(rules=rules())) as bench:
            async with bench.app.exclusive(HOME):
                await bench.gate.receive(bench.inbound("helo", external_id="7"))
                await bench.gate.receive(edit_of("7", "hello"))
            await began(bench)
        async with running(store, ScriptedModel(), Options(rules=rules()), life="second") as bench:
            await bench.resume()
            await bench.quiet()
            assert _asked(bench) == ["hello"]
            assert await bench.inbox.open_changes() == ()

    async def test_what_an_earlier_process_left_keeps_its_order(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel(), Options(rules=rules(60.0))) as bench:
            await bench.inbox.record_change(bench.inbound("overheard", direct=False, sender="2"))
            await bench.gate.receive(bench.inbound("what was that?", external_id="8", direct=False))
        async with running(store, ScriptedModel(), Options(rules=rules()), life="second") as bench:
            await bench.resume()
            assert texts_of(await bench.entries(), "user") == ["overheard", "what was that?"]


async def began(bench: Bench) -> None:
    """Returns when a turn is in its model call."""
    async with asyncio.timeout(WAIT):
        while not bench.requests:  # noqa: ASYNC110 - the model has no event for it
            await asyncio.sleep(0.001)


def _asked(bench: Bench) -> list[str]:
    """What the newest request shows of people, without the time."""
    return [content.partition("] ")[2] for role, content in asked(bench.requests[-1]) if role == "user"]


class TestBookkeeping:
    """What the queue counts is what it holds, whatever was taken from wherever."""

    async def test_counts_and_platform_ids_follow_what_is_added_and_taken(self) -> None:
        waiting = line(said(1), changed(9, Edit, 2), said(2), changed(7, Inbound), said(3, sender="2"), said(4))
        assert (waiting.message_count, waiting.has_message("7")) == (4, True)
        assert [edit.id for edit in waiting.take_edits(said(2).accepted)] == [9]
        assert taken(waiting) == [1, 2]
        assert (waiting.message_count, waiting.has_message("2"), waiting.has_message("4")) == (2, False, True)
        assert getattr(waiting.take_change(), "id", None) == 7
        assert not waiting.has_message("7")
        waiting.add(changed(10, Deletion, 4))
        assert [(message.accepted.id, change.id) for message, change in waiting.take_withdrawn()] == [(4, 10)]
        assert (waiting.message_count, waiting.has_message("4"), taken(waiting)) == (1, False, [3])
        assert (bool(waiting), waiting.message_count) == (False, 0)

    async def test_a_platform_id_that_came_twice_waits_until_both_are_taken(self) -> None:
        waiting = line(said(1), said(2), debounce=0)
        waiting.add(changed(1, Inbound))
        assert taken(waiting) == [1]
        assert waiting.has_message("1")
        waiting.take_all()
        assert (waiting.has_message("1"), waiting.has_message("2"), waiting.message_count) == (False, False, 0)
