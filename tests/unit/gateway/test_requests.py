"""Strangers who wait: what is kept of them, who is asked, and what follows when they may speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from bubbot.gateway.owner import OwnerChat
from bubbot.gateway.requests import name_person
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import ButtonPress, MessagePart, Outbound, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.callers import by, run
from tests.gateways import TIME, Stage, admitting
from tests.turns import CHANNEL, Bench, Options, running
from tests.virtual import virtual

SAY = Texts().say


class ButtonStage(Stage):
    """A channel that shows buttons."""

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """See `Channel.parts`."""
        return [structs.replace(part, buttons=outbound.buttons) for part in super().parts(outbound)]


def bot(store: TapeStore, life: str = "first", **listed: Any) -> Any:
    rules = admitting(store, **(listed or {"owners": {"1"}, "admins": {"2"}}))
    return running(store, ScriptedModel(), Options(rules=rules), channel=ButtonStage(), life=life)


async def with_owner_chat(bench: Bench) -> None:
    """Opens the gate as the daemon does; the owner has written once."""
    owner = OwnerChat({CHANNEL: bench.line}, bench.inbox.name, Texts())
    bench.line.open_gate(bench.app, Texts(), notify_owner=owner.notify)
    await bench.line.receive(bench.inbound("hello", chat="1"))
    await bench.quiet()
    bench.channel.sent.clear()


async def knock(bench: Bench, text: str = "is there cake?", key: str = "s1") -> None:
    await bench.line.receive(bench.inbound(text, sender="9", chat="9", external_id=key))
    await bench.quiet()


def grant(bench: Bench) -> Any:
    return run(bench.line.policy.access.grant, by("terminal"), "9", CHANNEL, "member")  # type: ignore[union-attr]


@virtual
async def test_who_is_let_in_is_told_and_answered_once() -> None:
    async with bot(InMemoryStore()) as bench:
        await with_owner_chat(bench)
        await knock(bench)
        await bench.gate.admit("9")
        assert len(bench.channel.texts) == 2  # the question and the code: nobody was let in
        await grant(bench)
        for _ in range(2):
            await bench.gate.admit("9")
            await bench.gate.admit()
        await bench.quiet()
        assert bench.channel.texts[2:] == [SAY("let_in"), "You said: is there cake?"]


@virtual
async def test_who_was_let_in_while_no_bot_ran_is_told_and_answered_by_the_next() -> None:
    store = InMemoryStore()
    async with bot(store) as bench:
        await with_owner_chat(bench)
        await knock(bench)
        await grant(bench)
    async with bot(store, life="second") as bench:
        await bench.line.policy.access.load()
        await bench.gate.admit()
        await bench.quiet()
        assert bench.channel.texts == [SAY("let_in"), "You said: is there cake?"]


@virtual
async def test_whom_the_configuration_lists_later_is_answered_too() -> None:
    store = InMemoryStore()
    async with bot(store) as bench:
        await knock(bench)
    async with bot(store, life="second", owners={"1"}, members={"9"}) as bench:
        await bench.gate.admit()
        await bench.quiet()
        assert bench.channel.texts == [SAY("let_in"), "You said: is there cake?"]


@virtual
async def test_a_process_that_died_after_the_code_is_made_up_for_by_the_reminder() -> None:
    async with bot(InMemoryStore()) as bench:
        await with_owner_chat(bench)
        await bench.line.policy.access.create_code(Sender("9", "Eve"), CHANNEL, "9")  # and nothing else
        await knock(bench)
        assert any("wants to talk" in text for text in bench.channel.texts)
        await knock(bench, "hello?", "s2")
        await grant(bench)
        await bench.gate.admit()
        await bench.quiet()
        assert bench.channel.texts[-1] == "You said: is there cake?"


@virtual
async def test_a_long_message_of_a_stranger_is_cut() -> None:
    async with bot(InMemoryStore()) as bench:
        await knock(bench, "x" * 10_000)
        (waiting,) = await bench.events("inbox/waiting", bench.inbox.name)
        assert len(waiting["text"]) == 4_000


@virtual
@pytest.mark.parametrize("sender", ["2", "9"])  # an admin, and the stranger
async def test_a_press_of_somebody_who_is_no_owner_does_nothing_but_says_so(sender: str) -> None:
    async with bot(InMemoryStore()) as bench:
        await with_owner_chat(bench)
        await knock(bench)
        (card,) = [part for part in bench.channel.sent if part.buttons]
        assert card.buttons is not None
        message = next(number for number, seen in bench.channel.seen.items() if "wants to talk" in seen)
        press = ButtonPress(CHANNEL, "p1", "1", message, Sender(sender), card.buttons.button_id(0), TIME)
        assert await bench.line.receive(press) == SAY("press_foreign")
        await bench.quiet()
        assert [data["text"] for data in await bench.events("inbox/received", bench.inbox.name)] == ["hello"]


@virtual
async def test_an_address_in_the_name_of_a_stranger_is_not_fetched() -> None:
    async with bot(InMemoryStore()) as bench:
        await with_owner_chat(bench)
        await bench.line.receive(
            structs.replace(bench.inbound("hi", sender="9", chat="9"), sender=Sender("9", "http://x.org"))
        )
        await bench.quiet()
        assert [part.has_no_link_previews for part in bench.channel.sent if "wants to talk" in part.text] == [True]


def test_a_name_formats_nothing_and_ends_no_line() -> None:
    assert name_person(Sender("9", "**Eve**\n(1)")) == r"\*\*Eve\*\* \(1\) (9)"
    assert name_person(Sender("9")) == "9"
