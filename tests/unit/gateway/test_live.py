"""Live answers: typing and a growing message, never more than the platform takes, and the final text in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.gateway import live as live_answers
from bubbot.gateway.live import CLOSE_RETRY_SECONDS, LiveAnswers
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.outbox_views import LiveMessage
from bubbot.ports.channel import (
    ChatMigration,
    MessagePart,
    Outbound,
    OutboundFile,
    Receipt,
    TextStreamed,
    TurnFinished,
    TurnStarted,
)
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.gateways import TIME, SearchedStage, Stage, failing, rules
from tests.provenance import page_tool
from tests.turns import HOME, Bench, Options, Played, Replying, calls, running, says
from tests.unit.gateway.test_inbox import service
from tests.virtual import virtual

CONTINUES_MARK = " …"
FIRST_MESSAGE_DELAY_SECONDS = 1.0
LIVE_CALL_TIMEOUT_SECONDS = 10.0
TYPING_DELAY_SECONDS = 0.3
TYPING_INTERVAL_SECONDS = 4.0


OUTBOX = "bubbot/outbox/test"


def writing(*pieces: str, every: float = 1.0) -> Replying:
    """A model that writes a piece every so many seconds."""

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for piece in pieces:
            await asyncio.sleep(every)
            yield TextDelta(piece)
        yield ModelReply("".join(pieces), (), "stop", Usage(), "writing")

    return Replying(stream)


def live(model: Any, stage: Stage, **given: Any) -> Any:
    """A bot on a stage."""
    return running(InMemoryStore(), model, Options(rules=structs.replace(rules(), **given)), channel=stage)


def shown(bench: Bench) -> LiveAnswers:
    """What shows the bot's turns."""
    assert isinstance(bench.line.previews, LiveAnswers)
    return bench.line.previews


async def answered(bench: Bench, text: str = "hello") -> None:
    await bench.gate.receive(bench.inbound(text))
    await bench.quiet(1000)


@virtual
async def test_it_types_as_long_as_the_turn_runs_and_no_longer() -> None:
    stage = Stage()
    async with live(Played({"text": "done", "delay": 10}), stage) as bench:
        await answered(bench)
        assert stage.times("typing") == pytest.approx(
            [TYPING_DELAY_SECONDS + times * TYPING_INTERVAL_SECONDS for times in range(3)]
        )
        await asyncio.sleep(60)
        assert len(stage.times("typing")) == 3
        assert list(stage.seen.values()) == ["done"]


@virtual
async def test_while_the_disk_is_full_nothing_is_shown_or_sent_and_then_the_answer_comes_once() -> None:
    stage, room = Stage(), asyncio.Event()

    async def has_room() -> None:
        await room.wait()

    pieces = [f"word{number} " for number in range(10)]
    options = Options(rules=rules(), has_room=has_room)
    async with running(InMemoryStore(), writing(*pieces), options, channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(5)  # in the middle of the turn
        assert (stage.times("typing"), stage.acts("send")) == ([], [])
        await asyncio.sleep(60)  # long after it
        assert (stage.times("typing"), stage.acts("send")) == ([], [])
        room.set()
        await bench.quiet(1000)
        assert list(stage.seen.values()) == ["".join(pieces).strip()]
        assert len(stage.acts("send")) == 1


class _FlagStage(Stage):
    """It keeps what each message said, and whether it went without link previews."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: list[tuple[str, bool]] = []

    async def send(self, part: MessagePart) -> Receipt:
        self.flags.append((part.text, part.has_no_link_previews))
        return await super().send(part)

    async def edit(self, message: str, part: MessagePart) -> None:
        self.flags.append((part.text, part.has_no_link_previews))
        await super().edit(message, part)


@virtual
async def test_no_text_after_foreign_words_gets_link_previews_not_even_the_first() -> None:
    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        is_second = request.messages[-1]["role"] == "tool"
        for piece in ("http://leak.example/?", "secret") if is_second else ("I ", "look"):
            await asyncio.sleep(3)
            yield TextDelta(piece)
        if is_second:
            yield ModelReply("http://leak.example/?secret")
        else:
            yield ModelReply("I look", (ToolCall("c", "web_get", "{}"),))

    stage = _FlagStage()
    options = Options(rules=rules(), tools=[page_tool("a page")])
    async with running(InMemoryStore(), Replying(stream), options, channel=stage) as bench:
        await answered(bench)
        said = [flag for text, flag in stage.flags if "http" in text]
        assert len(said) > 2
        assert set(said) == {True}
        assert ("I …", False) in stage.flags
        assert stage.flags[-1] == ("http://leak.example/?secret", True)


@virtual
async def test_what_is_answered_at_once_needs_no_typing() -> None:
    stage = Stage()
    async with live(Played({"text": "done", "delay": TYPING_DELAY_SECONDS / 2}), stage) as bench:
        await answered(bench)
        await answered(bench, ",help")
        assert (stage.times("typing"), stage.texts[0]) == ([], "done")


@virtual
async def test_what_is_answered_at_once_costs_no_task() -> None:
    session, tasks = "test:1", set[asyncio.Task[None]]()

    def create_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.add(task := asyncio.create_task(work))
        return task

    outbox = Outbox(service(InMemoryStore(), OUTBOX))
    previews = LiveAnswers(Stage(), outbox, create_task=create_task)
    for event in (TurnStarted(1, "1"), TextStreamed("done"), TurnFinished("answered")):
        previews.preview(session, event)
    await previews.wait_until_settled(session)
    await asyncio.sleep(60)
    assert not tasks
    previews.preview(session, TurnStarted(2, "2"))
    await asyncio.sleep(60)
    assert len(tasks) == 2, "one for the message, one for typing"
    previews.cancel()
    await asyncio.wait(tasks)


@virtual
@pytest.mark.parametrize(
    ("is_first_attempt", "seconds", "is_unshown"),
    [(True, 0, True), (False, 0, False), (True, 0.9, True), (True, 2, False)],
)
async def test_only_of_a_first_turn_that_began_no_message_is_it_certain_that_there_is_none(
    is_first_attempt: bool, seconds: float, is_unshown: bool
) -> None:
    previews = LiveAnswers(Stage(), Outbox(service(InMemoryStore(), OUTBOX)), create_task=asyncio.create_task)
    previews.preview("test:1", TurnStarted(7, "1", is_first_attempt))
    previews.preview("test:1", TextStreamed("done"))
    await asyncio.sleep(seconds)
    assert not previews.take_unshown("test:1", 7)
    previews.preview("test:1", TurnFinished("answered"))
    await previews.wait_until_settled("test:1")
    assert not previews.take_unshown("test:2", 7)
    assert not previews.take_unshown("test:1", 6)
    assert previews.take_unshown("test:1", 7) == is_unshown
    assert not previews.take_unshown("test:1", 7), "whoever delivers it again asks the outbox"


@virtual
async def test_a_message_whose_beginning_was_cancelled_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin_late(*_: object) -> None:
        await asyncio.sleep(1000)

    monkeypatch.setattr(Outbox, "begin_live", begin_late)
    previews = LiveAnswers(Stage(), Outbox(service(InMemoryStore(), OUTBOX)), create_task=asyncio.create_task)
    previews.preview("test:1", TurnStarted(7, "1", is_first_attempt=True))
    previews.preview("test:1", TextStreamed("done"))
    await asyncio.sleep(2)
    previews.preview("test:1", TurnFinished("answered"))
    await previews.wait_until_settled("test:1")
    assert not previews.take_unshown("test:1", 7)


@virtual
async def test_an_answer_that_came_before_a_preview_is_delivered_without_a_look_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, stage, look = list[int](), Stage(), Outbox.live_message

    async def looking(outbox: Outbox, inbound: int, session: str) -> LiveMessage | None:
        looked.append(inbound)
        return await look(outbox, inbound, session)

    monkeypatch.setattr(Outbox, "live_message", looking)
    async with live(Played({"text": "done", "delay": 2 * TYPING_DELAY_SECONDS}), stage) as bench:
        await answered(bench)
        assert (list(stage.seen.values()), len(stage.times("typing")), looked) == (["done"], 1, [])


@virtual
async def test_pieces_that_come_before_a_change_is_due_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, stage, pieces = [0], Stage(), [f"word{number} " for number in range(400)]
    now = live_answers.LiveTurn.now

    def looking(turn: live_answers.LiveTurn) -> str:
        looks[0] += 1
        return now(turn)

    monkeypatch.setattr(live_answers.LiveTurn, "now", looking)
    async with live(writing(*pieces, every=0.01), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["".join(pieces).strip()]
        assert 2 < looks[0] < 40


@virtual
async def test_a_cancelled_turn_is_not_shown_later() -> None:
    stage = Stage()
    async with live(writing("a ", "b ", "c"), stage) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(TYPING_DELAY_SECONDS / 2)
        shown(bench).cancel()
        await bench.quiet(1000)
        assert (stage.times("typing"), stage.acts("edit")) == ([], [])


@virtual
async def test_a_dropped_turn_is_shown_no_further_and_later_ones_are() -> None:
    stage = Stage()
    async with live(writing("a ", "b ", "c"), stage) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(TYPING_DELAY_SECONDS / 2)
        shown(bench).drop()
        await bench.quiet(1000)
        assert (stage.times("typing"), stage.acts("edit")) == ([], [])
        await bench.gate.receive(bench.inbound("again"))
        await bench.quiet(1000)
        assert stage.times("typing")


@virtual
async def test_a_message_grows_at_the_pace_of_the_platform_and_ends_as_the_answer() -> None:
    stage = Stage()
    pieces = [f"word{number} " for number in range(10)]
    async with live(writing(*pieces), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["".join(pieces).strip()]
        assert len(stage.acts("send")) == 1
        assert stage.acts("send") == ["…"]
        assert all(text.endswith(CONTINUES_MARK) for text in stage.acts("edit")[:-1])
        times = stage.times("edit")[:-1]  # the last one is the delivery
        assert stage.times("send")[0] == pytest.approx(1 + FIRST_MESSAGE_DELAY_SECONDS)
        assert all(later - earlier >= stage.edit_interval - 1e-6 for earlier, later in pairwise(times))
        assert len(times) >= 3
        (receipt,) = await bench.events("outbox/receipt", OUTBOX)
        assert receipt["external_id"] in stage.seen


@virtual
async def test_a_quick_answer_is_simply_sent() -> None:
    stage = Stage()
    async with live(writing("quick", every=0.5), stage) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["quick"], [])


@virtual
async def test_without_live_there_is_typing_only() -> None:
    stage = Stage()
    async with live(writing(*"abcdefgh"), stage, live=False) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["abcdefgh"], [])
        assert stage.acts("typing")


@virtual
async def test_a_platform_that_asks_to_wait_is_not_asked_before() -> None:
    stage = Stage()
    stage.fail = failing("edit", DeliveryFailed("slowly", retry_after=20.0))
    async with live(writing(*(f"{number} " for number in range(40))), stage) as bench:
        await answered(bench)
        assert stage.times("edit")[0] >= stage.times("send")[0] + 20.0
        assert list(stage.seen.values()) == [" ".join(map(str, range(40)))]


@virtual
async def test_a_message_that_is_gone_is_not_changed_any_more_and_the_answer_is_sent() -> None:
    stage = Stage()
    refusal = DeliveryFailed("deleted", permanent=True)
    stage.fail = failing("edit", refusal, refusal)
    async with live(writing(*(f"{number} " for number in range(10))), stage) as bench:
        await answered(bench)
        assert stage.acts("edit") == []
        assert stage.acts("send")[1:] == ["0 1 2 3 4 5 6 7 8 9"]


@virtual
async def test_a_first_message_that_fails_is_not_tried_again() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("offline"))
    async with live(writing(*(f"{number} " for number in range(9))), stage) as bench:
        await answered(bench)
        assert (stage.acts("send"), stage.acts("edit")) == (["0 1 2 3 4 5 6 7 8"], [])


@virtual
async def test_several_turns_in_a_row_have_a_message_each() -> None:
    stage = Stage()
    async with live(writing("one ", "two ", "three ", "four "), stage) as bench:
        for _ in range(3):
            await bench.gate.receive(bench.inbound("hello"))
        await bench.quiet(1000)
        assert list(stage.seen.values()) == ["one two three four"] * 3


@virtual
async def test_silence_after_a_message_was_begun_leaves_no_half_of_a_text() -> None:
    stage = Stage()
    looking = {"text": "let me look", "delay": 1, **calls("tape_info")}
    async with live(Played(looking, {"delay": 9, **says("[SILENT]")}), stage) as bench:
        await answered(bench)
        assert len(stage.acts("send")) == 1
        assert list(stage.seen.values()) == ["let me look"]
        assert await bench.outbox.pending() == ()


@virtual
@pytest.mark.parametrize(("answer", "last"), [("[SILENT]", "let me look"), ("Hello!", "Hello!")])
async def test_a_thought_that_was_shown_is_taken_back_when_its_end_comes(answer: str, last: str) -> None:
    stage, steps = Stage(), iter(["let me look", f"They are in a hurry.|\n</think>\n{answer}"])

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        text = next(steps)
        for piece in text.split("|"):
            yield TextDelta(piece)
            await asyncio.sleep(10)
        is_first = text == "let me look"
        yield ModelReply(text.replace("|", ""), (ToolCall("1", "tape_info", "{}"),) if is_first else ())

    async with live(Replying(stream), stage) as bench:
        await answered(bench)
        assert any("hurry" in text for text in stage.acts("edit"))
        assert list(stage.seen.values()) == [last]


async def begun(store: TapeStore, stage: Stage) -> None:
    """A process that dies when it has begun to show its answer."""
    async with running(store, writing(*(["half "] * 1000), every=0.5), Options(rules=rules()), channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hello"))
        await asyncio.sleep(10)
        assert await bench.events("outbox/preview", OUTBOX)


@virtual
async def test_a_run_again_goes_on_with_the_message_that_was_begun() -> None:
    store, stage = InMemoryStore(), Stage()
    await begun(store, stage)
    async with running(
        store, writing("a ", "b ", "c ", "d "), Options(rules=rules()), channel=stage, life="2"
    ) as bench:
        await bench.resume()
        await bench.quiet(1000)
    assert list(stage.seen.values()) == ["a b c d"]
    assert "—" not in stage.acts("edit")


@virtual
async def test_a_run_again_that_is_silent_closes_the_message_that_was_begun() -> None:
    store, stage = InMemoryStore(), Stage()
    await begun(store, stage)
    async with running(store, Played(says("[SILENT]")), Options(rules=rules()), channel=stage, life="2") as bench:
        await bench.resume()
        await bench.quiet(1000)
        await shown(bench).wait_until_settled(HOME)
    assert list(stage.seen.values()) == ["—"]


@virtual
async def test_no_message_is_begun_before_an_earlier_answer_is_out() -> None:
    stage = Stage()
    stage.fail = failing("send", DeliveryFailed("offline", retry_after=30.0))
    async with live(writing("one ", "two ", "three ", "four ", every=2.0), stage) as bench:
        bench.deliverer.enqueue(await bench.outbox.enqueue(HOME, "earlier", (MessagePart("home", "earlier"),), {}))
        for _ in range(2):
            await bench.gate.receive(bench.inbound("hello"))
        await bench.app.wait_idle()
        await bench.quiet(1000)
        assert stage.acts("send")[0] == "earlier"
        assert stage.times("send")[0] >= 30
        assert stage.acts("send")[1] == "one two three four"


@virtual
async def test_a_text_longer_than_one_part_shows_its_first_and_is_delivered_whole() -> None:
    stage = Stage()
    stage.limit = 10
    async with live(writing(*(["abcde"] * 6)), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["abcdeabcde"] * 3
        edits = stage.acts("edit")[:-1]  # the last one is the delivery
        assert len(edits) == len(set(edits)), "the same text was shown twice"


@virtual
async def test_an_answer_that_begins_with_a_file_names_it_in_the_message_that_was_begun() -> None:
    class Filing(Stage):
        """Sends long answers as files."""

        def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
            """See `Channel.parts`."""
            if outbound.text.endswith("…"):
                return super().parts(outbound)
            return [MessagePart(outbound.chat, "", file=OutboundFile("answer.md", text=outbound.text))]

    stage = Filing()
    async with live(writing(*"abcdef"), stage) as bench:
        await answered(bench)
        assert list(stage.seen.values()) == ["answer.md", ""]


class FarAway(Stage):
    """One that takes a while to show that the bot types."""

    async def typing(self, chat: str, thread: str) -> None:
        await asyncio.sleep(0.2)
        await super().typing(chat, thread)


@virtual
async def test_a_turn_that_ends_while_typing_is_asked_for_waits_for_nothing_more() -> None:
    stage, loop = FarAway(), asyncio.get_running_loop()
    delay = TYPING_DELAY_SECONDS + 0.1
    async with live(Played({"text": "done", "delay": delay}), stage) as bench:
        await answered(bench)
        assert stage.times("send") == pytest.approx([delay])
        began = loop.time()
        await answered(bench, ",status")
        assert stage.times("send")[1] == pytest.approx(began)


LOST = DeliveryFailed("the response was lost", maybe=True)
PIECES = [f"word{number} " for number in range(8)]
WHOLE = " ".join(f"word{number}" for number in range(8))


async def cut_off(store: TapeStore, stage: Stage, *, life: str = "first") -> None:
    """A process that ends between the sending of the first message of an answer and the record of its id."""
    async with running(store, writing(*PIECES), Options(rules=rules()), channel=stage, life=life) as bench:
        if life == "first":
            await bench.gate.receive(bench.inbound("hello"))
        else:
            recovered = await bench.find_open_work()
            bench.line.resume(recovered)
        stage.hang = {"response"}
        await asyncio.sleep(5)
    stage.hang = set()


async def next_life(store: TapeStore, stage: Stage, model: Any, life: str = "2") -> None:
    """A process that takes up what is left, until nothing is left to do."""
    async with running(store, model, Options(rules=rules()), channel=stage, life=life) as bench:
        await bench.resume()
        await bench.quiet(1000)
        await asyncio.sleep(1)


class TestUnknownOutcome:
    """Nobody heard what became of the first message of an answer."""

    @pytest.mark.parametrize("kind", [Stage, SearchedStage])
    def test_that_it_is_about_to_be_sent_is_durable_before(self, kind: type[Stage]) -> None:
        class Looking(kind):  # type: ignore[valid-type, misc]
            """Looks at the tape when it sends."""

            async def send(self, part: MessagePart) -> Receipt:
                """See `Channel.send`."""
                known.append([one["part"]["text"] for one in await bench.events("outbox/preview-begin", OUTBOX)])
                return await super().send(part)  # type: ignore[no-any-return]

        known: list[list[str]] = []
        bench: Bench

        @virtual
        async def test() -> None:
            nonlocal bench
            stage = Looking()
            async with live(writing(*PIECES), stage) as bench:
                await answered(bench)
                assert known == [[stage.acts("send")[0]]]

        test()

    @virtual
    async def test_a_lost_response_leaves_no_piece_where_the_history_can_be_searched(self) -> None:
        stage = SearchedStage()
        stage.lose_response = failing("send", LOST)
        async with live(writing(*PIECES), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == [WHOLE]
            assert len([text for text in stage.acts("edit") if text.endswith(CONTINUES_MARK)]) > 1, (
                "it did not go on to grow"
            )

    @virtual
    async def test_a_lost_response_just_before_the_end_leaves_no_piece_either(self) -> None:
        stage = SearchedStage()
        stage.lose_response = failing("send", LOST)
        async with live(writing(*PIECES[:3]), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == [" ".join(PIECES[:3]).replace("  ", " ").strip()]

    @virtual
    async def test_a_request_that_never_arrived_is_sent_again_under_its_key(self) -> None:
        stage = SearchedStage()
        stage.fail = failing("send", LOST)
        async with live(writing(*PIECES), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == [WHOLE]

    @virtual
    async def test_a_platform_that_is_away_until_after_the_end_gets_one_message(self) -> None:
        stage = SearchedStage()
        stage.lose_response = failing("send", LOST)
        async with live(writing(*PIECES), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await asyncio.sleep(1 + FIRST_MESSAGE_DELAY_SECONDS + 0.1)
            assert stage.seen
            stage.fail = lambda _: LOST
            await asyncio.sleep(60)
            stage.keys.clear()  # so long is no key remembered
            stage.fail = lambda _: None
            await bench.quiet(1000)
            assert list(stage.seen.values()) == [WHOLE]

    @pytest.mark.parametrize("forgotten", [False, True])
    @pytest.mark.parametrize(
        ("model", "said"),
        [(Played(says("quick")), "quick"), (Played({"error": "refused", "message": "no"}), "no"), (None, WHOLE)],
    )
    def test_after_a_kill_the_piece_becomes_what_is_said_in_the_end(
        self, model: Any, said: str, *, forgotten: bool
    ) -> None:
        @virtual
        async def test() -> None:
            store, stage = InMemoryStore(), SearchedStage()
            await cut_off(store, stage)
            assert [text for text in stage.seen.values() if text.endswith(CONTINUES_MARK)]
            if forgotten:
                stage.keys.clear()
            await next_life(store, stage, model or writing(*PIECES))
            assert len(stage.seen) == 1
            assert said in next(iter(stage.seen.values()))

        test()

    @virtual
    async def test_after_two_kills_the_piece_becomes_the_sentence_that_gives_up(self) -> None:
        store, stage = InMemoryStore(), SearchedStage()
        await cut_off(store, stage)
        async with running(store, writing(*PIECES), Options(rules=rules()), channel=stage, life="2") as bench:
            bench.line.resume(await bench.find_open_work())
            await asyncio.sleep(0.5)
        await next_life(store, stage, Played(says("never asked")), life="3")
        assert len(stage.seen) == 1
        assert "interrupted twice" in next(iter(stage.seen.values()))

    @virtual
    async def test_a_request_that_arrives_after_the_search_makes_no_second_message(self) -> None:
        class Slow(SearchedStage):
            """Shows what was sent last only when it has answered."""

            async def find(self, part: MessagePart, since: str) -> Sequence[str]:
                """See `FindsMessages`."""
                return []

        store, stage = InMemoryStore(), Slow()
        await cut_off(store, stage)
        await next_life(store, stage, Played(says("quick")))
        assert list(stage.seen.values()) == ["quick"]

    @virtual
    async def test_the_same_words_of_another_answer_are_left_alone(self) -> None:
        stage = SearchedStage()
        async with live(writing(*PIECES), stage) as bench:
            await answered(bench)
            first = f"{' '.join(PIECES[:2]).replace('  ', ' ').strip()}{CONTINUES_MARK}"
            other = next(iter(stage.seen))
            stage.seen[other] = first  # delivered, and it says the same
            stage.lose_response = failing("send", LOST)
            await answered(bench)
            assert (stage.seen.pop(other), list(stage.seen.values())) == (first, [WHOLE])

    @virtual
    async def test_where_nothing_can_be_searched_nothing_but_a_bare_start_stays(self) -> None:
        stage = Stage()
        stage.lose_response = failing("send", LOST)
        async with live(writing(*PIECES), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["…", WHOLE]

    @virtual
    async def test_where_nothing_can_be_searched_a_run_again_begins_no_second_one(self) -> None:
        store, stage = InMemoryStore(), Stage()
        await cut_off(store, stage)
        assert list(stage.seen.values()) == ["…"]
        await next_life(store, stage, writing(*PIECES))
        assert list(stage.seen.values()) == ["…", WHOLE]

    @virtual
    async def test_a_platform_that_asks_to_wait_has_nothing_yet_and_is_sent_the_first_message_then(self) -> None:
        stage = Stage()
        stage.fail = failing("send", DeliveryFailed("slowly", retry_after=3.0))
        async with live(writing(*PIECES), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == [WHOLE]
            assert stage.acts("send") == ["…"]


class TestSilence:
    """A turn that says nothing, after a message was begun for it."""

    LOOKS = ({"text": "let me look", "delay": 1, **calls("tape_info")}, {"delay": 9, **says("[SILENT]")})

    @virtual
    async def test_a_piece_of_unknown_outcome_is_closed(self) -> None:
        stage = SearchedStage()
        stage.lose_response = failing("send", LOST)
        async with live(Played(*self.LOOKS), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["let me look"]

    @virtual
    async def test_what_never_arrived_is_not_sent_for_it(self) -> None:
        stage = SearchedStage()
        stage.fail = lambda act: LOST if act == "send" else None
        async with live(Played(*self.LOOKS), stage) as bench:
            await answered(bench)
            stage.fail = lambda _: None
            await asyncio.sleep(10_000)
            assert stage.seen == {}

    @virtual
    async def test_a_platform_that_is_away_at_the_end_is_tried_again(self) -> None:
        stage = Stage()
        async with live(Played(*self.LOOKS), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await asyncio.sleep(5)
            stage.fail = lambda _: LOST
            await bench.quiet(1000)
            await asyncio.sleep(sum(CLOSE_RETRY_SECONDS[:3]))
            assert [text.endswith(CONTINUES_MARK) or "tape_info" in text for text in stage.seen.values()] == [True]
            stage.fail = lambda _: None
            await asyncio.sleep(CLOSE_RETRY_SECONDS[3])
            assert list(stage.seen.values()) == ["let me look"]

    @pytest.mark.parametrize("kind", [Stage, SearchedStage])
    def test_a_later_process_closes_it_too_and_once(self, kind: type[Stage]) -> None:
        @virtual
        async def test() -> None:
            store, stage = InMemoryStore(), kind()
            options = Options(rules=rules())
            async with running(store, Played(*self.LOOKS), options, channel=stage) as bench:
                await bench.gate.receive(bench.inbound("hello"))
                await asyncio.sleep(5)
                stage.fail = lambda _: LOST
                await bench.quiet(1000)
                await asyncio.sleep(2)
            stage.fail = lambda _: None
            for life in ("2", "3"):
                await next_life(store, stage, Played(says("x")), life=life)
            assert list(stage.seen.values()) == ["—"]
            assert len(stage.acts("edit")) == len(set(stage.acts("edit")))
            async with running(store, Played(says("x")), options, channel=stage, life="4") as bench:
                assert len(await bench.events("outbox/preview-end", OUTBOX)) == 1

        test()

    @virtual
    async def test_an_answer_is_never_closed_by_a_later_process(self) -> None:
        store, stage = InMemoryStore(), Stage()
        async with running(store, writing(*PIECES), Options(rules=rules()), channel=stage) as bench:
            await answered(bench)
        for life in ("2", "3"):
            await next_life(store, stage, Played(says("x")), life=life)
        assert list(stage.seen.values()) == [WHOLE]


class Group(Stage):
    """A group that becomes a supergroup: ids of messages name others there. `frozen`: the old one takes no changes."""

    frozen = False

    def __init__(self) -> None:
        super().__init__()
        self.chat_of: dict[str, str] = {}

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        receipt = await super().send(part)
        self.chat_of[receipt.external_id] = part.chat
        return receipt

    async def edit(self, message: str, part: MessagePart) -> None:
        """See `SupportsEditing`."""
        if self.frozen and part.chat == "home":
            raise DeliveryFailed("the group was upgraded", permanent=True)
        if self.chat_of[message] != part.chat:
            raise AssertionError("another message of this id was changed")
        await super().edit(message, part)


@pytest.mark.parametrize("frozen", [False, True])
def test_an_answer_that_began_in_a_group_that_moves_goes_whole_to_the_new_one(*, frozen: bool) -> None:
    @virtual
    async def test() -> None:
        stage = Group()
        async with live(writing(*PIECES), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await asyncio.sleep(5)
            stage.frozen = frozen
            await bench.gate.receive(ChatMigration("test", "moved", "home", "new", TIME))
            await bench.quiet(1000)
            old, new = stage.seen
            assert (stage.chat_of[old], stage.chat_of[new]) == ("home", "new")
            assert stage.seen[new] == WHOLE
            assert (stage.seen[old] == "↓") is not frozen

    test()


class TestPoison:
    @virtual
    async def test_a_channel_that_hangs_at_typing_costs_nothing(self) -> None:
        stage = Stage()
        stage.hang = {"typing"}
        async with live(Played({"text": "done", "delay": 1}), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["done"]

    @virtual
    async def test_a_channel_that_hangs_at_editing_delays_the_answer_only_so_long(self) -> None:
        stage = Stage()
        async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await asyncio.sleep(3)
            assert stage.seen
            stage.hang = {"edit"}
            await bench.app.wait_idle()
            loop = asyncio.get_running_loop()
            ended = loop.time()
            await shown(bench).wait_until_settled(HOME)
            assert loop.time() - ended <= 2 * LIVE_CALL_TIMEOUT_SECONDS
            stage.hang = set()
            await bench.quiet(1000)
            assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

    @virtual
    async def test_a_change_that_never_comes_back_does_not_hold_the_answer(self) -> None:
        class Stuck(Stage):
            """Does not even let itself be cancelled while it changes a message."""

            async def edit(self, message: str, part: MessagePart) -> None:
                """See `SupportsEditing`."""
                asked.append(part.text)
                while not let_go.is_set():
                    with suppress(asyncio.CancelledError):
                        await let_go.wait()
                await super().edit(message, part)

        let_go, stage = asyncio.Event(), Stuck()
        asked: list[str] = []
        async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
            await bench.gate.receive(bench.inbound("hello"))
            await bench.app.wait_idle()
            await asyncio.sleep(2 * LIVE_CALL_TIMEOUT_SECONDS + 1.1)
            let_go.set()
            assert asked[-1].split() == list("01234567")  # the answer itself was on its way by then
            await bench.quiet(1000)
            assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

    @pytest.mark.parametrize("error", [RuntimeError("defect"), asyncio.CancelledError(), KeyError("x")])
    def test_whatever_it_raises_the_answer_arrives(self, error: Exception) -> None:
        @virtual
        async def test() -> None:
            stage = Stage()
            stage.fail = lambda act: error if act != "send" else None
            async with live(writing(*(f"{number} " for number in range(8))), stage) as bench:
                await bench.gate.receive(bench.inbound("hello"))
                await bench.app.wait_idle()
                stage.fail = lambda _: None
                await bench.quiet(1000)
                assert list(stage.seen.values()) == ["0 1 2 3 4 5 6 7"]

        test()

    @virtual
    async def test_messages_without_ids_are_not_begun_again_and_again(self) -> None:
        class Nameless(Stage):
            """Gives no ids."""

            async def send(self, part: MessagePart) -> Receipt:
                """See `Channel.send`."""
                await super().send(part)
                return Receipt()

        stage = Nameless()
        async with live(writing(*(f"{number} " for number in range(20))), stage) as bench:
            await answered(bench)
            assert len(stage.acts("send")) == 2

    @virtual
    async def test_cutting_into_parts_may_fail(self) -> None:
        class Uncut(Stage):
            """Cannot cut."""

            def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
                """See `Channel.parts`."""
                raise ValueError("a defect")

        stage = Uncut()
        async with live(writing(*"abcdef"), stage) as bench:
            await answered(bench)
            assert list(stage.seen.values()) == ["abcdef"]
