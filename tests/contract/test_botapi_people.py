"""The Bot API server for tests: what people do, who hears of it, and what everybody saw."""

from __future__ import annotations

import re

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, Message, ReactionTypeEmoji, Update
from telegram.constants import MessageAttachmentType

from tests.fakes.botapi.client import library
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import Bot


def _texts(bot: Bot) -> list[str]:
    """The texts of the messages that a bot heard."""
    return [update["message"]["text"] for update in bot.queue.pending() if "text" in update.get("message", {})]


def _parsed(server: Server) -> list[Message]:
    updates = [Update.de_json(one, None) for one in server.bot.queue.pending()]
    return [update.effective_message for update in updates if update.effective_message is not None]


async def test_a_private_message_has_all_that_the_real_one_has() -> None:
    async with Server() as server:
        ada = server.user("Ada", last_name="Love", username="ada_l")
        message = server.private(ada).say("/start now")
        (update,) = server.bot.queue.pending()
        assert set(update) == {"update_id", "message"}
        assert message == {
            "message_id": 1,
            "from": {"id": ada.id, "is_bot": False, "first_name": "Ada", "last_name": "Love", "username": "ada_l",
                     "language_code": "en"},
            "chat": {"id": ada.id, "type": "private", "first_name": "Ada", "last_name": "Love", "username": "ada_l"},
            "date": message["date"],
            "text": "/start now",
            "entities": [{"offset": 0, "length": 6, "type": "bot_command"}],
        }  # fmt: skip
        assert isinstance(message["date"], int)


async def test_privacy_mode_lets_through_only_what_is_addressed_to_the_bot() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        group = server.group("Home", [ada])
        spoken = await bot.send_message(group.id, "I am here")
        group.say("just talking", ada)
        asked = group.say("hello @BUBBOT_bot!", ada)
        group.say("Bub, are you there?", ada, mentions={"Bub": server.bot.user})
        group.say("/status", ada)
        group.say("/status@other_bot", ada)
        group.say("answering you", ada, reply_to=spoken.message_id)
        group.say("a thread of that", ada, reply_to=asked)
        group.join(server.user("Bo"), by=ada)
        heard = ["hello @BUBBOT_bot!", "Bub, are you there?", "/status", "answering you", "a thread of that"]
        assert _texts(server.bot) == heard
        assert "new_chat_members" in server.bot.queue.pending()[-1]["message"]
        group.promote(server.bot.user, ada)
        group.say("now you hear all", ada)
        assert _texts(server.bot)[-1] == "now you hear all"


async def test_without_privacy_mode_a_bot_hears_everything_but_itself() -> None:
    async with Server(privacy=False) as server, library(server) as bot:
        ada = server.user("Ada")
        group = server.group("Home", [ada])
        group.say("just talking", ada)
        await bot.send_message(group.id, "I heard")
        assert _texts(server.bot) == ["just talking"]


async def test_bots_hear_each_other_only_where_that_is_on() -> None:
    async with Server(privacy=False) as server:
        ada = server.user("Ada")
        quiet = server.add_bot("quiet_bot", "Quiet")
        open_bot = server.add_bot("open_bot", "Open", privacy=False, hears_bots=True)
        group = server.group("Home", [ada], bots=[server.bot, quiet, open_bot])
        async with library(server, bot=open_bot) as speaking, library(server) as other:
            await speaking.send_message(group.id, "anyone? /help@quiet_bot")
            await other.send_message(group.id, "I speak")
        assert (_texts(server.bot), _texts(quiet)) == ([], ["anyone? /help@quiet_bot"])
        assert _texts(open_bot) == ["I speak"]


async def test_everything_that_people_send_is_parsed_by_the_library() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        chat = server.private(ada)
        chat.photo(caption="look @someone")
        chat.document(b"a,b", "t.csv", mime="text/csv")
        for kind in ("voice", "audio", "video", "video_note", "sticker", "animation"):
            chat.file(kind, b"content")
        chat.location(52.5, 13.4)
        chat.contact("+49123", "Bo")
        chat.poll("Tea?", ["yes", "no"])
        kinds = [message.effective_attachment for message in _parsed(server)]
        assert len(kinds) == 11
        assert None not in kinds
        assert _parsed(server)[0].caption_entities[0].type == "mention"
        assert {kind.value for kind in MessageAttachmentType} >= {"photo", "document"}
        album = chat.album([b"1", b"2", b"3"], caption="three")
        assert len({one["media_group_id"] for one in album}) == 1
        assert [one.get("caption") for one in album] == ["three", None, None]
        linked = chat.say("read this, Bo", links=[("this", "https://a.example")], mentions={"Bo": ada})
        assert [one["type"] for one in linked["entities"]] == ["text_link", "text_mention"]


async def test_replies_quotes_edits_and_deletions() -> None:
    async with Server() as server:
        chat = server.private(server.user("Ada"))
        first = chat.say("tea 😀 or coffee")
        second = chat.say("the latter", reply_to=first, quote="coffee")
        assert second["quote"] == {"text": "coffee", "position": 10, "is_manual": True}
        third = chat.say("no", reply_to=second)
        assert "reply_to_message" not in third["reply_to_message"], "one level deep, as on the platform"
        before = len(server.bot.queue.pending())
        chat.edit(first, "tea or /help")
        edited = server.bot.queue.pending()[-1]["edited_message"]
        assert (edited["text"], edited["entities"][0]["type"]) == ("tea or /help", "bot_command")
        assert edited["edit_date"] >= edited["date"]
        chat.delete(third)
        assert len(server.bot.queue.pending()) == before + 1, "nobody tells a bot of a deletion"
        assert chat.texts() == ["tea or /help", "the latter"]


async def test_reactions_reach_admins_that_ask_for_them() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        group = server.supergroup("Home", [ada])
        message = group.say("hi", ada)
        await bot.get_updates(allowed_updates=["message_reaction"])
        group.react(message, "👍", ada)
        assert server.bot.queue.pending()[1:] == []
        group.promote(server.bot.user, ada)
        group.react(message, "🎉", ada)
        reaction = (await bot.get_updates())[-1].message_reaction
        assert reaction is not None
        assert reaction.old_reaction == (ReactionTypeEmoji("👍"),)
        assert reaction.new_reaction == (ReactionTypeEmoji("🎉"),)


async def test_comings_and_goings_of_the_bot_itself() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        group = server.group("Home", [ada])
        group.leave(server.bot.user, by=ada)
        group.join(server.bot.user, by=ada)
        chat = server.private(ada)
        chat.block()
        updates = [Update.de_json(one, None).my_chat_member for one in server.bot.queue.pending()]
        statuses = [one.new_chat_member.status for one in updates if one is not None]
        assert statuses == ["member", "kicked", "member", "kicked"]


async def test_forums_and_channels() -> None:
    async with Server(privacy=False) as server, library(server) as bot:
        ada = server.user("Ada")
        forum = server.supergroup("Club", [ada], forum=True)
        topic = forum.topic("Tea", ada)
        message = forum.say("green", ada, thread=topic.id)
        assert message["is_topic_message"]
        assert message["message_thread_id"] == topic.id == message["reply_to_message"]["message_id"]
        assert "message_thread_id" not in forum.say("in the general topic", ada)
        channel = server.channel("News", [ada], username="news_channel")
        channel.say("it rains")
        channel_post = server.bot.queue.pending()[-1]["channel_post"]
        assert channel_post["sender_chat"]["id"] == channel.id
        assert (await bot.send_message("@news_channel", "no, snow")).chat.id == channel.id
        assert channel.id < -1_000_000_000_000 < server.group("G", [ada]).id < 0


async def test_the_press_of_a_button_reaches_the_bot() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        keyboard = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y")]])
        sent = await bot.send_message(chat.id, "Sure?", reply_markup=keyboard)
        chat.press(sent.message_id, "y")
        query = (await bot.get_updates())[-1].callback_query
        assert query is not None
        assert query.data == "y"
        assert await bot.answer_callback_query(query.id)


async def test_the_transcript_shows_what_people_saw() -> None:
    async with Server(limits=None) as server, library(server) as bot:
        ada, bo = server.user("Ada"), server.user("Bo")
        chat, forum = server.private(ada), server.supergroup("Club", [bo], forum=True)
        asked = chat.say("two\nlines")
        for _ in range(3):
            await bot.send_chat_action(chat.id, "typing")
        sent = await bot.send_message(chat.id, "…", reply_parameters={"message_id": asked["message_id"]})  # type: ignore[arg-type]
        for text in ("one", "one two", "one two three"):
            await bot.edit_message_text(text, chat.id, sent.message_id)
        chat.document(b"x", "a.txt", caption="read")
        chat.react(sent.message_id, "👍")
        chat.delete(asked)
        topic = forum.topic("Tea", bo)
        forum.say("green", bo, thread=topic.id)
        assert server.transcript(times=False) == (
            "== Ada (private) ==\n"
            "Ada #1: two\n    lines\n"
            "Bubbot is typing…\n"
            "Bubbot #2: (to Ada: “two lines”) …\n"
            "Bubbot edited #2 3 times: one two three\n"
            "Ada #3: [document a.txt] read\n"
            "Ada to #2: 👍\n"
            "#1 of Ada was deleted: two\n    lines\n"
            "\n== Club (forum) ==\n"
            "-- Bo: opened the topic “Tea”\n"
            "Bo #2: green  [in Tea]\n"
        )
        assert re.search(r"^\d\d:\d\d:\d\d Bubbot is typing…$", server.transcript(), re.MULTILINE)
