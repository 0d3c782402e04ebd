"""Attachments in the life of a turn: joined, killed, erased, shown as images."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bubbot.errors import EntryNotFound
from bubbot.features.attachments.intake import AttachmentIntake
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Attachment
from bubbot.ports.model import ModelReply, ModelRequest, ModelTraits, ToolCall
from bubbot.runtime.queue import QueuePolicy
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import Kind, TapeEntry
from tests.attached import NOTES, PHOTO, channel, content, execute, message, no_wait, options, shown
from tests.e2e.test_images import JPEG, PNG
from tests.turns import WAIT, KeptChannel, Options, Played, Replying, asked, running, says


class TestSteering:
    async def test_what_steers_a_turn_brings_its_files(self, sqlite_store: SqliteStore) -> None:
        asking, go = asyncio.Event(), asyncio.Event()

        async def stream(request: ModelRequest) -> Any:
            if len(model.requests) == 1:
                asking.set()
                await go.wait()
                yield ModelReply("", (ToolCall("c1", "tape_info", "{}"),), "tool_calls")
            else:
                yield ModelReply("done")

        model = Replying(stream)
        steer = Options(intake=AttachmentIntake(sleep=no_wait), waiting=QueuePolicy(busy="steer"))
        async with running(sqlite_store, model, steer, channel=channel(notes=b"new facts")) as bench:
            async with asyncio.timeout(WAIT):
                first = await bench.post("begin")
                await asking.wait()
                second = await bench.post("and this", attachments=[NOTES])
                go.set()
                assert (await first).turn_id == (await second).turn_id
            assert "new facts" in shown(bench)


class TestKilled:
    async def test_between_fetch_and_merge_nothing_is_lost(self, sqlite_store: SqliteStore) -> None:
        asking = asyncio.Event()

        async def stream(request: ModelRequest) -> Any:
            asking.set()
            await asyncio.Event().wait()
            yield ModelReply("never")

        files = channel(photo=PNG)
        async with running(sqlite_store, Replying(stream), options(), channel=files) as bench:
            async with asyncio.timeout(WAIT):
                await bench.post("look", attachments=[PHOTO])
                await asking.wait()
            await bench.kill()
        async with running(sqlite_store, ScriptedModel(), options(), channel=files, life="second") as bench:
            (result,) = await bench.resume()
            assert result.status == "answered"
            assert content(await message(bench))[1]["digest"] == blob_digest(PNG)
            assert [one.kind for one in await bench.entries()].count("message") == 2
            assert files.fetched == ["photo"]  # the message stands on the tape already

    async def test_within_the_fetch_it_is_fetched_again(self, sqlite_store: SqliteStore) -> None:
        begun = asyncio.Event()

        class Slow(KeptChannel):
            """Does not get there."""

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                begun.set()
                await asyncio.Event().wait()
                raise AssertionError

        async with running(sqlite_store, ScriptedModel(), options(), channel=Slow()) as bench:
            async with asyncio.timeout(WAIT):
                await bench.post("look", attachments=[PHOTO])
                await begun.wait()
            await bench.kill()
        files = channel(photo=PNG)
        async with running(sqlite_store, ScriptedModel(), options(), channel=files, life="second") as bench:
            (result,) = await bench.resume()
            assert (result.status, files.fetched) == ("answered", ["photo"])
            assert content(await message(bench))[1]["digest"] == blob_digest(PNG)


async def test_erasing_a_session_erases_its_files(sqlite_store: SqliteStore, tmp_path: Any) -> None:
    secret = b"the colour of the door is octarine"
    async with running(sqlite_store, ScriptedModel(), options(), channel=channel(notes=secret, photo=PNG)) as bench:
        await bench.say("look", attachments=[NOTES, PHOTO])
        await bench.say(",reset erase")
        for digest in (blob_digest(secret), blob_digest(PNG)):
            with pytest.raises(EntryNotFound):
                await bench.tape().get_blob(digest)
        digests = "SELECT count(*) FROM blobs WHERE digest IN (?, ?)"
        assert execute(tmp_path / "bubbot.db", digests, blob_digest(secret), blob_digest(PNG)) == [(0,)]
    await sqlite_store.aclose()
    for path in tmp_path.glob("bubbot.db*"):
        found = path.read_bytes()
        assert (secret in found, PNG in found) == (False, False), path.name


class TestImagesAsked:
    async def test_a_model_that_sees_is_sent_the_bytes_and_why_can_show_it(self, sqlite_store: SqliteStore) -> None:
        model = Played(says("a dot"), traits=ModelTraits(images=True))
        async with running(sqlite_store, model, options(), channel=channel(photo=JPEG)) as bench:
            await bench.say("look", attachments=[PHOTO])
            parts = bench.requests[0].messages[-1]["content"]
            assert [part["type"] for part in parts] == ["text", "text", "text", "image_url"]
            assert parts[-1]["image_url"]["url"].startswith("data:image/jpeg;base64,/9j/")
            text = (await bench.say(",why yes")).text
            assert text.endswith("equal to the recorded one, byte for byte]")
            assert "base64" not in json.dumps([one.all_text() for one in await bench.entries()])

    async def test_one_that_cannot_see_is_told(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(photo=PNG)) as bench:
            await bench.say("look", attachments=[PHOTO])
            (_, said) = asked(bench.requests[0])[-1]
            assert said.endswith(
                f"[image photo.png, {len(PNG)} bytes; this model cannot see it; handle {blob_digest(PNG)}]"
            )

    async def test_bytes_that_are_gone_are_said_in_words(self, sqlite_store: SqliteStore) -> None:
        model = ScriptedModel(traits=ModelTraits(images=True))
        async with running(sqlite_store, model, options(), channel=channel()) as bench:
            part = {"type": "image", "media_type": "image/png", "name": "a.png", "size": 9, "digest": "0" * 64}
            await bench.say("hi")
            await bench.tape().append([TapeEntry(Kind.MESSAGE, {"role": "user", "content": [part]})])
            await bench.say("hello")
            assert "its bytes are gone" in str(bench.requests[-1].messages)
