"""The example of a channel of one's own: what its promises leave open."""

from __future__ import annotations

import ast
import asyncio
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bubbot.errors import ChannelError, ConfigError, DeliveryFailed
from bubbot.ports.channel import (
    ChannelEvent,
    ChannelOptions,
    Inbound,
    MessagePart,
    Outbound,
    OutboundFile,
    UnparsedUpdate,
)
from examples.own_channel import letterbox
from tests.contract.channel_promises import blob_of, until

ME = str(os.getuid())
SHM = Path("/dev/shm")
"""Files in memory, whose dates have 64 bits."""


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path


def opened(letters: Path, **settings: Any) -> letterbox.Letterbox:
    table = {"path": str(letters), "interval": 0.01, **settings}
    return letterbox.create(ChannelOptions("letters", letters, lambda: "now", lambda: "notice", table, blob_of))


async def heard(letters: Path, count: int) -> list[ChannelEvent]:
    """So many events, when they are acknowledged."""
    events: list[ChannelEvent] = []

    async def receive(event: ChannelEvent) -> None:
        events.append(event)

    def taken() -> bool:
        found = (one for one in (letters / "new").iterdir() if one.is_file() and not one.is_symlink())
        return len(events) >= count and not [one for one in found if one.name[0] != "."]

    task = asyncio.create_task(opened(letters).run(receive))
    try:
        await until(lambda: taken() or task.done())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return events


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("a", b"caf\xe9", "it is not valid UTF-8 (byte 4)"),
        ("a", b"", "it has no text, or no name"),
        ("a", b" \n", "it has no text, or no name"),
        ("two\nlines", b"hello", "it has no text, or no name"),
        ("a", b"x" * (letterbox.LIMIT + 1), "it is longer than 65536 bytes"),
        ("a", "\u00e9".encode() * letterbox.LIMIT, "it is longer than 65536 bytes"),
    ],
)
async def test_a_file_that_is_no_message_is_set_aside_once(letters: Path, name: str, raw: bytes, reason: str) -> None:
    (letters / "new" / name).write_bytes(raw)
    (event,) = await heard(letters, 1)
    assert isinstance(event, UnparsedUpdate)
    assert (event.chat, event.raw, event.reason) == (ME, raw[: letterbox.LIMIT + 1], f"a file is no message: {reason}")
    assert (letters / "cur" / name).exists()


async def test_a_name_that_is_no_text_is_set_aside(letters: Path) -> None:
    (letters / "new" / os.fsdecode(b"\xff")).write_text("hello")
    assert [type(event) for event in await heard(letters, 1)] == [UnparsedUpdate]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_may_not_be_read_is_set_aside(letters: Path) -> None:
    (letters / "new" / "a").touch(mode=0)
    (event,) = await heard(letters, 1)
    assert isinstance(event, UnparsedUpdate)
    assert (event.chat, event.reason) == (ME, "a file is no message: it may not be read")


async def test_links_folders_and_hidden_files_are_left_alone(letters: Path) -> None:
    (letters / "secret").write_text("not for you")
    (letters / "new" / "link").symlink_to(letters / "secret")
    (letters / "new" / "folder").mkdir()
    (letters / "new" / ".hidden").write_text("hidden")
    (letters / "new" / "real").write_text("hello")
    assert [event.text for event in await heard(letters, 1) if isinstance(event, Inbound)] == ["hello"]
    assert sorted(one.name for one in (letters / "new").iterdir()) == [".hidden", "folder", "link"]


async def test_a_name_that_is_used_again_is_another_message(letters: Path) -> None:
    ids = []
    for text in ("one", "two"):
        (letters / "new" / "same").write_text(text)
        ids += [event.external_id for event in await heard(letters, 1) if isinstance(event, Inbound)]
    assert len(set(ids)) == 2
    assert not any("same" in one for one in ids), "keys tell nothing"


@pytest.mark.skipif(not SHM.is_dir(), reason="most file systems have no such dates")
@pytest.mark.parametrize("seconds", [-(10**12), 10**12])
async def test_a_date_of_no_calendar_is_now(seconds: int) -> None:
    with TemporaryDirectory(dir=SHM) as folder:
        letter = Path(folder) / "new" / "a"
        letter.parent.mkdir()
        letter.write_text("hello")
        os.utime(letter, (seconds, seconds))
        assert [event.time for event in await heard(Path(folder), 1) if isinstance(event, Inbound)] == ["now"]


async def test_files_are_written_whole_under_names_that_stay_in_the_folder(letters: Path) -> None:
    channel = opened(letters)
    files = (OutboundFile("../../evil \u6f22.py", text="x = 1"), OutboundFile("b.bin", digest="d" * 64))
    parts = channel.parts(Outbound("letters", ME, "See:", reply_to="q.txt", files=files))
    names = [(await channel.send(MessagePart(one.chat, one.text, reply_to=one.reply_to, file=one.file, key=key))).external_id
             for key, one in zip("abc", parts, strict=True)]  # fmt: skip
    assert names == ["a.q.txt.md", "b..._.._evil__.py", "c.b.bin"]
    out = letters / "out" / ME
    assert [(out / "new" / name).read_bytes() for name in names] == [b"See:", b"x = 1", f"bytes of {'d' * 64}".encode()]
    assert list((out / "tmp").iterdir()) == []


async def test_a_notice_has_no_key_and_is_written_all_the_same(letters: Path) -> None:
    assert (await opened(letters).send(MessagePart(ME, "Hello", reply_to="q"))).external_id == "notice.q.md"


async def test_an_answer_that_was_read_and_put_away_is_not_written_again(letters: Path) -> None:
    channel, out = opened(letters), letters / "out" / ME
    name = (await channel.send(MessagePart(ME, "Hello", key="k"))).external_id
    (out / "new" / name).rename(out / "cur" / f"{name}:2,S")
    assert (await channel.send(MessagePart(ME, "Hello", key="k"))).external_id == f"{name}:2,S"
    assert list((out / "new").iterdir()) == []


async def test_a_folder_that_cannot_be_used_is_a_failure_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    channel = opened(tmp_path / "file" / "letters")

    async def receive(event: ChannelEvent) -> None:
        raise AssertionError(event)

    with pytest.raises(ChannelError, match=r"file/letters/tmp cannot be used \(Not a directory\)"):
        await channel.run(receive)
    with pytest.raises(DeliveryFailed, match=r"cannot be written \(Not a directory\)") as failed:
        await channel.send(MessagePart(ME, "Hello", key="k"))
    assert not failed.value.permanent


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path": None}, "path is None, but must be a whole path"),
        ({"path": "letters"}, "path is 'letters', but must be a whole path"),
        ({"interval": 0}, "interval is 0, but must be a number from 0.01 to 60"),
        ({"interval": "often"}, "interval is 'often', but must be a number"),
        ({"interval": [1]}, "interval is [1], but must be a number"),
        ({"interval": "nan"}, "interval is 'nan', but must be a number"),
        ({"pth": "/x"}, "pth is not a key of a letterbox: there are path and interval"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_must_be(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"[channels.letters] {said}")):
        opened(tmp_path, **settings)


def test_of_bubbot_it_imports_the_port_and_the_errors_alone() -> None:
    tree = ast.parse(Path(letterbox.__file__).read_text(encoding="utf-8"))
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert {one for one in found if one.startswith("bubbot")} == {"bubbot.ports.channel", "bubbot.errors"}
    assert {one for one in found if one.startswith("channels")} == set()
