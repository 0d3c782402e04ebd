"""Admission: who may cause a turn, when a group's message is for the bot, and how bots are kept from looping."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.gateway.admission import (
    AdmissionPolicy,
    AdmissionSettings,
    Ignore,
    OfferPairing,
    RecordOnly,
    Respond,
    is_called,
)
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.tape.words import fold_text

CHATS_WATCHED = 1000


GROUP, OTHER_GROUP = "-100", "-200"
SETTINGS = AdmissionSettings(
    owners=frozenset({"1"}),
    admins=frozenset({"2"}),
    members=frozenset({"3"}),
    groups=frozenset({GROUP}),
    trigger_names=("bubbot", "小助手"),
    bots=frozenset({"9"}),
)
DIRECT = Inbound("chat", "e1", "42", Sender("42"), "hello", "2026-11-21T20:21:00+00:00")


class Seconds:
    """A monotonic clock that stands still unless told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def admission(settings: AdmissionSettings = SETTINGS, clock: Seconds | None = None, **granted: Role) -> AdmissionPolicy:
    """With grants by channel and id, `chat_42=Role.MEMBER`."""
    return AdmissionPolicy(
        settings, lambda channel, who: granted.get(f"{channel}_{who}", Role.STRANGER), clock or Seconds()
    )


def direct(who: str, *, bot: bool = False) -> Inbound:
    return structs.replace(DIRECT, chat=who, sender=Sender(who, bot=bot))


def said(who: str, text: str = "hello", *, chat: str = GROUP, addressed: bool = False, bot: bool = False) -> Inbound:
    return structs.replace(DIRECT, chat=chat, sender=Sender(who, bot=bot), text=text, direct=False, addressed=addressed)


def test_of_an_owner_of_the_settings_nobody_else_is_asked() -> None:
    asked: list[str] = []

    def role_of(_channel: str, who: str) -> Role:
        asked.append(who)
        return Role.MEMBER

    policy = AdmissionPolicy(SETTINGS, role_of, Seconds())
    assert [policy.role(said(who)) for who in ("1", "2")] == [Role.OWNER, Role.ADMIN]
    assert asked == ["2"]


class TestDirect:
    @pytest.mark.parametrize(("who", "role"), [("1", Role.OWNER), ("2", Role.ADMIN), ("3", Role.MEMBER)])
    def test_who_is_listed_speaks(self, who: str, role: Role) -> None:
        assert admission().decide(direct(who)) == Respond(role)

    def test_who_was_granted_a_role_speaks_on_that_channel_alone(self) -> None:
        asked = admission(chat_42=Role.ADMIN)
        assert asked.decide(direct("42")) == Respond(Role.ADMIN)
        assert asked.decide(structs.replace(direct("42"), channel="other")) == OfferPairing()

    def test_the_higher_of_both_roles_counts(self) -> None:
        asked = admission(chat_1=Role.MEMBER, chat_3=Role.OWNER)
        assert asked.decide(direct("1")) == asked.decide(direct("3")) == Respond(Role.OWNER)

    def test_a_stranger_gets_a_code_or_silence(self) -> None:
        assert admission().decide(direct("42")) == OfferPairing()
        assert admission(structs.replace(SETTINGS, pairing=False)).decide(direct("42")) == Ignore("stranger")

    def test_empty_lists_mean_nobody(self) -> None:
        asked = admission(AdmissionSettings(pairing=False))
        assert {asked.decide(direct(who)) for who in ("0", "1", "42")} == {Ignore("stranger")}

    @pytest.mark.parametrize("who", ["", "ann", "@ann", "１", "١", "01", "1 ", "-", "1" * 30])
    def test_what_is_no_numeric_id_is_nobody_even_where_it_is_listed_and_granted(self, who: str) -> None:
        asked = AdmissionPolicy(structs.replace(SETTINGS, owners=frozenset({who})), lambda *_: Role.OWNER, Seconds())
        for inbound in (direct(who), said(who, addressed=True)):
            assert asked.decide(inbound) == Ignore("no numeric id")
            assert asked.role(inbound) is Role.STRANGER

    def test_a_name_decides_nothing(self) -> None:
        assert admission().decide(structs.replace(direct("42"), sender=Sender("42", "1"))) == OfferPairing()


class TestGroups:
    def test_in_a_listed_group_everybody_is_at_least_member(self) -> None:
        asked = admission()
        assert asked.decide(said("42", addressed=True)) == Respond(Role.MEMBER)
        assert asked.decide(said("1", addressed=True)) == Respond(Role.OWNER)

    def test_in_another_group_strangers_get_silence_and_known_people_speak(self) -> None:
        every = structs.replace(SETTINGS, respond_to_all=frozenset({OTHER_GROUP}), record_only=frozenset({OTHER_GROUP}))
        for asked in (admission(), admission(every)):
            assert asked.decide(said("42", chat=OTHER_GROUP, addressed=True)) == Ignore("stranger", is_call=True)
            assert asked.decide(said("42", chat=OTHER_GROUP)) == Ignore("stranger")
            assert asked.decide(said("3", chat=OTHER_GROUP, addressed=True)) == Respond(Role.MEMBER)

    def test_a_direct_chat_is_no_group_whatever_its_id(self) -> None:
        asked = admission(structs.replace(SETTINGS, groups=frozenset({"42"})))
        assert asked.decide(direct("42")) == OfferPairing()

    def test_what_is_not_for_the_bot_is_left_or_recorded(self) -> None:
        assert admission().decide(said("1")) == Ignore("not addressed")
        asked = admission(structs.replace(SETTINGS, record_only=frozenset({GROUP})))
        assert asked.decide(said("1")) == RecordOnly(Role.OWNER)
        assert asked.decide(said("42")) == RecordOnly(Role.MEMBER)
        assert asked.decide(said("42", addressed=True)) == Respond(Role.MEMBER)

    def test_in_some_chats_every_message_is_for_the_bot(self) -> None:
        asked = admission(structs.replace(SETTINGS, respond_to_all=frozenset({GROUP}), record_only=frozenset({GROUP})))
        assert asked.decide(said("42")) == Respond(Role.MEMBER)

    @pytest.mark.parametrize("text", ["bubbot, hi", "hey Bubbot!", "小助手你好"])
    def test_a_name_addresses_it(self, text: str) -> None:
        assert admission().decide(said("42", text)) == Respond(Role.MEMBER)

    def test_without_names_nothing_is_called(self) -> None:
        for called in ((), ("", " ")):
            assert admission(structs.replace(SETTINGS, trigger_names=called)).decide(said("42", "bubbot")) == Ignore(
                "not addressed"
            )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bubbot", "bubbot"),
        ("bubbot", "BUBBOT?"),
        ("bubbot", "@bubbot hi"),
        ("bubbot", "Ｂｕｂｂｏｔ hi"),
        ("bubbot", "bubbots like bubbot"),
        ("bubbot", "你好bubbot你好"),
        ("bubbot", "❤️bubbot❤️"),
        ("bubbot", "bubbot's turn"),
        ("小助手", "小助手你好"),
        ("小助手", "请问小助手,几点"),
        ("小助手", "hi小助手"),
        ("ボット", "ボットさん"),
        ("ボット", "hiボット!"),
        ("ぼっと", "ねえぼっとさん"),
        ("버봇", "버봇아 안녕"),
        ("บอท", "สวัสดีบอทครับ"),
        ("straße", "STRASSE!"),
        ("zoé", "hey zoe\u0301!"),
        ("hey bot", "oh hey bot, listen"),
        ("bot2", "bot2: go"),
        ("c++", "c++?"),
    ],
)
def test_a_name_as_a_word_is_a_call(name: str, text: str) -> None:
    assert is_called(fold_text(name), fold_text(text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bubbot", "bubbots"),
        ("bubbot", "mybubbot"),
        ("bubbot", "bubbot2 _bubbot bubbot_"),
        ("bubbot", "bubbot\u0323"),
        ("q", "q\u0323"),
        ("bubbot", "q\u0323bubbot"),
        ("bubbot", "ябubbot бubbot"),
        ("bubbot", "bub bot"),
        ("bubbot", ""),
        ("zoe", "zoé"),
        ("zoe", "zoe\u0301"),
        ("ボット", "ロボット"),
        ("ボット", "ボットー"),
        ("小助手", "小助 手"),
        ("бот", "ботаника работ"),
        ("", "anything"),
    ],
)
def test_a_part_of_a_word_is_none(name: str, text: str) -> None:
    assert not is_called(fold_text(name), fold_text(text))


def test_a_long_text_full_of_almost_names_is_looked_through_soon() -> None:
    assert not is_called("bubbot", "xbubbot" * 40_000)
    assert not is_called("bubbot", "\u0301" * 40_000 + "xbubbot")


class TestBots:
    def test_bots_are_ignored_even_where_everybody_speaks_and_where_they_were_granted_a_role(self) -> None:
        asked = admission(structs.replace(SETTINGS, owners=frozenset({"8"})), chat_8=Role.OWNER)
        assert asked.decide(said("8", addressed=True, bot=True)) == Ignore("bot")
        assert asked.decide(direct("8", bot=True)) == Ignore("bot")

    def test_a_listed_bot_speaks_as_a_member_at_most(self) -> None:
        asked = admission(structs.replace(SETTINGS, owners=frozenset({"9"})), chat_9=Role.OWNER)
        assert asked.decide(said("9", addressed=True, bot=True)) == Respond(Role.MEMBER)
        assert asked.role(said("9", bot=True)) is Role.MEMBER

    def test_what_a_listed_bot_says_to_others_is_left_or_recorded(self) -> None:
        assert admission().decide(said("9", bot=True)) == Ignore("not addressed")
        assert admission(structs.replace(SETTINGS, record_only=frozenset({GROUP}))).decide(
            said("9", bot=True)
        ) == RecordOnly(Role.MEMBER)

    def test_a_chain_ends_until_a_person_speaks(self) -> None:
        clock = Seconds()
        asked = admission(clock=clock)
        chatter = said("9", addressed=True, bot=True)
        decided = []
        for _ in range(5):
            clock.now += 60
            decided.append(asked.decide(chatter))
        assert decided == [Respond(Role.MEMBER)] * 3 + [Ignore("loop")] * 2
        assert asked.decide(said("9", addressed=True, bot=True, chat=OTHER_GROUP)) == Respond(Role.MEMBER)
        assert asked.decide(said("3", "not for the bot")) == Ignore("not addressed")
        clock.now += 60
        again = [asked.decide(chatter) for _ in range(SETTINGS.bot_depth + 1)]
        assert again == [Respond(Role.MEMBER)] * SETTINGS.bot_depth + [Ignore("loop")]

    def test_a_stranger_does_not_open_the_way_for_a_loop(self) -> None:
        clock = Seconds()
        asked = admission(clock=clock)
        chatter = said("9", addressed=True, bot=True, chat=OTHER_GROUP)
        for _ in range(3):
            clock.now += 60
            asked.decide(chatter)
        asked.decide(said("42", chat=OTHER_GROUP, addressed=True))
        assert asked.decide(chatter) == Ignore("loop")

    def test_bots_cause_so_many_turns_a_minute_even_when_people_speak_between(self) -> None:
        clock = Seconds()
        asked = admission(clock=clock)
        decided: list[Any] = []
        for _ in range(8):
            clock.now += 5
            asked.decide(said("3"))
            decided.append(asked.decide(said("9", addressed=True, bot=True)))
        assert decided == [Respond(Role.MEMBER)] * 6 + [Ignore("loop")] * 2
        clock.now = 1000 + 5 + 60
        asked.decide(said("3"))
        assert asked.decide(said("9", addressed=True, bot=True)) == Respond(Role.MEMBER)
        assert asked.decide(said("9", addressed=True, bot=True)) == Ignore("loop")

    def test_hours_of_chatter_are_132_messages_and_three_turns(self) -> None:
        clock = Seconds()
        asked = admission(clock=clock)
        turns = 0
        for _ in range(132):
            clock.now += 30
            turns += isinstance(asked.decide(said("9", addressed=True, bot=True)), Respond)
        assert turns == 3

    def test_the_chat_that_was_quiet_longest_is_forgotten_first(self) -> None:
        asked = admission()

        def spoke(chat: str) -> Any:
            return asked.decide(said("9", chat=chat, addressed=True, bot=True))

        for chat in (GROUP, *[OTHER_GROUP] * SETTINGS.bot_depth, *[GROUP] * (SETTINGS.bot_depth - 1)):
            assert spoke(chat) == Respond(Role.MEMBER)
        for number in range(CHATS_WATCHED - 1):
            spoke(f"-{number + 10**6}")
        assert spoke(GROUP) == Ignore("loop")
        assert spoke(OTHER_GROUP) == Respond(Role.MEMBER)

    def test_little_is_remembered_of_many_chats(self) -> None:
        asked = admission()
        for _ in range(SETTINGS.bot_depth):
            first = asked.decide(said("9", chat=OTHER_GROUP, addressed=True, bot=True))
            last = asked.decide(said("9", addressed=True, bot=True))
        assert first == last == Respond(Role.MEMBER)
        for chat in range(CHATS_WATCHED - 1):
            asked.decide(said("9", chat=f"-{chat + 10**6}", addressed=True, bot=True))
        assert asked.decide(said("9", addressed=True, bot=True)) == Ignore("loop")  # among the newest thousand
        assert asked.decide(said("9", chat=OTHER_GROUP, addressed=True, bot=True)) == Respond(Role.MEMBER)  # forgotten
