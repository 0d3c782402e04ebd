"""The Bot API server for tests: what a bot may send, change and ask, and how it is refused."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from telegram import BotCommand, InputMediaPhoto, MessageEntity, ReactionTypeEmoji, ReplyParameters
from telegram.error import BadRequest, ChatMigrated, Forbidden, RetryAfter

from tests.fakes.botapi.changing import NOT_MODIFIED
from tests.fakes.botapi.client import library, raw
from tests.fakes.botapi.limits import Limits
from tests.fakes.botapi.server import Server


async def test_a_text_of_4096_units_passes_and_one_more_is_refused() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        await bot.send_message(chat.id, "x" * 4096)
        await bot.send_message(chat.id, "<b>" + "😀" * 2048 + "</b>", parse_mode="HTML")
        for text in ("x" * 4097, "😀" * 2049):
            with pytest.raises(BadRequest, match="Message is too long"):
                await bot.send_message(chat.id, text)
        assert len(chat.texts()) == 2


async def test_a_text_is_stripped_and_an_empty_one_refused() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        sent = await bot.send_message(chat.id, "\n  <i>hi</i> there \n", parse_mode="HTML")
        assert sent.text == "hi there"
        assert [(one.type, one.offset, one.length) for one in sent.entities] == [("italic", 0, 2)]
        with pytest.raises(BadRequest, match="Message text is empty"):
            await bot.send_message(chat.id, "")
        with pytest.raises(BadRequest, match="Text must be non-empty"):
            await bot.send_message(chat.id, " <b> </b> ", parse_mode="HTML")


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        ("HTML", "a <x>b", 'Unsupported start tag "x" at byte offset 2'),
        ("HTML", "<b>b", 'Can\'t find end tag corresponding to start tag "b"'),
        ("MarkdownV2", "Yes.", "Character '.' is reserved and must be escaped with the preceding '\\'"),
        ("Markdown", "é *b", "Can't find end of the entity starting at byte offset 3"),
    ],
)
async def test_markup_that_cannot_be_parsed_is_refused(mode: str, text: str, said: str) -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        with pytest.raises(BadRequest) as caught:
            await bot.send_message(chat.id, text, parse_mode=mode)
        assert caught.value.message.lower() == f"can't parse entities: {said}".lower()
        assert chat.texts() == []


@pytest.mark.parametrize(
    ("entities", "said"),
    [
        ([("bold", 0, 5)], "ends after the end of the text"),
        ([("bold", -1, 2)], "negative offset"),
        ([("bold", 1, 1)], r"(?i)in a middle of a utf-16 symbol"),
        ([("bold", 0, 3), ("italic", 2, 2)], "can't be nested"),
        ([("code", 0, 4), ("italic", 2, 2)], "can't be nested"),
        ([("sparkling", 0, 2)], "unsupported type"),
        ([("text_link", 0, 2)], "url"),
    ],
)
async def test_entities_are_checked(entities: list[tuple[str, int, int]], said: str) -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        with pytest.raises(BadRequest, match=said):
            await bot.send_message(chat.id, "😀ab", entities=[MessageEntity(*one) for one in entities])
        await bot.send_message(chat.id, "😀ab", entities=[MessageEntity("bold", 0, 4), MessageEntity("italic", 0, 2)])


async def test_where_a_bot_cannot_speak() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        stranger = server.user("Bo")
        chat, group = server.private(ada), server.group("Home", [ada])
        with pytest.raises(BadRequest, match="Chat not found"):
            await bot.send_message(stranger.id, "hi")
        chat.block()
        with pytest.raises(Forbidden, match="Forbidden: bot was blocked by the user"):
            await bot.send_message(chat.id, "hi")
        chat.unblock()
        await bot.send_message(chat.id, "hi")
        group.leave(server.bot.user, by=ada)
        with pytest.raises(Forbidden, match="Forbidden: bot was kicked from the group chat"):
            await bot.send_message(group.id, "hi")


async def test_a_group_that_was_upgraded_says_where_it_went() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        old = server.group("Home", [ada])
        new = server.migrate(old, ada)
        with pytest.raises(ChatMigrated) as caught:
            await bot.send_message(old.id, "hi")
        assert caught.value.new_chat_id == new.id
        await bot.send_message(new.id, "hi")
        kinds = [next(iter(set(one) - {"update_id"})) for one in server.bot.queue.pending()]
        assert kinds == ["my_chat_member", "message", "message"]
        assert server.bot.queue.pending()[1]["message"]["migrate_to_chat_id"] == new.id
        assert server.bot.queue.pending()[2]["message"]["migrate_from_chat_id"] == old.id


async def test_replies_and_quotes() -> None:
    async with Server() as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        asked = chat.say("Is tea ready? 😀 Or coffee?")
        number = asked["message_id"]
        sent = await bot.send_message(chat.id, "yes", reply_parameters=ReplyParameters(number, quote="Or coffee?"))
        assert sent.reply_to_message is not None
        assert sent.reply_to_message.text == asked["text"]
        assert sent.quote is not None
        assert (sent.quote.text, sent.quote.position) == ("Or coffee?", 17)
        with pytest.raises(BadRequest, match=r"(?i)quote_text_invalid"):
            await bot.send_message(chat.id, "yes", reply_parameters=ReplyParameters(number, quote="cocoa"))
        with pytest.raises(BadRequest, match="Message to be replied not found"):
            await bot.send_message(chat.id, "yes", reply_parameters=ReplyParameters(999))
        free = ReplyParameters(999, allow_sending_without_reply=True)
        assert (await bot.send_message(chat.id, "yes", reply_parameters=free)).reply_to_message is None


async def test_topics_of_a_forum() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        forum = server.supergroup("Club", [ada], forum=True)
        topic = forum.topic("Tea", ada)
        sent = await bot.send_message(forum.id, "hi", message_thread_id=topic.id)
        assert (sent.message_thread_id, sent.is_topic_message) == (topic.id, True)
        with pytest.raises(BadRequest, match="Message thread not found"):
            await bot.send_message(forum.id, "hi", message_thread_id=topic.id + 99)
        forum.close_topic(topic, ada)
        with pytest.raises(BadRequest, match=r"(?i)topic_closed"):
            await bot.send_message(forum.id, "hi", message_thread_id=topic.id)


async def test_own_texts_can_be_edited_and_other_messages_cannot() -> None:
    async with Server(limits=None) as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        hers = chat.say("hello")["message_id"]
        sent = await bot.send_message(chat.id, "one")
        changed = await bot.edit_message_text("two", chat.id, sent.message_id)
        assert not isinstance(changed, bool)
        assert (changed.text, changed.edit_date is not None) == ("two", True)
        wrong = {sent.message_id: NOT_MODIFIED, 999: "message to edit not found", hers: "message can't be edited"}
        for number, words in wrong.items():
            with pytest.raises(BadRequest) as caught:
                await bot.edit_message_text("two", chat.id, number)
            assert caught.value.message.lower() == words.lower()
        picture = await bot.send_photo(chat.id, b"\xff\xd8\xff")
        with pytest.raises(BadRequest, match="There is no text in the message to edit"):
            await bot.edit_message_text("x", chat.id, picture.message_id)
        with pytest.raises(BadRequest, match="Message is too long"):
            await bot.edit_message_text("x" * 4097, chat.id, sent.message_id)
        assert chat.texts(server.bot.user) == ["two", ""]


async def test_a_message_is_deleted_once_by_its_owner_and_while_it_is_new() -> None:
    async with Server() as server, library(server) as bot:
        ada = server.user("Ada")
        chat, group = server.private(ada), server.group("Home", [ada])
        hers, in_group = chat.say("hello"), group.say("hello", ada)
        await bot.delete_message(chat.id, hers["message_id"])
        with pytest.raises(BadRequest, match="Message to delete not found"):
            await bot.delete_message(chat.id, hers["message_id"])
        with pytest.raises(BadRequest, match="Message can't be deleted"):
            await bot.delete_message(group.id, in_group["message_id"])
        old = await bot.send_message(group.id, "old")
        server.world.clock.advance(49 * 3600)
        with pytest.raises(BadRequest, match="Message can't be deleted for everyone"):
            await bot.delete_message(group.id, old.message_id)


async def test_files_go_out_and_come_back_byte_for_byte() -> None:
    async with Server(limits=None) as server, library(server) as bot:
        chat = server.private(server.user("Ada"))
        content = bytes(range(256)) * 64
        sent = await bot.send_document(chat.id, io.BytesIO(content), filename="all bytes.bin", caption="*c*")
        assert sent.document is not None
        assert (sent.document.file_name, sent.document.file_size, sent.caption) == (
            "all bytes.bin",
            len(content),
            "*c*",
        )
        file = await bot.get_file(sent.document.file_id)
        assert bytes(await file.download_as_bytearray()) == content
        assert (await bot.send_photo(chat.id, content)).photo[-1].file_size == len(content)
        assert (await bot.send_voice(chat.id, content)).voice is not None
        assert (await bot.send_audio(chat.id, content)).audio is not None
        assert (await bot.send_video(chat.id, content)).video is not None
        again = await bot.send_document(chat.id, sent.document.file_id)
        assert again.document is not None
        assert again.document.file_id == sent.document.file_id
        album = await bot.send_media_group(chat.id, [InputMediaPhoto(content), InputMediaPhoto(content, caption="two")])
        assert len({one.media_group_id for one in album}) == 1
        assert [one.caption for one in album] == [None, "two"]
        with pytest.raises(BadRequest, match="Message caption is too long"):
            await bot.send_photo(chat.id, content, caption="x" * 1025)
        with pytest.raises(BadRequest, match="Wrong file identifier"):
            await bot.send_document(chat.id, "AgACAgIAAxkBnothing")


async def test_files_over_20_mb_cannot_be_fetched_and_links_end() -> None:
    async with Server() as server, library(server) as bot, raw(server) as client:
        chat = server.private(server.user("Ada"))
        large = chat.document(b"x", "film.mkv", size=20 * 1024 * 1024 + 1)["document"]["file_id"]
        with pytest.raises(BadRequest, match="File is too big"):
            await bot.get_file(large)
        file = await bot.get_file(chat.document(b"x", "a.txt", size=20 * 1024 * 1024)["document"]["file_id"])
        assert file.file_path is not None
        assert (await client.get(file.file_path)).content == b"x"
        server.world.clock.advance(3601)
        assert (await client.get(file.file_path)).status_code == 404


async def test_actions_reactions_and_commands() -> None:
    async with Server() as server, library(server) as bot, raw(server) as client:
        chat = server.private(server.user("Ada"))
        message = chat.say("hi")["message_id"]
        await bot.send_chat_action(chat.id, "typing")
        with pytest.raises(BadRequest, match="Wrong parameter action in request"):
            await bot.send_chat_action(chat.id, "dancing")
        await bot.set_message_reaction(chat.id, message, "👍")
        with pytest.raises(BadRequest, match=r"(?i)reaction_invalid"):
            await bot.set_message_reaction(chat.id, message, ReactionTypeEmoji("🧮"))
        with pytest.raises(BadRequest, match="Message to react not found"):
            await bot.set_message_reaction(chat.id, 999, "👍")
        await bot.set_my_commands([BotCommand("help", "What I can do")])
        assert [one.command for one in await bot.get_my_commands()] == ["help"]
        with pytest.raises(BadRequest, match=r"(?i)bot_command_invalid"):
            await bot.set_my_commands([BotCommand("Help", "What I can do")])
        wrong = await client.post("sendMessage", json={"chat_id": chat.id, "text": "x", "reply_markup": "[]"})
        assert wrong.json()["description"] == "Bad Request: object expected as reply markup"


async def test_asking_after_chats_and_members() -> None:
    async with Server() as server, library(server) as bot:
        ada, bo = server.user("Ada", username="ada"), server.user("Bo")
        group = server.group("Home", [ada])
        assert (await bot.get_chat(group.id)).title == "Home"
        statuses = [(await bot.get_chat_member(group.id, user.id)).status for user in (ada, server.bot.user, bo)]
        assert statuses == ["creator", "member", "left"]
        assert [one.user.id for one in await bot.get_chat_administrators(group.id)] == [ada.id]
        assert await bot.get_chat_member_count(group.id) == 2
        group.promote(server.bot.user, ada)
        assert (await bot.get_chat_member(group.id, server.bot.user.id)).status == "administrator"
        await bot.leave_chat(group.id)
        with pytest.raises(Forbidden, match="bot is not a member of the group chat"):
            await bot.send_message(group.id, "hi")


async def test_flood_control_per_chat_group_and_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTB_TIMEDELTA", "true")  # without it the library warns at every 429
    async with Server(limits=Limits(chat=(2, 2.0), group=(3, 60.0), bot=(5, 1.0))) as server, library(server) as bot:
        ada = server.user("Ada")
        chat, group = server.private(ada), server.group("Home", [ada])
        for _ in range(2):
            await bot.send_message(chat.id, "x")
        with pytest.raises(RetryAfter) as caught:
            await bot.send_message(chat.id, "x")
        assert caught.value.retry_after in (timedelta(seconds=1), timedelta(seconds=2))
        for _ in range(3):
            server.world.clock.advance(2)
            await bot.send_message(group.id, "x")
        server.world.clock.advance(2)
        with pytest.raises(RetryAfter):
            await bot.send_message(group.id, "x")
        await bot.send_chat_action(group.id, "typing")
        await bot.send_message(chat.id, "another chat is free")
        server.world.clock.advance(60)
        await bot.send_message(group.id, "x")
        assert len(group.texts()) == 4
