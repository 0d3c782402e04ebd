"""The languages of people: who is spoken to in which, and what is remembered of it on the tape."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.formatting import read_language
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.gateway.inbox_views import inbound_data, inbound_from
from bubbot.gateway.owner import OwnerChat
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import ButtonPress, Inbound, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from tests.gateways import admitting
from tests.turns import CHANNEL, Bench, Options, running

TIME = "2026-11-21T20:21:00+00:00"


def person(number: str, language: str = "") -> Sender:
    return Sender(number, "Ann", language=language)


def bot(store: InMemoryStore, *, life: str = "a") -> Any:
    listed = {"owners": {"1", "2"}, "groups": {"-5"}}
    return running(store, ScriptedModel(), Options(rules=_rules(store, **listed)), life=life)


def _rules(store: InMemoryStore, **listed: Any) -> ChannelPolicy:
    return admitting(store, **listed)


async def hear(bench: Bench, text: str, who: Sender, **given: Any) -> None:
    await bench.line.receive(structs.replace(bench.inbound(text, **given), sender=who))
    await bench.app.wait_idle()
    await bench.deliverer.wait_until_idle()


class TestTag:
    @pytest.mark.parametrize(
        ("tag", "language"),
        [("de", "de"), ("zh-hans", "zh-hans"), ("pt-BR", "pt-br"), ("", ""), (None, ""), (7, ""), ("d\u00e9", ""), ("de\n", ""),
         ("x" * 99, ""), ("../de", "")],
    )  # fmt: skip
    def test_a_platform_tells_a_tag_or_nothing(self, tag: object, language: str) -> None:
        assert read_language(tag) == language

    def test_what_is_stored_of_a_message_has_it_if_it_is_told(self) -> None:
        plain = Inbound("t", "m", "c", Sender("1", "Ann"), "hi", TIME)
        told = structs.replace(plain, sender=person("1", "de"))
        assert "language" not in inbound_data(plain)["sender"]
        assert inbound_data(told)["sender"]["language"] == "de"
        assert [inbound_from(inbound_data(one)) for one in (plain, told)] == [plain, told]


class TestTexts:
    def test_one_object_for_each_language_and_prefix(self) -> None:
        texts = Texts()
        assert texts.in_language("zh-hans") is texts.in_language("zh")
        assert texts.in_language("zh").with_command_prefix("/") is texts.with_command_prefix("/").in_language("zh")
        assert texts.in_language("fr") is texts.in_language("") is texts.in_language("en") is texts

    def test_a_bot_of_another_language_keeps_it_for_those_whose_language_nobody_has_translated(self) -> None:
        texts = Texts("zh")
        assert texts.in_language("fr") is texts
        assert texts.in_language("en").say("dropped") == Texts().say("dropped") != texts.say("dropped")


async def test_in_a_group_each_is_answered_in_their_own_language() -> None:
    async with bot(InMemoryStore()) as bench:
        for number, language in (("1", "zh-hans"), ("2", "en"), ("1", "fr")):
            await hear(bench, ",nonsense", person(number, language), chat="-5", direct=False)
        first, second, third = bench.channel.texts
        assert "没有" in first
        assert second == third
        assert "no command" in second


async def test_who_is_not_told_of_now_is_spoken_to_in_the_last_language_also_after_a_restart() -> None:
    store = InMemoryStore()
    async with bot(store) as bench:
        await hear(bench, ",nonsense", person("1", "zh-cn"))
        await hear(bench, ",nonsense", person("1"))
    async with bot(store, life="b") as again:
        await hear(again, ",nonsense", person("1"))
        await hear(again, ",nonsense", person("2"))
        told = [text[:2] for text in [*bench.channel.texts, *again.channel.texts]]
    assert told[0] == told[1] == told[2] != told[3]


async def test_a_refused_press_is_answered_in_the_language_of_who_pressed() -> None:
    async with bot(InMemoryStore()) as bench:
        texts = Texts()
        for language in ("zh", "fr"):
            press = ButtonPress(CHANNEL, f"p{language}", "home", "m1", person("1", language), "forged", TIME)
            assert await bench.line.receive(press) == texts.in_language(language).say("press_expired")


async def test_an_owner_is_notified_in_the_language_of_the_owner() -> None:
    async with bot(InMemoryStore()) as bench:
        owner = OwnerChat({CHANNEL: bench.line}, bench.inbox.name, Texts())
        bench.line.open_gate(bench.app, Texts(), notify_owner=owner.notify)
        await hear(bench, "hello", person("1", "zh"))
        await hear(bench, "bot?", person("9", "en"), chat="-7", direct=False)
        expected = Texts("zh").say("group_called", group="-7", channel=CHANNEL, title="-7", person="Ann (9)")
        assert bench.channel.texts[-1] == expected


async def test_the_mark_of_what_may_have_arrived_is_in_the_language_of_its_chat() -> None:
    async with bot(InMemoryStore()) as bench:
        await hear(bench, "hello", person("1", "zh"), chat="home")
        await hear(bench, "hello", person("2", "en"), chat="other")
        said = [(await bench.deliverer.find_texts(chat)).say("sent_again") for chat in ("home", "other", "unknown")]
        assert said == [Texts(tag).say("sent_again") for tag in ("zh", "en", "en")]
