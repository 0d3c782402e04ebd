"""Sending, editing and fetching over real HTTP, with a server that refuses as a test asks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

from bubbot.errors import DeliveryFailed, FetchFailed
from bubbot.ports.channel import Attachment, MessagePart, OutboundFile
from channels.telegram.channel import create
from channels.telegram.files import fetch_attachment
from tests.fakes.telegram_channel import BOLD, FAST, UNPARSED, opened, options
from tests.fakes.telegram_server import DROP, HANG, No, Page, ScriptedServer, scripted_server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as found:
        yield found


class TestSending:
    async def test_a_message_with_all_it_can_have(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            receipt = await channel.send(MessagePart("-1001", "hi", "12", "5", BOLD))
        assert receipt.external_id == "7"
        assert server.sent("sendMessage") == [
            {
                "chat_id": "-1001", "text": "hi", "message_thread_id": 12, **BOLD,
                "reply_parameters": {"message_id": 5, "allow_sending_without_reply": True},
                "link_preview_options": {"is_disabled": True},
            }
        ]  # fmt: skip

    async def test_link_previews_are_a_setting(self, server: ScriptedServer) -> None:
        async with opened(server, link_previews=True) as channel:
            await channel.send(MessagePart("77", "hi"))
        assert server.sent("sendMessage") == [{"chat_id": "77", "text": "hi"}]

    async def test_a_part_may_go_without_link_previews_where_others_have_them(self, server: ScriptedServer) -> None:
        async with opened(server, link_previews=True) as channel:
            await channel.send(MessagePart("77", "hi", has_no_link_previews=True))
            await channel.edit("7", MessagePart("77", "ho", has_no_link_previews=True))
            await channel.edit("7", MessagePart("77", "hu"))
        sent = [*server.sent("sendMessage"), *server.sent("editMessageText")]
        assert [each.get("link_preview_options") for each in sent] == [
            {"is_disabled": True},
            {"is_disabled": True},
            None,
        ]

    async def test_refused_markup_is_left_out(self, server: ScriptedServer) -> None:
        server.say("sendMessage", UNPARSED)
        async with opened(server) as channel:
            assert (await channel.send(MessagePart("77", "hi", markup=BOLD))).external_id == "7"
        assert ["entities" in one for one in server.sent("sendMessage")] == [True, False]

    async def test_a_topic_that_is_gone_is_left_out(self, server: ScriptedServer) -> None:
        server.say("sendMessage", No(400, "Bad Request: message thread not found"), UNPARSED)
        async with opened(server) as channel:
            await channel.send(MessagePart("-1001", "hi", "12", markup=BOLD))
        assert [one.get("message_thread_id") for one in server.sent("sendMessage")] == [12, None, None]

    async def test_a_chat_that_moved_is_followed_and_remembered(self, server: ScriptedServer) -> None:
        moved = "Bad Request: group chat was upgraded to a supergroup chat"
        server.say("sendMessage", No(400, moved, {"migrate_to_chat_id": -1001}))
        async with opened(server) as channel:
            receipts = [await channel.send(MessagePart("-55", text, reply_to="3")) for text in ("hi", "more")]
            await channel.typing("-55", "")
        assert [one["chat_id"] for one in server.sent("sendMessage")] == ["-55", "-1001", "-1001"]
        assert [one.chat for one in receipts] == ["-1001", "-1001"]  # where they stand, so that they can be changed
        assert not any("reply_parameters" in one for one in server.sent("sendMessage")[1:])
        assert server.sent("sendChatAction") == [{"chat_id": "-1001", "action": "typing"}]

    async def test_a_chat_that_moves_in_circles_is_given_up(self, server: ScriptedServer) -> None:
        there, back = (No(400, "Bad Request: upgraded", {"migrate_to_chat_id": chat}) for chat in (-2, -1))
        server.say("sendMessage", *[there, back] * 10)
        async with opened(server) as channel:
            with pytest.raises(DeliveryFailed) as caught:
                await channel.send(MessagePart("-1", "hi"))
        assert caught.value.permanent

    @pytest.mark.parametrize(
        ("answer", "permanent", "retry_after"),
        [
            (No(429, "Too Many Requests: retry after 5", {"retry_after": 5}), False, 5.0),
            (No(403, "Forbidden: bot was blocked by the user"), True, None),
            (No(400, "Bad Request: chat not found"), True, None),
            (No(500, "Internal Server Error"), False, None),
            (Page(502, b"<html>"), False, None),
            (Page(200, b"{"), False, None),
            (DROP, False, None),
            (HANG, False, None),
        ],
    )
    async def test_a_failed_sending_says_whether_and_when_to_try_again(
        self, server: ScriptedServer, answer: Any, permanent: bool, retry_after: float | None
    ) -> None:
        async with opened(server, structs.replace(FAST, call_timeout=0.3)) as channel:
            server.say("sendMessage", answer)
            with pytest.raises(DeliveryFailed) as caught:
                await channel.send(MessagePart("77", "hi"))
            assert (caught.value.permanent, caught.value.retry_after) == (permanent, retry_after)
            assert (await channel.send(MessagePart("77", "again"))).external_id == "7"
        assert len(server.sent("sendMessage")) == 2

    async def test_a_success_without_a_number_is_a_success(self, server: ScriptedServer) -> None:
        server.say("sendMessage", True)
        async with opened(server) as channel:
            assert (await channel.send(MessagePart("77", "hi"))).external_id == ""

    async def test_images_are_sent_as_photos_and_other_files_as_documents(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            await channel.send(
                MessagePart("77", "see", file=OutboundFile("a.py", "text/x-python", "print('é')\n"), markup=BOLD)
            )
            await channel.send(
                MessagePart("77", "", "9", "5", file=OutboundFile("b.pdf", "application/pdf", digest="d1"))
            )
            await channel.send(MessagePart("77", "", file=OutboundFile("c.png", "image/png", digest="d2")))
        first, second = server.sent("sendDocument")
        assert first == {
            "chat_id": "77", "caption": "see", "caption_entities": BOLD["entities"],
            "document": ("a.py", "text/x-python", "print('é')\n".encode()),
        }  # fmt: skip
        assert (second["document"], second["message_thread_id"]) == (("b.pdf", "application/pdf", b"bytes of d1"), 9)
        assert second["reply_parameters"]["message_id"] == 5
        assert server.sent("sendPhoto") == [{"chat_id": "77", "photo": ("c.png", "image/png", b"bytes of d2")}]

    async def test_a_picture_that_is_refused_as_one_goes_as_a_file(self, server: ScriptedServer) -> None:
        server.say("sendPhoto", No(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"))
        async with opened(server) as channel:
            await channel.send(MessagePart("77", "", file=OutboundFile("c.png", "image/png", digest="d2")))
        assert server.methods() == ["sendPhoto", "sendDocument"]


class TestEditing:
    async def test_an_edit_sends_text_and_entities(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            await channel.edit("7", MessagePart("77", "hi", markup=BOLD))
        assert server.sent("editMessageText") == [
            {"chat_id": "77", "message_id": 7, "text": "hi", **BOLD, "link_preview_options": {"is_disabled": True}}
        ]

    async def test_a_change_that_changes_nothing_is_a_success(self, server: ScriptedServer) -> None:
        same = No(
            400,
            "Bad Request: message is not modified: specified new message content and reply markup are exactly the same",
        )
        server.say("editMessageText", same, UNPARSED, same)
        async with opened(server) as channel:
            await channel.edit("7", MessagePart("77", "hi"))
            await channel.edit("7", MessagePart("77", "hi", markup=BOLD))
        assert ["entities" in one for one in server.sent("editMessageText")] == [False, True, False]

    @pytest.mark.parametrize(
        ("answer", "permanent"),
        [
            (No(400, "Bad Request: message to edit not found"), True),
            (No(400, "Bad Request: message can't be edited"), True),
            (No(400, "Bad Request: group chat was upgraded", {"migrate_to_chat_id": -1001}), True),
            (No(429, "Too Many Requests: retry after 3", {"retry_after": 3}), False),
            (DROP, False),
        ],
    )
    async def test_a_failed_edit_says_whether_and_when_to_try_again(
        self, server: ScriptedServer, answer: Any, permanent: bool
    ) -> None:
        server.say("editMessageText", answer)
        async with opened(server) as channel:
            with pytest.raises(DeliveryFailed) as caught:
                await channel.edit("7", MessagePart("77", "hi"))
        assert caught.value.permanent is permanent
        assert caught.value.retry_after == (3.0 if isinstance(answer, No) and answer.code == 429 else None)

    async def test_there_has_to_be_a_message(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            for message, part in (("", MessagePart("77", "hi")), ("7", MessagePart("77", "", file=OutboundFile("a")))):
                with pytest.raises(DeliveryFailed) as caught:
                    await channel.edit(message, part)
                assert caught.value.permanent
        assert server.calls == []


class TestFetching:
    @pytest.fixture(autouse=True)
    def _a_file(self, server: ScriptedServer) -> None:
        server.usual["getFile"] = {"file_id": "F", "file_unique_id": "f", "file_path": "photos/file 1.jpg"}
        server.files["photos/file 1.jpg"] = lambda _: web.Response(body=b"x" * 1000)

    async def test_the_bytes_of_a_file(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            assert await channel.fetch(Attachment("F"), 1000) == b"x" * 1000
        assert server.sent("getFile") == [{"file_id": "F"}]

    async def test_what_is_too_large_is_not_asked_for(self, server: ScriptedServer) -> None:
        async with opened(server) as channel:
            with pytest.raises(FetchFailed, match=r"the file is 5\.0 MB large, and at most 999 bytes are taken"):
                await channel.fetch(Attachment("F", size=5_000_000), 999)
            assert server.calls == []
            server.usual["getFile"]["file_size"] = 1000
            with pytest.raises(FetchFailed, match="the file is 1 kB large, and at most 999 bytes are taken"):
                await channel.fetch(Attachment("F", size=5), 999)

    async def test_nor_read_to_its_end_whatever_was_said_of_it(self, server: ScriptedServer) -> None:
        given = 0

        async def endless(request: web.Request) -> web.StreamResponse:
            nonlocal given
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            while given < 50_000_000:
                await response.write(b"x" * 65536)
                given += 65536
            return response

        server.files["photos/file 1.jpg"] = endless
        async with opened(server) as channel:
            with pytest.raises(FetchFailed, match="larger than 100 kB, the most that is taken"):
                await channel.fetch(Attachment("F", size=5), 100_000)
        assert given < 50_000_000
        server.files["photos/file 1.jpg"] = lambda _: web.Response(body=b"x" * 1000)
        async with opened(server) as channel:
            with pytest.raises(FetchFailed, match="larger than 999 bytes"):
                await channel.fetch(Attachment("F"), 999)

    @pytest.mark.parametrize(
        ("method", "answer", "said", "permanent"),
        [
            ("getFile", No(400, "Bad Request: file is too big"), "20 MB", True),
            ("getFile", No(400, "Bad Request: wrong file_id"), "wrong file_id", True),
            ("getFile", {"file_id": "F"}, "does not say where", False),
            ("getFile", DROP, "could not be fetched", False),
            ("file", 404, "(404)", True),
            ("file", 502, "(502)", False),
        ],
    )
    async def test_a_failed_download_says_why_and_whether_to_try_again(
        self, server: ScriptedServer, method: str, answer: Any, said: str, permanent: bool
    ) -> None:
        if method == "file":
            server.files["photos/file 1.jpg"] = lambda _: web.Response(status=answer)
        else:
            server.say(method, answer)
        async with opened(server) as channel:
            with pytest.raises(FetchFailed) as caught:
                await channel.fetch(Attachment("F"), 1000)
        assert said in str(caught.value)
        assert caught.value.permanent is permanent

    async def test_half_a_file_is_none(self, server: ScriptedServer) -> None:
        async def cut(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b"x" * 500)
            assert request.transport is not None
            request.transport.close()
            return response

        server.files["photos/file 1.jpg"] = cut
        async with opened(server) as channel:
            with pytest.raises(FetchFailed, match="could not be fetched") as caught:
                await channel.fetch(Attachment("F"), 1000)
        assert not caught.value.permanent

    async def test_a_server_of_ones_own_names_a_path_below_its_folder(
        self, server: ScriptedServer, tmp_path: Path
    ) -> None:
        folder = tmp_path / "files"
        (folder / "photos").mkdir(parents=True)
        kept = folder / "photos" / "kept"
        kept.write_bytes(b"y" * 10)
        (folder / "inner").symlink_to(folder / "photos")
        (folder / "out").symlink_to(tmp_path)
        (tmp_path / "private").write_bytes(b"mine")
        os.mkfifo(folder / "pipe")
        async with opened(server, file_folder=str(folder)) as channel:
            for path in (kept, folder / "inner" / "kept"):
                server.usual["getFile"] = {"file_path": str(path)}
                assert await channel.fetch(Attachment("F"), 10) == b"y" * 10
            with pytest.raises(FetchFailed, match="larger than 9 bytes"):
                await channel.fetch(Attachment("F"), 9)
            for path, said in (
                (folder, "not a file"),
                (folder / "pipe", "not a file"),
                (folder / "gone", "cannot be read"),
                (folder / "out" / "private", "outside of its folder"),
                (folder / ".." / "private", "outside of its folder"),
                (tmp_path / "private", "outside of its folder"),
                (Path("/proc/self/environ"), "outside of its folder"),
            ):
                server.usual["getFile"] = {"file_path": str(path)}
                with pytest.raises(FetchFailed, match=said):
                    await channel.fetch(Attachment("F"), 10)

    async def test_without_a_folder_and_in_the_home_nothing_is_read(
        self, server: ScriptedServer, tmp_path: Path
    ) -> None:
        (tmp_path / "bubbot.db").write_bytes(b"mine")
        server.usual["getFile"] = {"file_path": str(tmp_path / "bubbot.db")}
        async with opened(server) as channel:
            with pytest.raises(FetchFailed, match=r"\[channels\.tg\] file_folder"):
                await channel.fetch(Attachment("F"), 10)
        for folder in (tmp_path, tmp_path.parent):
            given = structs.replace(options(server, file_folder=str(folder)), home=tmp_path)
            at_home = create(given)
            with pytest.raises(FetchFailed, match="outside of its folder"):
                await at_home.fetch(Attachment("F"), 10)
            await at_home.aclose()

    async def test_telegrams_own_server_names_none_here(self, server: ScriptedServer, tmp_path: Path) -> None:
        (tmp_path / "private").write_bytes(b"mine")
        server.usual["getFile"] = {"file_path": str(tmp_path / "private")}
        async with opened(server) as channel:
            with pytest.raises(FetchFailed):
                await fetch_attachment(channel.api, Attachment("F"), 10, None)
