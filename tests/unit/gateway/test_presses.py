"""Presses of buttons at the gate: who may press, what counts once, what is refused, and what people see afterwards."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.presses import FoundButton, find_button, pressed_part
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import (
    Button,
    ButtonPress,
    ButtonSet,
    Inbound,
    MessagePart,
    Outbound,
    PressedButton,
    Receipt,
    Role,
    Sender,
)
from bubbot.ports.outbox import intent_entry, intent_from
from bubbot.ports.turn import Turn
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import Tool, tool
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import Stage, admitting
from tests.turns import HOME, Bench, Options, running

MAX_EDITED_CHARS = 900
MAX_BUTTON_ID_BYTES = 64


SAY = Texts().say
INBOX, OUTBOX = "bubbot/inbox/test", "bubbot/outbox/test"
NOW = "2026-11-21T20:21:00+00:00"


class Done:
    """A tool that offers buttons, and one behind them; `presses` is what the second was called with."""

    def __init__(self, *buttons: Button, text: str = "Well?") -> None:
        self.presses: list[tuple[str, Role, PressedButton | None]] = []
        self.buttons = buttons or (Button("Yes", ",act", "opaque"), Button("No", ",act"))
        self.text = text

    def tools(self) -> list[Tool]:
        @tool("ask")
        async def ask(turn: Turn, args: NoArguments) -> str:
            """Offer buttons."""
            turn.buttons.append(self.buttons)
            return self.text

        @tool("act")
        async def act(turn: Turn, args: NoArguments) -> str:
            """Do what was offered."""
            self.presses.append((turn.sender.id, turn.role, turn.inbounds[0].inbound.press))
            return "done"

        return [ask, act]


class ButtonStage(Stage):
    """A stage that keeps the buttons that people see below each message."""

    def __init__(self) -> None:
        super().__init__()
        self.below: dict[str, ButtonSet | None] = {}

    async def send(self, part: MessagePart) -> Any:
        receipt = await super().send(part)
        self.below[receipt.external_id] = part.buttons
        return receipt

    async def edit(self, message: str, part: MessagePart) -> None:
        await super().edit(message, part)
        self.below[message] = part.buttons

    def offer(self) -> tuple[str, ButtonSet]:
        """The newest message with buttons."""
        message, buttons = [(one, found) for one, found in self.below.items() if found is not None][-1]
        return message, buttons


def bot(
    store: TapeStore, done: Done, *, life: str = "first", channel: Stage | None = None, **listed: Any
) -> AbstractAsyncContextManager[Bench]:
    """A bot with an owner 1 and members 2 and 3."""
    rules = admitting(store, **(listed or {"owners": {"1"}, "members": {"2", "3"}}))
    options = Options(rules=rules, tools=done.tools())
    return running(store, ScriptedModel(), options, channel=channel or ButtonStage(), life=life)


def press(message: str, button: str, *, sender: str = "1", key: str = "", **more: Any) -> ButtonPress:
    made = ButtonPress("test", key or f"c-{sender}-{button}", "home", message, Sender(sender, "Ann"), button, NOW)
    return structs.replace(made, **more)


async def offered(bench: Bench, **fields: Any) -> tuple[str, ButtonSet]:
    """Asks for buttons, and returns their message."""
    await bench.gate.receive(bench.inbound(",ask", **fields))
    await bench.quiet()
    assert isinstance(bench.channel, ButtonStage)
    return bench.channel.offer()


async def reasons(bench: Bench) -> list[str]:
    return [data["reason"] for data in await bench.events("inbox/press-refused", INBOX)]


class TestPressing:
    async def test_a_press_runs_the_command_in_the_role_of_the_person(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench, sender="2")
            assert await bench.gate.receive(press(message, buttons.button_id(0), sender="2", key="c1")) is None
            await bench.quiet()
            pressed = PressedButton("c1", buttons.key, message, "Yes", "opaque")
            assert done.presses == [("2", Role.MEMBER, pressed)]
            assert bench.channel.texts == ["Well?", "done"]
            assert bench.channel.seen[message] == "Well?\n\n✓ Yes"  # type: ignore[attr-defined]
            assert bench.channel.below[message] is None  # type: ignore[attr-defined]

    async def test_only_the_first_press_of_a_message_counts(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            ids = [buttons.button_id(number % 2) for number in range(6)]
            answers = await asyncio.gather(
                *(bench.gate.receive(press(message, one, key=f"c{number}")) for number, one in enumerate(ids))
            )
            await bench.quiet()
            assert sorted(map(str, answers)) == sorted(["None", *[SAY("press_taken")] * 5])
            assert (len(done.presses), await reasons(bench)) == (1, ["taken"] * 5)

    async def test_a_press_that_is_delivered_again_is_no_second_one(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            for _ in range(3):
                assert await bench.gate.receive(press(message, buttons.button_id(0))) is None
            await bench.quiet()
        async with bot(store, done, life="second", channel=bench.channel) as bench:  # type: ignore[arg-type]
            assert await bench.gate.receive(press(message, buttons.button_id(0))) is None
            await bench.quiet()
            assert (len(done.presses), await reasons(bench)) == (1, [])

    async def test_an_accepted_press_outlives_the_process(self, store: TapeStore) -> None:
        done, channel = Done(), ButtonStage()
        async with bot(store, done, channel=channel) as bench:
            message, buttons = await offered(bench)
            bench.app.pause()
            channel.hang.add("edit")
            await bench.gate.receive(press(message, buttons.button_id(1)))
        channel.hang.clear()
        async with bot(store, done, life="second", channel=channel) as bench:
            await bench.resume()
            await bench.quiet()
            assert [pressed.label for _, _, pressed in done.presses if pressed] == ["No"]
            assert (channel.seen[message], channel.below[message]) == ("Well?\n\n✓ No", None)
            assert bench.channel.texts == ["Well?", "done"]

    async def test_an_adapter_cannot_claim_that_a_message_is_a_press(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            claimed = bench.inbound(",act", press=PressedButton("c1", "made-up", "p1", "Yes"))
            await bench.gate.receive(claimed)
            await bench.quiet()
            assert done.presses == [("1", Role.OWNER, None)]


class TestRefusing:
    async def test_buttons_are_for_the_person_who_asked(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench, sender="2", direct=False, chat="home")
            for sender in ("1", "3", "9"):  # an owner, another member, a stranger
                answer = await bench.gate.receive(press(message, buttons.button_id(0), sender=sender, direct=False))
                assert answer == SAY("press_foreign")
            await bench.quiet()
            assert (done.presses, await reasons(bench)) == ([], ["foreign"] * 2)
            assert bench.channel.texts == ["Well?"]  # a stranger is offered no code
            assert await bench.gate.receive(press(message, buttons.button_id(0), sender="2", direct=False)) is None

    async def test_a_set_for_a_role_is_decided_by_anybody_with_it(self, store: TapeStore) -> None:
        done, card = Done(), ButtonSet((Button("Approve", ",act"),), role=Role.OWNER)
        async with bot(store, done) as bench:
            out = Outbound("test", "home", "May I?", buttons=card)
            intent = await bench.outbox.enqueue(HOME, "card", tuple(bench.line.link.split(out)), {})
            await bench.line.deliver(intent)
            await bench.quiet()
            message, buttons = bench.channel.offer()  # type: ignore[attr-defined]
            assert await bench.gate.receive(press(message, buttons.button_id(0), sender="2")) == SAY("press_foreign")
            assert await bench.gate.receive(press(message, buttons.button_id(0))) is None
            await bench.quiet()
            assert [sender for sender, _, _ in done.presses] == ["1"]

    async def test_made_up_ids_do_nothing(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            forged = [
                "", "/", "0", f"{buttons.key}/", f"{buttons.key}/2", f"{buttons.key}/-1", f"{buttons.key}/٠", "x/0",
                f"{buttons.key}/0/0", ",act", "receipt:1:0/0", "x" * 5000, "\x00/0", f"{buttons.key}/0\n",
            ]  # fmt: skip
            for number, one in enumerate(forged):
                answer = await bench.gate.receive(press(message, one, key=f"f{number}"))
                assert answer == SAY("press_expired"), one
            real = buttons.button_id(0)
            for number, elsewhere in enumerate((press("p77", real), press(message, real, chat="other"))):
                answer = await bench.gate.receive(structs.replace(elsewhere, external_id=f"e{number}"))
                assert answer == SAY("press_expired")
            await bench.quiet()
            assert (done.presses, set(await reasons(bench))) == ([], {"forged"})

    async def test_a_late_press_does_nothing(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            late = press(message, buttons.button_id(0), time="2030-01-01T00:00:00+00:00")
            assert await bench.gate.receive(late) == SAY("press_expired")
            await bench.quiet()
            assert (done.presses, await reasons(bench)) == ([], ["expired"])

    async def test_a_flood_of_presses_leaves_few_facts(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            limits = structs.replace(bench.line.policy.person_limits, messages_per_minute=5)
            bench.line.limiter.limits = limits
            answers = [await bench.gate.receive(press("p1", "x/0", sender="3", key=f"c{n}")) for n in range(200)]
            assert answers.count(SAY("press_later")) == 195
            assert len(await reasons(bench)) == 5

    async def test_presses_of_strangers_leave_no_trace(
        self, store: TapeStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench, direct=False)
            bench.line.limiter.limits = structs.replace(bench.line.policy.person_limits, messages_per_minute=5)
            before = [await bench.outbox.find_intent(buttons.key), await store.tapes()]
            with caplog.at_level("INFO"):
                for sender in range(100, 110):
                    one = press(message, buttons.button_id(0), sender=str(sender), direct=False)
                    answers = {
                        await bench.gate.receive(structs.replace(one, external_id=f"{sender}-{n}")) for n in range(20)
                    }
                    assert answers == {SAY("press_foreign")}  # no limit counts, which would also forget that of others
            assert [await bench.outbox.find_intent(buttons.key), await store.tapes()] == before
            assert "strangers ignored" in caplog.text
            assert await bench.gate.receive(press(message, buttons.button_id(0), direct=False)) is None


class TestShowing:
    async def test_no_name_and_no_label_formats_the_message(self, store: TapeStore) -> None:
        done = Done(Button("**[a](http://x)**\n# b\u202e", ",act"))
        async with bot(store, done) as bench:
            message, buttons = await offered(bench, direct=False)
            name = Sender("1", "_Eve_\n> `x`" + "y" * 500)
            await bench.gate.receive(structs.replace(press(message, buttons.button_id(0), direct=False), sender=name))
            await bench.quiet()
            shown = bench.channel.seen[message]  # type: ignore[attr-defined]
            line = shown.removeprefix("Well?\n\n")
            assert "\n" not in line
            assert line.startswith("✓ \\*\\*\\[a\\]\\(http\\:\\/\\/x\\)\\*\\* \\# b� · \\_Eve\\_ \\> \\`x\\`yyy")
            assert len(line) < 300

    async def test_a_long_message_only_loses_its_buttons(self, store: TapeStore) -> None:
        long = "x" * (MAX_EDITED_CHARS + 1)
        done = Done(text=long)
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            await bench.gate.receive(press(message, buttons.button_id(0)))
            await bench.quiet()
            assert (bench.channel.seen[message], bench.channel.below[message]) == (long, None)  # type: ignore[attr-defined]

    async def test_a_message_that_is_gone_keeps_no_press_from_its_turn(self, store: TapeStore) -> None:
        done = Done()
        async with bot(store, done) as bench:
            message, buttons = await offered(bench)
            del bench.channel.seen[message]  # type: ignore[attr-defined]
            await bench.gate.receive(press(message, buttons.button_id(0)))
            await bench.quiet()
            assert (len(done.presses), bench.channel.texts[-1]) == (1, "done")
            assert [data["reason"] for data in await bench.events("outbox/ended", OUTBOX)] == [
                "there is no such message"
            ]

    async def test_several_offers_of_one_turn_are_not_shown(self, store: TapeStore) -> None:
        @tool("twice")
        async def twice(turn: Turn, args: NoArguments) -> str:
            """Offer two sets."""
            turn.buttons += [(Button("a", ",act"),), (Button("b", ",act"),)]
            return "both"

        rules = admitting(store, owners={"1"})
        options = Options(rules=rules, tools=[twice])
        async with running(store, ScriptedModel(), options, channel=ButtonStage()) as bench:
            await bench.gate.receive(bench.inbound(",twice"))
            await bench.quiet()
            assert [part.buttons for part in bench.channel.sent] == [None]


async def test_the_button_is_found_in_the_part_that_has_it(store: TapeStore) -> None:
    outbox = Outbox(TapeService(store, OUTBOX, now=SteppingClock(), new_id=CountingIds()))
    parts = (MessagePart("home", "long"), MessagePart("home", "end", buttons=ButtonSet((Button("Yes", ",act"),))))
    intent = await outbox.enqueue(HOME, "offer", parts, {})
    offered = intent.parts[1].buttons
    assert offered is not None
    found = FoundButton(intent, 1, offered, Button("Yes", ",act"))
    assert await find_button(outbox, press("m1", offered.button_id(0))) == found
    assert found.part == intent.parts[1]
    await outbox.record_receipt(intent, 0, Receipt("m0"))
    await outbox.record_receipt(intent, 1, Receipt("m1"))
    assert await find_button(outbox, press("m1", offered.button_id(0))) == found
    for wrong in (
        press("m0", offered.button_id(0)), press("m1", offered.button_id(1)), press("m1", f"{offered.key}/0000"),
        press("m1", offered.key), press("m1", "/0"), press("m1", offered.button_id(0), chat="other"),
    ):  # fmt: skip
        assert await find_button(outbox, wrong) is None


@pytest.mark.parametrize(("length", "line"), [(MAX_EDITED_CHARS, "\n\n✓ Yes"), (MAX_EDITED_CHARS + 1, "")])
def test_a_message_that_is_not_too_long_gets_the_line(length: int, line: str) -> None:
    part = MessagePart("home", "x" * length, reply_to="m0", buttons=ButtonSet((Button("Yes", ",act"),), key="k"))
    intent = intent_from(intent_entry(HOME, "k", (part,)).with_id(1))
    buttons = intent.parts[0].buttons
    assert buttons is not None
    found = FoundButton(intent, 0, buttons, buttons.buttons[0])
    changed = pressed_part(
        press("m1", "k/0", direct=True), found, lambda outbound: [MessagePart("home", outbound.text)]
    )
    assert changed == MessagePart("home", "x" * length + line, edits="m1")


@pytest.mark.parametrize("cause", ["a" * 32, "a" * 500, "ключ", "turn:with:colons"])
def test_an_id_fits_the_platforms_whatever_its_cause(cause: str) -> None:
    buttons = ButtonSet(tuple(Button(str(number), ",act") for number in range(100)))
    entry = intent_entry(HOME, cause, (MessagePart("home", "text", buttons=buttons),)).with_id(1)
    read = intent_from(entry).parts[0].buttons
    assert read == structs.replace(buttons, key=read.key if read else "")
    assert read is not None
    assert read.key == entry.key
    ids = {read.button_id(number) for number in range(100)}
    assert len(ids) == 100
    assert max(len(one.encode()) for one in ids) <= MAX_BUTTON_ID_BYTES


def test_a_message_without_a_press_is_stored_as_before() -> None:
    from bubbot.gateway.inbox_views import inbound_data, inbound_from

    plain = Inbound("test", "m1", "home", Sender("1"), "hi", NOW)
    pressed = structs.replace(plain, press=PressedButton("c1", "k", "p1", "Yes", "v"))
    assert "press" not in inbound_data(plain)
    assert [inbound_from(inbound_data(one)) for one in (plain, pressed)] == [plain, pressed]
