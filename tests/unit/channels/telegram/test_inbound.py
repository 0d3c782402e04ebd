"""From updates, in the form the Bot API documents, to events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbot.ports.channel import (
    FOREIGN_WORDS,
    OWN_WORDS,
    Attachment,
    ChatMigration,
    Edit,
    Inbound,
    Quote,
    Reaction,
    Sender,
    UnparsedUpdate,
)
from channels.telegram.inbound import read_update
from channels.telegram.inbound_text import TelegramBotUser

ME = TelegramBotUser(4242, "Our_Bot", frozenset({"new", "help"}))
KIM = {"id": 77, "is_bot": False, "first_name": "Kim", "last_name": "Lee", "username": "kim", "language_code": "en"}
BOT = {"id": 4242, "is_bot": True, "first_name": "Bub", "username": "our_bot"}
PRIVATE = {"id": 77, "type": "private", "first_name": "Kim", "username": "kim"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Family"}
DATE = 1_795_000_000
TIME = "2026-11-18T11:06:40+00:00"


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def message(chat: dict[str, Any] = GROUP, **content: Any) -> dict[str, Any]:
    return {"message_id": 900, "from": KIM, "chat": chat, "date": DATE, **content}


def read(kind: str, content: dict[str, Any], number: int = 5) -> Any:
    return read_update("tg", ME, {"update_id": number, kind: content})


def inbound(content: dict[str, Any]) -> Inbound:
    event = read("message", content)
    assert isinstance(event, Inbound), event
    return event


def test_a_private_message() -> None:
    assert read("message", message(PRIVATE, text="hello 👋")) == Inbound(
        "tg",
        "4242:5",
        "77",
        Sender("77", "Kim Lee", language="en"),
        "hello 👋",
        TIME,
        message="900",
        direct=True,
        addressed=True,
    )


def test_the_external_id_is_of_the_bot_and_the_update_and_the_same_when_it_comes_again() -> None:
    once, again = (read("message", message(PRIVATE, text="hello"), number=9) for _ in range(2))
    assert once == again
    assert once.external_id == "4242:9"
    other = read_update("tg", TelegramBotUser(1, "x"), {"update_id": 9, "message": message(PRIVATE, text="hello")})
    assert isinstance(other, Inbound)
    assert other.external_id == "1:9"


class TestAddressed:
    def test_not_in_a_group_without_a_reason(self) -> None:
        event = inbound(message(text="hello @nobody", entities=[entity("mention", 6, 7)]))
        assert (event.direct, event.addressed, event.chat, event.text) == (False, False, "-1001", "hello @nobody")

    @pytest.mark.parametrize(
        ("text", "offset", "left"),
        [
            ("@our_bot hello", 0, "hello"),
            ("@OUR_BOT, hello", 0, "hello"),
            ("@our_bot: ,new", 0, ",new"),
            ("@our_bot,new idea", 0, "new idea"),
            ("@our_bot", 0, "@our_bot"),
            ("👨‍👩‍👧 hey @our_bot you", 13 - 0, "👨‍👩‍👧 hey @our_bot you"),
            ("漢字👍@our_bot", 4, "漢字👍@our_bot"),
        ],
    )
    def test_by_a_mention_whose_offset_counts_utf_16(self, text: str, offset: int, left: str) -> None:
        assert text.encode("utf-16-le")[2 * offset :].decode("utf-16-le").lower().startswith("@our_bot")
        event = inbound(message(text=text, entities=[entity("mention", offset, 8)]))
        assert (event.addressed, event.text) == (True, left)

    def test_not_by_a_name_of_which_ours_is_a_part(self) -> None:
        assert not inbound(message(text="@our_bot2 hi", entities=[entity("mention", 0, 9)])).addressed
        assert not inbound(message(text="@our_bot hi")).addressed  # in code, say: then it is no mention

    def test_by_a_text_mention(self) -> None:
        event = inbound(message(text="🙂 Bub, hi", entities=[entity("text_mention", 3, 3, user=BOT)]))
        assert (event.addressed, event.text) == (True, "🙂 Bub, hi")
        event = inbound(message(text="Bub, hi", entities=[entity("text_mention", 0, 3, user=BOT)]))
        assert (event.addressed, event.text) == (True, "hi")
        assert not inbound(message(text="Kim, hi", entities=[entity("text_mention", 0, 3, user=KIM)])).addressed

    def test_by_a_reply_to_what_we_said(self) -> None:
        event = inbound(message(text="why", reply_to_message={**message(text="so"), "from": BOT, "message_id": 3}))
        assert event.addressed
        assert (event.reply_to, event.quote) == ("3", Quote("3", Sender("4242", "Bub", bot=True), "so", own=True))
        event = inbound(message(text="why", reply_to_message=message(text="so")))
        assert not event.addressed

    def test_by_a_caption(self) -> None:
        photo = [{"file_id": "A", "file_unique_id": "a", "width": 1, "height": 1}]
        event = inbound(message(photo=photo, caption="@our_bot look", caption_entities=[entity("mention", 0, 8)]))
        assert (event.addressed, event.text) == (True, "look")


class TestCommands:
    @pytest.mark.parametrize(
        ("text", "length", "said"),
        [
            ("/new foo", 4, ",new foo"),
            ("/new", 4, ",new"),
            ("/NEW@our_bot  foo bar", 12, ",new foo bar"),
            ("/start", 6, ",start"),
            ("/start payload", 6, ",start"),
            ("/unknown x", 8, ",unknown x"),
            ("/memory.save green tea", 7, ",memory_save green tea"),
            ("/memory .save", 7, ",memory .save"),
            ("/new...", 4, ",new ..."),
        ],
    )
    def test_are_comma_commands(self, text: str, length: int, said: str) -> None:
        event = inbound(message(PRIVATE, text=text, entities=[entity("bot_command", 0, length)]))
        assert event.text == said

    def test_in_a_group_those_we_know_or_with_our_name(self) -> None:
        for text, addressed, said in [
            ("/new", True, ",new"),
            ("/ban", False, "/ban"),
            ("/ban@our_bot", True, ",ban"),
            ("/new@other_bot", False, "/new@other_bot"),
        ]:
            event = inbound(message(text=text, entities=[entity("bot_command", 0, len(text))]))
            assert (event.addressed, event.text) == (addressed, said)

    def test_after_our_name(self) -> None:
        entities = [entity("mention", 0, 8), entity("bot_command", 9, 4)]
        assert inbound(message(text="@our_bot /new x", entities=entities)).text == ",new x"

    def test_only_at_the_beginning(self) -> None:
        event = inbound(message(PRIVATE, text="say /new", entities=[entity("bot_command", 4, 4)]))
        assert event.text == "say /new"


class TestPlaces:
    def test_a_topic_is_a_thread(self) -> None:
        event = inbound(message(text="hi", message_thread_id=12, is_topic_message=True))
        assert (event.thread, event.session) == ("12", "tg:-1001:12")

    def test_a_thread_of_replies_is_none(self) -> None:
        assert inbound(message(text="hi", message_thread_id=12)).thread == ""

    def test_the_notice_that_opened_a_topic_is_not_replied_to(self) -> None:
        opened = {
            **message(forum_topic_created={"name": "Cats", "icon_color": 7322096}), "from": BOT, "message_id": 12,
            "is_topic_message": True, "message_thread_id": 12,
        }  # fmt: skip
        event = inbound(message(text="hi", message_thread_id=12, is_topic_message=True, reply_to_message=opened))
        assert (event.addressed, event.quote, event.reply_to) == (False, None, "")

    def test_an_anonymous_admin_is_the_group(self) -> None:
        stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
        event = inbound({**message(text="hi", sender_chat=GROUP), "from": stand_in})
        assert event.sender == Sender("-1001", "Family")

    def test_a_channel_post(self) -> None:
        channel = {"id": -1009, "type": "channel", "title": "News"}
        post = {"message_id": 4, "sender_chat": channel, "chat": channel, "date": DATE, "text": "@our_bot sum up"}
        event = read("channel_post", {**post, "entities": [entity("mention", 0, 8)]})
        assert (event.sender, event.addressed, event.direct) == (Sender("-1009", "News"), True, False)
        assert event.text == "sum up"
        assert not read("channel_post", post).addressed

    def test_a_group_that_moved(self) -> None:
        group = {"id": -55, "type": "group", "title": "Family"}
        event = read("message", message(group, migrate_to_chat_id=-1001))
        assert event == ChatMigration("tg", "4242:5", "-55", "-1001", TIME)
        assert read("message", message(migrate_from_chat_id=-55)) is None

    def test_another_bot_is_marked_and_our_own_words_are_not_heard(self) -> None:
        assert inbound({**message(text="hi"), "from": {"id": 9, "is_bot": True, "first_name": "R2"}}).sender.bot
        assert read("message", {**message(text="hi"), "from": BOT}) is None


FILE = {"file_id": "F", "file_unique_id": "f", "file_size": 1000}
STICKER = {**FILE, "type": "regular", "width": 512, "height": 512, "emoji": "😀"}


class TestContent:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ({"document": {**FILE, "file_name": "a.txt", "mime_type": "text/plain"}}, ("a.txt", "text/plain", "file")),
            ({"document": {**FILE, "file_name": "a.png", "mime_type": "image/png"}}, ("a.png", "image/png", "image")),
            ({"document": FILE}, ("", "", "file")),
            ({"voice": {**FILE, "duration": 3, "mime_type": "audio/ogg"}}, ("", "audio/ogg", "voice")),
            ({"audio": {**FILE, "duration": 3, "title": "Song"}}, ("Song", "audio/mpeg", "audio")),
            (
                {"video": {**FILE, "width": 1, "height": 1, "duration": 3, "file_name": "v.mov", "mime_type": "video/quicktime"}},
                ("v.mov", "video/quicktime", "video"),
            ),
            ({"video_note": {**FILE, "length": 1, "duration": 3}}, ("", "video/mp4", "video")),
            (
                {"animation": {**FILE, "width": 1, "height": 1, "duration": 3}, "document": FILE},
                ("", "video/mp4", "video"),
            ),
        ],
    )  # fmt: skip
    def test_files_are_attachments(self, content: dict[str, Any], expected: tuple[str, str, str]) -> None:
        event = inbound(message(PRIVATE, **content))
        [found] = event.attachments
        assert (found.name, found.media_type, found.kind) == expected
        assert (found.reference, found.size, event.text) == ("F", 1000, "")

    @pytest.mark.parametrize(("duration", "note"), [(12, "12 s"), (0, ""), ("x", ""), (None, ""), (True, "")])
    def test_a_recording_says_how_long_it_is(self, duration: object, note: str) -> None:
        [found] = inbound(message(PRIVATE, voice={**FILE, "duration": duration})).attachments
        assert found.note == note

    def test_the_largest_photo_and_the_album_it_belongs_to(self) -> None:
        sizes = [
            {"file_id": name, "file_unique_id": name, "width": side, "height": side, "file_size": side}
            for name, side in (("s", 90), ("l", 1280), ("m", 320))
        ]
        event = inbound(message(PRIVATE, photo=sizes, caption="the cat", media_group_id="g1"))
        assert event.attachments == (Attachment("l", "", "image/jpeg", 1280, "image"),)
        assert (event.text, event.group) == ("the cat", "g1")

    def test_a_still_sticker_is_an_image_and_a_moving_one_its_emoji(self) -> None:
        still = inbound(message(PRIVATE, sticker={**STICKER, "is_animated": False, "is_video": False}))
        assert still.attachments == (Attachment("F", "", "image/webp", 1000, "image", "sticker 😀"),)
        moving = inbound(message(PRIVATE, sticker={**STICKER, "is_animated": True, "is_video": False}))
        assert (moving.attachments, moving.text) == ((), "[sticker 😀]")

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location 52.5, 13.4]"),
            (
                {
                    "venue": {"location": {"latitude": 1.5, "longitude": 2.5}, "title": "Zoo", "address": "Main St 1"},
                    "location": {"latitude": 1.5, "longitude": 2.5},
                },
                "[venue Zoo, Main St 1, 1.5, 2.5]",
            ),
            ({"contact": {"phone_number": "+491", "first_name": "Ada", "last_name": "L"}}, "[contact Ada L, +491]"),
            ({"dice": {"emoji": "🎲", "value": 4}}, "[dice 🎲 4]"),
            (
                {
                    "poll": {
                        "id": "1", "question": "Tea?", "total_voter_count": 0, "is_closed": False, "is_anonymous": True,
                        "type": "regular", "allows_multiple_answers": False, "allows_revoting": True, "members_only": False,
                        "options": [
                            {"persistent_id": name, "text": name, "voter_count": 0} for name in ("yes", "no")
                        ],
                    }
                },
                "[poll Tea?]\n- yes\n- no",
            ),
            ({"story": {"id": 1, "chat": GROUP}}, "[story]"),
        ],
    )  # fmt: skip
    def test_what_has_no_file_is_said_in_words(self, content: dict[str, Any], text: str) -> None:
        assert inbound(message(PRIVATE, **content)).text == text

    @pytest.mark.parametrize(
        "content",
        [
            {"new_chat_members": [KIM]},
            {"left_chat_member": KIM},
            {"pinned_message": message(text="old")},
            {"new_chat_title": "New"},
            {"forum_topic_created": {"name": "Cats", "icon_color": 1}},
            {"group_chat_created": True},
        ],
    )
    def test_notices_are_ignored(self, content: dict[str, Any]) -> None:
        assert read("message", message(**content)) is None

    def test_so_are_kinds_we_do_not_use(self) -> None:
        assert read("hologram", {"id": "1", "from": KIM}) is None
        assert read("my_chat_member", {
            "chat": GROUP, "from": KIM, "date": DATE, "old_chat_member": {"status": "member", "user": BOT},
            "new_chat_member": {"status": "left", "user": BOT},
        }) is None  # fmt: skip


class TestQuotes:
    def test_a_reply_with_its_media(self) -> None:
        quoted = {**message(document=FILE, caption="the plan"), "message_id": 3}
        quote = inbound(message(text="ok?", reply_to_message=quoted)).quote
        assert quote == Quote("3", Sender("77", "Kim Lee", language="en"), "the plan", (Attachment("F", "", "", 1000),))

    def test_the_chosen_part_of_it(self) -> None:
        quoted = {**message(text="one two three"), "message_id": 3}
        event = inbound(message(text="?", reply_to_message=quoted, quote={"text": "two", "position": 4}))
        assert event.quote is not None
        assert event.quote.text == "two"

    def test_something_from_another_chat(self) -> None:
        elsewhere = {
            "origin": {"type": "hidden_user", "sender_user_name": "Somebody", "date": DATE},
            "message_id": 3,
            "photo": [{"file_id": "P", "file_unique_id": "p", "width": 1, "height": 1}],
        }
        event = inbound(message(text="?", external_reply=elsewhere, quote={"text": "a part", "position": 0}))
        photo = Attachment("P", "", "image/jpeg", None, "image")
        assert (event.quote, event.reply_to) == (
            Quote("", Sender("", "Somebody"), "a part", (photo,), provenance=FOREIGN_WORDS),
            "",
        )

    @pytest.mark.parametrize(
        ("origin", "sender"),
        [
            ({"type": "user", "sender_user": KIM}, Sender("77", "Kim Lee", language="en")),
            ({"type": "user", "sender_user": BOT}, Sender("4242", "Bub", bot=True)),
            ({"type": "chat", "sender_chat": GROUP}, Sender("-1001", "Family")),
            (
                {"type": "channel", "chat": {**GROUP, "type": "channel"}, "message_id": 3},
                Sender("-1001", "Family"),
            ),
            ({"type": "hidden_user", "sender_user_name": "Somebody"}, Sender("", "Somebody")),
            ({"type": "new"}, Sender("")),
        ],
    )
    def test_who_said_something_in_another_chat(self, origin: dict[str, Any], sender: Sender) -> None:
        event = inbound(message(text="?", external_reply={"origin": {**origin, "date": DATE}}))
        assert event.quote == Quote("", sender, "", provenance=FOREIGN_WORDS)


class TestProvenance:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ({}, OWN_WORDS),
            ({"forward_origin": {"type": "user", "sender_user": KIM, "date": DATE}}, FOREIGN_WORDS),
            ({"forward_origin": {"type": "hidden_user", "sender_user_name": "Eve", "date": DATE}}, FOREIGN_WORDS),
            ({"is_automatic_forward": True}, FOREIGN_WORDS),
            ({"via_bot": {"id": 5, "is_bot": True, "first_name": "Gifs"}}, FOREIGN_WORDS),
            ({"via_bot": BOT}, OWN_WORDS),
        ],
    )
    def test_what_was_forwarded_or_made_by_a_bot_is_of_the_world(self, content: dict[str, Any], expected: str) -> None:
        assert inbound(message(text="hello", **content)).provenance == expected
        edited = read("edited_message", message(text="hello", edit_date=DATE, **content))
        assert edited.provenance == expected
        quoting = inbound(message(text="?", reply_to_message=message(text="hello", **content)))
        assert quoting.quote is not None
        assert (quoting.provenance, quoting.quote.provenance) == (OWN_WORDS, expected)


class TestChanges:
    def test_an_edit(self) -> None:
        event = read(
            "edited_message", message(text="/new x", entities=[entity("bot_command", 0, 4)], edit_date=DATE + 60)
        )
        assert event == Edit(
            "tg",
            "4242:5",
            "-1001",
            "900",
            Sender("77", "Kim Lee", language="en"),
            ",new x",
            TIME.replace("06:40", "07:40"),
        )

    def test_a_live_location_that_moves_is_none(self) -> None:
        place = {"latitude": 52.5, "longitude": 13.4, "live_period": 900}
        assert read("edited_message", message(location=place, edit_date=DATE)) is None

    def test_a_reaction_and_one_taken_back(self) -> None:
        change = {
            "chat": GROUP, "message_id": 8, "user": KIM, "date": DATE, "old_reaction": [],
            "new_reaction": [
                {"type": "emoji", "emoji": "👍"}, {"type": "custom_emoji", "custom_emoji_id": "55"}, {"type": "paid"},
            ],
        }  # fmt: skip
        event = read("message_reaction", change)
        assert event == Reaction(
            "tg", "4242:5", "-1001", "8", Sender("77", "Kim Lee", language="en"), ("👍", "custom:55", "⭐"), TIME
        )
        gone = {**change, "new_reaction": [], "actor_chat": GROUP}
        del gone["user"]
        event = read("message_reaction", gone)
        assert (event.emojis, event.sender) == ((), Sender("-1001", "Family"))


class TestUnreadable:
    @pytest.mark.parametrize(
        "content",
        [
            message(text="hi", date=10**14),
            message(text=5),
            message({**GROUP, "id": "x"}, text="hi"),
            {"message_id": 1, "chat": GROUP, "text": "no date"},
            message(text="hi", entities=[{"type": "mention"}]),
            message(document={**FILE, "file_name": 5}),
            message(document={**FILE, "file_size": "5"}),
            message(poll={"id": "5", "question": "Tea?"}),
            message(text="hi", **{"from": {"id": 77, "is_bot": False, "first_name": 5}}),
            message(text="hi", sender_chat={**GROUP, "title": ["Family"]}),
            message(text="hi", media_group_id=[1]),
            [],
            "text",
        ],
    )
    def test_what_cannot_be_read_is_kept_whole(self, content: Any) -> None:
        event = read("message", content)
        assert isinstance(event, UnparsedUpdate)
        assert event.external_id == "4242:u5"
        assert json.loads(event.raw) == {"update_id": 5, "message": content}
        assert event.reason.startswith("update 5 cannot be read")
        assert event.chat == (str(content["chat"]["id"]) if isinstance(content, dict) else "")

    @pytest.mark.parametrize("raw", [{}, {"update_id": "5"}, {"update_id": True}, [], None, "x"])
    def test_what_has_no_number_is_known_by_its_content(self, raw: Any) -> None:
        event, again = read_update("tg", ME, raw), read_update("tg", ME, raw)
        assert isinstance(event, UnparsedUpdate)
        assert event == again
        assert json.loads(event.raw) == raw

    def test_half_a_surrogate_pair_is_no_reason(self) -> None:
        raw = json.loads('{"text": "a\\ud83d @our_bot"}')
        kim = {**KIM, "last_name": raw["text"][1]}
        event = inbound({**message(**raw, entities=[entity("mention", 3, 8)]), "from": kim})
        assert event.sender.name == "Kim \N{REPLACEMENT CHARACTER}"
        assert (event.text, event.addressed) == ("a\N{REPLACEMENT CHARACTER} @our_bot", True)
        event.text.encode()
