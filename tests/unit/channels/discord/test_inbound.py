"""Reading what Discord sends. The messages are in the form of its API, the odd ones in none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.ports.channel import CommandInfo, Deletion, Edit, Inbound, Reaction, UnparsedUpdate, no_commands
from channels.discord.chats import ChatDirectory, DiscordChat, MemberRoles, parse_chat, parse_chats
from channels.discord.inbound import (
    DiscordPlace,
    MessageScene,
    author_id_without_roles,
    read_deletion,
    read_edit,
    read_message,
)
from channels.discord.inbound_text import DiscordBotUser, MentionNames, read_text
from channels.discord.reactions import ReactionTracker

ME = DiscordBotUser("900", "Bubbot", frozenset({"901"}))
ADA = {"id": "7", "username": "ada", "global_name": "Ada"}
BOT = {"id": "900", "username": "Bubbot", "bot": True}
GUILD = DiscordPlace("50", space="5")
DIRECT = DiscordPlace("60", is_direct=True)


def scene(where: DiscordPlace = GUILD) -> MessageScene:
    return MessageScene("dc", ME, where, {"50": "general"}, {"77": "crew"})


def message(**fields: Any) -> dict[str, Any]:
    return {
        "id": "1000", "channel_id": "50", "type": 0, "content": "hello", "author": ADA,
        "timestamp": "2026-11-22T10:00:00.123000+00:00", "edited_timestamp": None, "attachments": [], "embeds": [],
        "mentions": [], **fields,
    }  # fmt: skip


def read(where: DiscordPlace = GUILD, **fields: Any) -> Inbound:
    found = read_message(scene(where), message(**fields))
    assert isinstance(found, Inbound), found
    return found


@pytest.mark.parametrize(
    ("text", "shown", "called"),
    [
        ("hello", "hello", False),
        ("<@900> hello", "hello", True),
        ("<@!900>, hello", "hello", True),
        ("<@&901>: hello", "hello", True),
        ("  <@900>\n hello", "hello", True),
        ("<@900>", "@Bubbot", True),
        ("<@900> <@900> hello", "@Bubbot hello", True),
        ("hey <@900>!", "hey @Bubbot!", True),
        ("<@8> and <@!8>", "@Bob and @Bob", False),
        ("<@9>", "<@9>", False),
        ("<#50> <#51>", "#general <#51>", False),
        ("<@&77> <@&78>", "@crew <@&78>", False),
        ("<:party:123> <a:dance:4>", ":party: :dance:", False),
        ("@everyone <t:1:Rx> <@x> <@900", "@everyone <t:1:Rx> <@x> <@900", False),
        ("<@٩٠٠>", "<@٩٠٠>", False),
    ],
)
def test_a_text_has_words_where_numbers_stand_and_begins_after_our_name(text: str, shown: str, called: bool) -> None:
    found = read_text(text, ME, MentionNames({"8": "Bob"}, {"50": "general"}, {"77": "crew"}))
    assert (found.text, found.has_mention) == (shown, called)


def test_a_message_is_read_with_everything_that_names_it() -> None:
    one = read(member={"roles": ["3", "4"], "nick": "Countess"}, mentions=[{**ADA, "id": "8", "global_name": "Bob"}])
    assert (one.external_id, one.message, one.chat, one.thread, one.space) == ("m1000", "1000", "50", "", "5")
    assert (one.sender.id, one.sender.name, one.sender.roles) == ("7", "Countess", ("3", "4"))
    assert one.time == "2026-11-22T10:00:00.123000+00:00"
    assert not one.direct
    assert not one.addressed


def test_a_name_of_several_lines_stays_on_one() -> None:
    one = read(content="this is <@8>", mentions=[{**ADA, "id": "8", "global_name": "Eve\n\n# obey"}])
    assert one.text == "this is @Eve # obey"
    assert read(member={"roles": [], "nick": " Ada\u2028of \n Kent"}).sender.name == "Ada of Kent"


def test_the_same_message_without_its_member_is_the_same_with_the_roles_asked_for() -> None:
    live = read_message(scene(), message(member={"roles": ["3"]}))
    assert read_message(scene(), message(), ("3",)) == live
    assert author_id_without_roles(GUILD, message()) == "7"
    assert author_id_without_roles(GUILD, message(member={"roles": []})) == ""
    assert author_id_without_roles(DIRECT, message()) == ""
    assert author_id_without_roles(GUILD, message(webhook_id="1")) == ""
    assert author_id_without_roles(GUILD, message(author=BOT)) == ""


def test_the_time_is_in_utc() -> None:
    assert read(timestamp="2026-11-22T12:00:00+02:00").time == "2026-11-22T10:00:00+00:00"


@pytest.mark.parametrize("kind", [1, 2, 3, 6, 7, 8, 9, 12, 18, 21, 22, 24, 46, 999])
def test_notices_of_discords_own_are_nothing_that_somebody_says(kind: int) -> None:
    assert read_message(scene(), message(type=kind)) is None


def test_what_we_say_and_what_has_no_content_is_nothing() -> None:
    assert read_message(scene(), message(author=BOT)) is None
    assert read_message(scene(), message(content="")) is None


def test_a_direct_message_is_addressed() -> None:
    one = read(DIRECT)
    assert (one.chat, one.direct, one.addressed, one.space) == ("60", True, True, "")


def test_a_post_in_a_forum_begins_with_its_title_and_later_ones_do_not() -> None:
    where = DiscordPlace("50", "1000", "5", title="It is broken")
    assert read(where).text == "It is broken\n\nhello"
    assert read(where, id="1001").text == "hello"
    assert read(where).session == "dc:50:1000"


def test_files_have_kinds_and_a_reference_that_leads_back_to_them() -> None:
    files = [
        {"id": "1", "filename": "a.png", "content_type": "image/png", "size": 5, "url": "https://cdn/a"},
        {"id": "2", "filename": "b", "url": "https://cdn/b", "size": -1},
        {"id": "3", "filename": "c.ogg", "content_type": "audio/ogg; codecs=opus", "url": "https://cdn/c", "size": 9},
    ]
    one = read(attachments=files, content="")
    assert [(file.kind, file.name, file.media_type, file.size) for file in one.attachments] == [
        ("image", "a.png", "image/png", 5), ("file", "b", "", None), ("audio", "c.ogg", "audio/ogg", 9),
    ]  # fmt: skip
    assert json.loads(one.attachments[0].reference) == {
        "url": "https://cdn/a", "channel": "50", "message": "1000", "id": "1",
    }  # fmt: skip
    assert read(attachments=files[2:], flags=1 << 13).attachments[0].kind == "voice"


@pytest.mark.parametrize(
    ("fields", "note"),
    [({"duration_secs": 12.4}, "12 s"), ({"duration_secs": 12.4, "description": "Mia"}, "Mia"), ({"duration_secs": "x"}, ""), ({"duration_secs": 1e30}, ""), ({}, ""),
     ({"duration_secs": 0.5}, "0 s"), ({"duration_secs": 0.49}, ""), ({"duration_secs": 999_999}, "999999 s"), ({"duration_secs": 10**6}, "")],
)  # fmt: skip
def test_a_recording_says_how_long_it_is(fields: dict[str, object], note: str) -> None:
    file = {"id": "3", "filename": "c.ogg", "content_type": "audio/ogg", "url": "https://cdn/c", **fields}
    assert read(attachments=[file], content="").attachments[0].note == note


def test_stickers_polls_and_embeds_of_programs_are_words() -> None:
    poll = {"question": {"text": "Tea?"}, "answers": [{"poll_media": {"text": "yes"}}, {"poll_media": {"text": "no"}}]}
    assert read(sticker_items=[{"id": "1", "name": "wave"}], content="").text == "[sticker wave]"
    assert read(poll=poll, content="").text == "[poll Tea?]\n- yes\n- no"
    embeds = [{"title": "Build", "description": "failed", "fields": [{"name": "branch", "value": "main"}]}]
    assert read(embeds=embeds).text == "hello"
    by_bot = read(embeds=embeds, content="", author={"id": "8", "username": "ci", "bot": True})
    assert (by_bot.text, by_bot.sender.bot) == ("Build\nfailed\nbranch\nmain", True)
    assert read(webhook_id="8", author={"id": "8", "username": "hook"}).sender.bot


def test_a_reply_quotes_and_means_the_bot_where_it_wrote_that() -> None:
    ours = message(id="999", author=BOT, content="Ask <@7>.", mentions=[ADA])
    one = read(type=19, message_reference={"message_id": "999", "channel_id": "50"}, referenced_message=ours)
    assert one.addressed
    assert one.reply_to == "999"
    assert one.quote is not None
    assert (one.quote.message, one.quote.text, one.quote.own) == ("999", "Ask @Ada.", True)
    gone = read(type=19, message_reference={"message_id": "999"}, referenced_message=None)
    assert (gone.reply_to, gone.quote, gone.addressed) == ("999", None, False)


def test_files_of_a_quoted_message_lead_back_to_it() -> None:
    files = [{"id": "4", "filename": "x", "url": "https://cdn/x"}]
    theirs = message(id="999", attachments=files, content="")
    replied = read(type=19, message_reference={"message_id": "998", "channel_id": "2"}, referenced_message=theirs)
    forwarded = read(
        content="", message_reference={"type": 1, "message_id": "3", "channel_id": "2"},
        message_snapshots=[{"message": theirs}],
    )  # fmt: skip
    assert replied.quote is not None
    files_of = (replied.quote.attachments, forwarded.attachments)
    references = [json.loads(found[0].reference) for found in files_of]
    assert [(one["channel"], one["message"]) for one in references] == [("50", "999"), ("2", "3")]


def test_a_reply_to_somebody_else_or_to_nobody_known_is_not_to_the_bot() -> None:
    for author, number in ((ADA, "7"), (None, "")):
        theirs = message(id="999", author=author)
        one = read(type=19, message_reference={"message_id": "999"}, referenced_message=theirs)
        assert one.quote is not None
        assert (one.quote.sender.id, one.quote.own, one.addressed) == (number, False, False)


def test_a_forwarded_message_says_so_and_is_of_the_world() -> None:
    inner = {"content": "look <#50>", "attachments": [{"id": "4", "filename": "x", "url": "https://cdn/x"}]}
    one = read(
        content="", message_reference={"type": 1, "message_id": "3", "channel_id": "2"},
        message_snapshots=[{"message": inner}],
    )  # fmt: skip
    assert (one.text, one.reply_to, one.quote, one.addressed) == ("[forwarded]\nlook #general", "", None, False)
    assert json.loads(one.attachments[0].reference)["channel"] == "2"
    assert one.provenance == "world"


def test_a_quote_of_a_forwarded_message_is_of_the_world_and_another_one_is_not() -> None:
    theirs = message(id="999", message_reference={"type": 1, "message_id": "3", "channel_id": "2"})
    for replied, expected in ((theirs, "world"), (message(id="999"), "own")):
        one = read(type=19, message_reference={"message_id": "999"}, referenced_message=replied)
        assert one.quote is not None
        assert (one.provenance, one.quote.provenance) == ("own", expected)


def test_an_edit_is_one_only_where_somebody_edited() -> None:
    stamp = "2026-11-22T10:05:00+00:00"
    found = read_edit(scene(), message(edited_timestamp=stamp, content="<@900> better"))
    assert isinstance(found, Edit)
    assert (found.external_id, found.text, found.time, found.space) == (f"e1000:{stamp}", "better", stamp, "5")
    assert read_edit(scene(), message()) is None
    assert read_edit(scene(), {"id": "1", "edited_timestamp": stamp, "author": ADA}) is None
    assert read_edit(scene(), message(edited_timestamp=stamp, author=BOT)) is None


def test_deletions_are_one_or_many() -> None:
    assert [one.external_id for one in read_deletion(scene(), {"id": "4"}, "now")] == ["d4"]
    many = read_deletion(scene(), {"ids": ["4", "5"]}, "now")
    assert all(isinstance(one, Deletion) for one in many)
    assert [one.external_id for one in many] == ["d4", "d5"]
    assert isinstance(read_deletion(scene(), {"ids": "4"}, "now")[0], UnparsedUpdate)


def test_reactions_are_what_somebody_now_shows() -> None:
    shown = ReactionTracker()

    def tell(event: str, emoji: Any = None, **more: Any) -> list[Any]:
        raw = {"message_id": "1", "user_id": "7", "emoji": emoji, **more}
        return [
            (one.emojis if isinstance(one, Reaction) else one)
            for one in shown.read(scene(), event, raw, serial="s:1", now="now")
        ]

    party = {"id": "5", "name": "party"}
    assert tell("MESSAGE_REACTION_ADD", {"id": None, "name": "👍"}) == [("👍",)]
    assert tell("MESSAGE_REACTION_ADD", party) == [("👍", ":party:")]
    assert tell("MESSAGE_REACTION_ADD", party) == [("👍", ":party:")]
    assert tell("MESSAGE_REACTION_ADD", {"name": "👍"}, user_id="8") == [("👍",)]
    assert tell("MESSAGE_REACTION_REMOVE", party) == [("👍",)]
    assert tell("MESSAGE_REACTION_REMOVE_EMOJI", {"name": "👍"}) == [(), ()]
    assert tell("MESSAGE_REACTION_ADD", {"id": "6", "name": None}) == [("custom:6",)]
    assert tell("MESSAGE_REACTION_REMOVE_ALL") == [()]
    assert tell("MESSAGE_REACTION_REMOVE_ALL") == []
    assert tell("MESSAGE_REACTION_ADD", {"name": "👍"}, user_id="900") == []
    assert isinstance(tell("MESSAGE_REACTION_ADD", 7)[0], UnparsedUpdate)


def test_only_so_many_reactions_are_remembered() -> None:
    shown = ReactionTracker(max_tracked=2)

    def tell(event: str, user: str, emoji: str) -> tuple[str, ...]:
        raw = {"message_id": "1", "user_id": user, "emoji": {"name": emoji}}
        (one,) = shown.read(scene(), event, raw, serial="s", now="now")
        assert isinstance(one, Reaction)
        return one.emojis

    for user in "123":
        tell("MESSAGE_REACTION_ADD", user, "a")
    assert tell("MESSAGE_REACTION_ADD", "1", "b") == ("b",)
    assert tell("MESSAGE_REACTION_ADD", "3", "b") == ("a", "b")


ODD: list[Any] = [
    None, 7, "text", [], [1], {}, {"id": 5}, {"id": "5"}, message(author=None), message(author=[]), message(author={}),
    message(author={"id": "x"}), message(id="²"), message(content=7), message(type="0"), message(timestamp=None),
    message(timestamp="yesterday"), message(attachments=7), message(attachments=[7]), message(attachments=[{}]),
    message(mentions=[{"id": 3}]), message(member={"roles": [3]}), message(embeds=3, author={**BOT, "id": "8"}),
    message(type=19, referenced_message={"id": "x", "author": ADA}), message(sticker_items=[{"name": 3}]),
    message(poll={"question": {"text": 4}}), message(message_reference={"type": 1}, message_snapshots=7),
]  # fmt: skip


@pytest.mark.parametrize("raw", ODD)
def test_what_cannot_be_read_is_set_aside_with_its_content_and_one_id(raw: Any) -> None:
    first, again = read_message(scene(), raw), read_message(scene(), raw)
    assert isinstance(first, UnparsedUpdate), first
    assert first == again
    assert json.loads(first.raw) == raw
    assert first.external_id.startswith("um")
    assert first.chat == "50"
    assert first.reason


def test_an_unreadable_edit_is_another_one_each_time_and_an_unreadable_message_is_not() -> None:
    raw = message(content=7, edited_timestamp="2026-11-22T10:05:00+00:00")
    edit, said = read_edit(scene(), raw), read_message(scene(), raw)
    assert isinstance(edit, UnparsedUpdate)
    assert isinstance(said, UnparsedUpdate)
    assert (edit.external_id, said.external_id) == ("ue1000:2026-11-22T10:05:00+00:00", "um1000")


def test_half_a_surrogate_pair_is_replaced() -> None:
    one = read(content="a\ud83d b", author={**ADA, "global_name": "\udc00"})
    one.text.encode()
    assert one.text == "a\ufffd b"
    assert one.sender.name == "\ufffd"


def test_what_is_nested_without_end_is_set_aside() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert isinstance(read_message(scene(), message(embeds=deep)), UnparsedUpdate)


@pytest.mark.timeout(120)  # a second or two; reading that grows with the square of the length would take days
def test_ten_megabytes_are_read() -> None:
    one = read(content="<@900> " + "<@8 <:a <" * 1_100_000)
    assert len(one.text) > 9_000_000


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = (*message(), "member", "referenced_message", "message_reference", "message_snapshots", "flags", "poll",
           "sticker_items", "webhook_id", "ids", "message_id", "user_id", "emoji")  # fmt: skip


@given(fields=st.dictionaries(st.sampled_from(_FIELDS), _json, max_size=4))
def test_nothing_is_raised_whatever_comes(fields: dict[str, Any]) -> None:
    raw = message(**fields)
    for where in (GUILD, DIRECT):
        author_id_without_roles(where, raw)
        read_message(scene(where), raw)
        read_edit(scene(where), {"edited_timestamp": "2026-01-01T00:00:00Z", **raw})
        read_deletion(scene(where), raw, "now")
        for event in (
            "MESSAGE_REACTION_ADD",
            "MESSAGE_REACTION_REMOVE",
            "MESSAGE_REACTION_REMOVE_ALL",
            "MESSAGE_REACTION_REMOVE_EMOJI",
        ):
            ReactionTracker().read(scene(where), event, raw, serial="s", now="now")


class NeverAsked:
    async def __call__(self, *given: Any, **named: Any) -> Any:
        raise AssertionError("asked")


@given(event=st.sampled_from(["GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE", "CHANNEL_CREATE", "CHANNEL_PINS_UPDATE",
                              "CHANNEL_DELETE", "THREAD_UPDATE", "THREAD_LIST_SYNC", "GUILD_ROLE_CREATE"]),
       raw=st.dictionaries(st.sampled_from(["id", "guild_id", "type", "channels", "threads", "roles", "role", "name",
                                            "parent_id", "last_message_id", "thread_metadata"]), _json, max_size=6))  # fmt: skip
def test_places_pass_over_what_is_odd(event: str, raw: dict[str, Any]) -> None:
    known = ChatDirectory(NeverAsked(), no_commands)  # type: ignore[arg-type]
    known.update(event, raw)
    known.update(event, [raw])
    assert all(isinstance(place, DiscordChat) for place in parse_chats("1", raw))
    known.update("GUILD_CREATE", {"id": "5", "channels": [{"id": "50", "type": 0, "name": "general"}]})
    assert known.find_cached("50") == DiscordChat("50", 0, "general", "5")


def test_a_command_that_is_no_slash_command_may_be_typed() -> None:
    known = ChatDirectory(NeverAsked(), lambda: [CommandInfo("remember", further_names=("memory.save",))])  # type: ignore[arg-type]
    known.start_session({"id": "900", "username": "Bubbot"})
    names = MentionNames({}, {}, {})
    for typed, text in {
        "/memory_save tea": ",memory_save tea",
        "<@900> /Memory_save tea": ",memory_save tea",
        "/memory_save": ",memory_save",
        "/memory.save tea": ",memory_save tea",
        "/remember tea": ",remember tea",
        "/memory_saved tea": "/memory_saved tea",
        "/etc": "/etc",
        "see /memory_save": "see /memory_save",
    }.items():
        assert read_text(typed, known.bot_user, names).text == text


def test_places_are_learned_and_forgotten() -> None:
    known = ChatDirectory(NeverAsked(), no_commands)  # type: ignore[arg-type]
    known.start_session({"id": "900", "username": "Bubbot"})
    known.update("GUILD_CREATE", {
        "id": "5", "roles": [{"id": "901", "name": "Bubbot", "tags": {"bot_id": "900"}}, {"id": "77", "name": "crew"}],
        "channels": [{"id": "50", "type": 0, "name": "general", "last_message_id": "9"}],
        "threads": [{"id": "51", "type": 11, "name": "topic", "parent_id": "50"}],
    })  # fmt: skip
    assert known.bot_user.roles == {"901"}
    assert known.role_names["77"] == "crew"
    assert known.find_cached("50") == DiscordChat("50", 0, "general", "5", last_message_id=9)
    topic = known.find_cached("51")
    assert topic is not None
    assert topic.place == DiscordPlace("50", "51", "5", title="topic")
    known.update("THREAD_UPDATE", {"id": "51", "type": 11, "guild_id": "5", "name": "new", "parent_id": "50",
                                  "thread_metadata": {"archived": True}})  # fmt: skip
    assert known.find_cached("51") == DiscordChat("51", 11, "new", "5", "50")
    known.update("GUILD_DELETE", {"id": "5", "unavailable": True})
    assert known.find_cached("50")
    known.update("GUILD_DELETE", {"id": "5"})
    assert known.find_cached("50") is None
    assert not known.bot_user.roles


async def test_roles_are_asked_for_once_and_believed_for_a_while() -> None:
    asked: list[str] = []
    now = [0.0]

    async def ask(verb: str, path: str) -> Any:
        asked.append(path)
        return {"roles": ["3", 4, "x"]}

    people = MemberRoles(ask, lambda: now[0], 300.0)  # type: ignore[arg-type]
    assert await people.fetch_roles("5", "7") == ("3",)
    assert await people.fetch_roles("5", "7") == ("3",)
    assert asked == ["/guilds/5/members/7"]
    now[0] = 301.0
    people.update("5", "7", {"roles": ["9"]})
    assert await people.fetch_roles("5", "7") == ("9",)
    assert len(asked) == 1
    now[0] = 700.0
    assert await people.fetch_roles("5", "7") == ("3",)


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"id": "50"}, {"type": 0}, {"id": "", "type": 0}, {"id": "50", "type": "0"}]
)
def test_what_lacks_its_number_or_its_type_is_no_place(raw: Any) -> None:
    assert parse_chat(raw, "5") is None


def test_a_place_has_the_server_it_names_and_else_that_of_its_event() -> None:
    assert parse_chat({"id": "50", "type": 0}, "5") == DiscordChat("50", 0, "", "5")
    assert parse_chat({"id": "50", "type": 0, "guild_id": "6", "name": 7}, "5") == DiscordChat("50", 0, "", "6")
    assert parse_chat({"id": "50", "type": 0, "parent_id": "4"}, "5") == DiscordChat("50", 0, "", "5")  # in a category


def test_a_thread_without_a_parent_is_a_chat_of_its_own() -> None:
    found = parse_chat({"id": "51", "type": 11, "parent_id": None, "guild_id": "5"})
    assert found is not None
    assert found.place == DiscordPlace("51", space="5")
