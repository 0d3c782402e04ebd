"""Files that go out with an answer: made by a tool, merged with the turn, read when they are delivered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import DeliveryFailed
from bubbot.gateway.files import outgoing_blob_reader
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Attachment, ChannelOptions, Outbound, OutboundFile
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.blobs import blob_digest
from channels.platform.saved_files import make_parts, save_file
from tests.e2e.test_images import PNG
from tests.turns import HOME, KeptChannel, Options, Played, calls, running, says

MAX_FILES = 10


def sends(**arguments: Any) -> Played:
    return Played(calls("file_send", **arguments), says("here it is"))


class TestSending:
    async def test_a_text_goes_out_as_a_file_after_the_answer(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, sends(name="notes.md", text="# Notes")) as bench:
            await bench.say("write it down")
            assert [(part.text, part.file and part.file.name) for part in bench.channel.sent] == [
                ("here it is", None),
                ("", "notes.md"),
            ]
            assert bench.channel.received == {"notes.md": b"# Notes"}
            assert "# Notes" not in json.dumps([one.all_text() for one in await bench.entries(bench.outbox.name)])

    async def test_a_kept_attachment_goes_back_as_it_came(self, sqlite_store: SqliteStore) -> None:
        channel = KeptChannel()
        channel.files = {"photo": PNG}
        model = sends(name="back.png", handle=blob_digest(PNG))
        async with running(sqlite_store, model, channel=channel) as bench:
            await bench.say("send it back", attachments=[Attachment("photo", "photo.png")])
            assert channel.received == {"back.png": PNG}
            assert channel.sent[-1].file == OutboundFile("back.png", "image/png", digest=blob_digest(PNG))

    async def test_a_file_without_words_is_sent_alone(self, sqlite_store: SqliteStore) -> None:
        model = Played(calls("file_send", name="a.txt", text="x"), says("[SILENT]"))
        async with running(sqlite_store, model) as bench:
            await bench.say("quietly")
            assert ([part.text for part in bench.channel.sent], bench.channel.received) == ([""], {"a.txt": b"x"})

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"name": "a.txt"}, "give text or handle"),
            ({"name": "a.txt", "text": "x", "handle": "y"}, "give text or handle"),
            ({"name": "../", "text": "x"}, "name is empty"),
            ({"name": "a.txt", "handle": "nothing"}, "nothing is kept under nothing"),
            ({"name": "a.txt", "text": "x" * 101}, "a.txt has 101 bytes; at most 100 bytes can be sent"),
        ],
    )
    async def test_what_cannot_be_sent_is_told_to_the_model(
        self, sqlite_store: SqliteStore, arguments: Mapping[str, str], said: str
    ) -> None:
        async with running(sqlite_store, sends(**arguments), Options(max_file=100)) as bench:
            await bench.say("do it")
            assert said in str(bench.requests[-1].messages[-1]["content"])
            assert bench.channel.received == {}

    async def test_an_answer_has_only_so_many_files(self, sqlite_store: SqliteStore) -> None:
        steps = [calls("file_send", name=f"{n}.txt", text=str(n)) for n in range(MAX_FILES + 1)]
        async with running(sqlite_store, Played(*steps, says("done"))) as bench:
            await bench.say("do it")
            assert len(bench.channel.received) == MAX_FILES

    async def test_a_stopped_turn_sends_none(self, sqlite_store: SqliteStore) -> None:
        model = Played(calls("file_send", name="a.txt", text="x"), {"error": "unavailable"})
        async with running(sqlite_store, model) as bench:
            assert (await bench.say("do it")).status == "failed"
            assert bench.channel.received == {}


class TestRestart:
    async def test_a_file_that_was_merged_is_delivered_by_the_next_process(self, sqlite_store: SqliteStore) -> None:
        broken = KeptChannel()
        broken.failures = [DeliveryFailed("no network")]
        async with running(sqlite_store, sends(name="notes.md", text="# Notes"), channel=broken) as bench:
            await bench.say("write it down")
            assert broken.received == {}
        async with running(sqlite_store, ScriptedModel(), life="second") as bench:
            await bench.resume()
            assert (bench.channel.texts, bench.channel.received) == (["here it is", ""], {"notes.md": b"# Notes"})

    async def test_also_after_its_tape_was_put_aside(self, sqlite_store: SqliteStore) -> None:
        broken = KeptChannel()
        broken.failures = [DeliveryFailed("no network")]
        async with running(sqlite_store, sends(name="notes.md", text="# Notes"), channel=broken) as bench:
            await bench.say("write it down")
            await bench.tape().reset(archive=True)
        async with running(sqlite_store, ScriptedModel(), life="second") as bench:
            await bench.resume()
            assert bench.channel.received == {"notes.md": b"# Notes"}

    async def test_an_erased_one_is_not(self, sqlite_store: SqliteStore) -> None:
        broken = KeptChannel()
        broken.failures = [DeliveryFailed("no network")]
        async with running(sqlite_store, sends(name="notes.md", text="# Notes"), channel=broken) as bench:
            await bench.say("write it down")
            await bench.say(",reset erase")
        async with running(sqlite_store, ScriptedModel(), life="second") as bench:
            await bench.resume()
            assert bench.channel.received == {}

    async def test_no_other_blob_can_be_read(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel()) as bench:
            digest = await bench.tape().put_blob(b"private")
            with pytest.raises(DeliveryFailed, match="is not stored here"):
                await outgoing_blob_reader(sqlite_store, bench.outbox, lambda _: HOME)(digest)


class TestSaved:
    def options(self, home: Path, blob: bytes = b"") -> ChannelOptions:
        async def read(digest: str) -> bytes:
            return blob

        return ChannelOptions("stdin", home, lambda: "", lambda: "p", {}, read)

    def test_each_file_is_a_part_after_the_text(self) -> None:
        parts = make_parts(Outbound("stdin", "c", "hi", files=(OutboundFile("a"), OutboundFile("b"))))
        assert [(part.text, part.file and part.file.name) for part in parts] == [("hi", None), ("", "a"), ("", "b")]
        assert [part.file for part in make_parts(Outbound("stdin", "c", "", files=(OutboundFile("a"),)))] == [
            OutboundFile("a")
        ]
        assert len(make_parts(Outbound("stdin", "c", ""))) == 1

    async def test_it_is_saved_once_readable_for_its_owner_alone(self, tmp_path: Path) -> None:
        options = self.options(tmp_path, PNG)
        lines = [await save_file(options, OutboundFile("../my photo.png", digest="d")) for _ in range(2)]
        (path,) = (tmp_path / "exports").iterdir()
        assert path.read_bytes() == PNG
        assert (tmp_path / "exports").stat().st_mode & 0o777 == 0o700
        assert (path.name, path.stat().st_mode & 0o777) == (f"_my photo-{blob_digest(PNG)[:8]}.png", 0o600)
        assert lines == [f"The file ../my photo.png is saved as {path}"] * 2

    @pytest.mark.parametrize(
        ("name", "start"),
        [
            ("", "file-"),
            ("..", "file-"),
            ("x" * 300, "x" * 80),
            ("字" * 80, "字" * 40),
            ("𠀀" * 80 + ".md", "𠀀" * 30),
            ("a." + "𠀀" * 80, "a-"),
        ],
        ids=["none", "dots", "long", "Chinese", "rare", "long suffix"],
    )
    async def test_any_name_can_be_saved(self, tmp_path: Path, name: str, start: str) -> None:
        await save_file(self.options(tmp_path), OutboundFile(name, text="x"))
        (path,) = (tmp_path / "exports").iterdir()
        assert path.read_text(encoding="utf-8") == "x"
        assert path.name.startswith(start)

    async def test_text_needs_no_blob(self, tmp_path: Path) -> None:
        await save_file(self.options(tmp_path), OutboundFile("a.txt", text="né"))
        (path,) = (tmp_path / "exports").iterdir()
        assert path.read_text(encoding="utf-8") == "né"

    async def test_a_folder_that_cannot_be_written_is_a_failed_delivery(self, tmp_path: Path) -> None:
        (tmp_path / "exports").write_text("in the way")
        with pytest.raises(DeliveryFailed, match="could not be saved"):
            await save_file(self.options(tmp_path), OutboundFile("a.txt", text="x"))
