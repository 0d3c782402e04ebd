"""Hostile input and a hostile machine: a clear error each, nothing lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from base64 import b64decode
from pathlib import Path

import pytest

from tests.e2e import forked
from tests.e2e.bot import entries, environment, run, said, sentence

FULL_DISK = """
import asyncio, sys
from pathlib import Path
from bubbot.home import Home
from bubbot.app.settings import load
from bubbot.app.bot import open_app
from bubbot.stores.sqlite import store

open_writer = store.open_writer

def open_limited(*arguments):
    conn = open_writer(*arguments)
    (count,) = conn.execute("PRAGMA page_count").fetchone()
    conn.execute(f"PRAGMA max_page_count = {count + 8}")
    return conn

store.open_writer = open_limited

async def main():
    home = Home(Path(sys.argv[1]))
    async with open_app(load(home=home.path), home) as app:
        await app.recover("stdin:default")
        await app.channel.run(app.gate.receive)
        await app.runtime.wait_idle()

from bubbot.errors import BubbotError
try:
    asyncio.run(main())
except BubbotError as error:
    print(f"bubbot: {error}", file=sys.stderr)
    sys.exit(4)
"""


def test_a_message_of_a_megabyte_is_answered_and_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    text = "long" * 262_144
    assert said(home, text) == [f"You said: {text}"]
    assert any(entry["payload"] == {"role": "user", "content": text} for entry in entries(home))


def test_a_line_over_the_limit_is_set_aside_and_the_next_one_answered(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "chat", lines=b"x" * (17 * 1024 * 1024) + b"\nhello\n")
    assert b"is longer than 16 MiB" in done.stdout
    assert done.stdout.endswith(b"You said: hello\n")


def test_nul_bytes_and_control_characters_are_text(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run(home, "chat", lines=b"a\x00b\x1b[31m\x07\n")
    assert done.stdout.decode() == "You said: a\ufffdb\ufffd[31m\ufffd\n"  # nothing printed controls a terminal
    assert any(entry["payload"] == {"role": "user", "content": "a\x00b\x1b[31m\x07"} for entry in entries(home))


def test_invalid_utf_8_is_told_its_bytes_kept_and_the_next_line_answered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = run(home, "chat", lines=b"caf\xe9\nhello\n")
    assert done.stdout == (
        b"I could not read that: line 1 is not valid UTF-8 (byte 4). It was kept as it came.\nYou said: hello\n"
    )
    (kept,) = [
        entry["payload"]["data"]["raw"]  # type: ignore[index]
        for entry in entries(home, "bubbot/inbox/stdin")
        if entry["payload"]["name"] == "inbox/unparsed"  # type: ignore[index]
    ]
    assert b64decode(kept) == b"caf\xe9\n"


def test_a_lone_surrogate_on_the_command_line_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "ask", b"\xed\xa0\x80")
    assert done.returncode == 2
    assert "not valid UTF-8" in sentence(done)


@pytest.mark.parametrize("escape", ["\\\\ud800", "\\\\u0000"])
def test_what_a_model_writes_cannot_break_the_tape(tmp_path: Path, escape: str) -> None:
    script = tmp_path / "script.json"
    arguments = '"{\\"query\\": \\"' + escape + '\\"}"'
    script.write_text(
        '{"rules": [{"when": "go", "steps": [{"calls": [{"name": "tape_search", "arguments": '
        + arguments
        + '}]}, {"text": "done \\ud83d"}]}]}'
    )
    done = run(tmp_path / "home", "chat", lines=["go", "hello"], env={"BUBBOT_MODEL__SCRIPT": str(script)})
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == ["done \N{REPLACEMENT CHARACTER}", "You said: hello"]
    assert run(tmp_path / "home", "tape", "verify").returncode == 0


def test_a_config_with_wrong_types_names_the_key_the_value_and_the_fix(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('[model]\nmax_steps = "many"\nnmae = "x"\n')
    done = run(home, "chat", lines=["hi"])
    assert done.returncode == 2
    text = sentence(done)
    assert "[model] max_steps" in text
    assert "many" in text
    assert "name" in text
    assert not (home / "bubbot.db").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bubbot-"))  # the folders of tmp_path are closed to other users
    try:
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir(mode=0o755)
        # Everything is imported first: the other user may not be able to read the checkout.
        code = (
            "import importlib.metadata, os, sys, bubbot.cli.chat.command; from bubbot.cli.main import main;"
            "os.setgid(65534); os.setuid(65534); sys.exit(main())"
        )
        done = forked.run(forked.PROGRAM, [code, "chat"], b"hi\n", env=environment(home), cwd=Path("/"))
        assert done.returncode == 2
        assert str(home) in sentence(done)
    finally:
        shutil.rmtree(folder)


def test_a_full_database_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello")
    lines = [f"message {number} {'x' * 3000}" for number in range(40)]
    typed = "".join(f"{line}\n" for line in lines).encode()
    done = forked.run(forked.PROGRAM, [FULL_DISK, str(home)], typed, env=environment(home), cwd=home.parent)
    assert done.returncode == 4
    assert "no room" in sentence(done)
    _nothing_lost(home, done.stdout.decode().splitlines(), lines)


@pytest.mark.proof
def test_a_file_size_limit_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello")
    size = (home / "bubbot.db").stat().st_size // 1024
    lines = [f"message {number} {'x' * 3000}" for number in range(200)]
    limit = ("bash", "-c", f'ulimit -f {size + 200}; exec "$@"', "bash")
    done = run(home, "chat", lines=lines, before=limit)
    assert done.returncode == 4
    assert sentence(done)
    _nothing_lost(home, done.stdout.decode().splitlines(), lines)


def _nothing_lost(home: Path, printed: list[str], lines: list[str]) -> None:
    """What was accepted is answered, before the disk was full or after there is room again; the tape is sound."""
    accepted = [
        entry["payload"]["data"]["text"]  # type: ignore[index]
        for entry in entries(home, "bubbot/inbox/stdin")
        if entry["payload"]["name"] == "inbox/received"  # type: ignore[index]
    ]
    assert 1 < len(accepted) < len(lines)
    printed = ["You said: hello", *printed, *said(home, "and now")]
    repeated = {line for line in printed if printed.count(line) > 1}
    # The receipt of what was printed last may be what there was no room for; its repeat is recorded as one.
    assert repeated <= {_text_of(home, data) for data in _receipts(home) if data.get("resumed")}
    assert len(repeated) <= 1
    assert {f"You said: {text}" for text in accepted} <= set(printed)
    assert run(home, "tape", "verify").returncode == 0


def _receipts(home: Path) -> list[dict[str, object]]:
    found = (entry["payload"] for entry in entries(home, "bubbot/outbox/stdin"))
    return [payload["data"] for payload in found if payload.get("name") == "outbox/receipt"]  # type: ignore[index, attr-defined]


def _text_of(home: Path, receipt: dict[str, object]) -> str:
    intent = next(one for one in entries(home, "bubbot/outbox/stdin") if one["id"] == receipt["intent"])
    return str(intent["payload"]["data"]["parts"][receipt["part"]]["text"])  # type: ignore[index]


def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello")
    with sqlite3.connect(home / "bubbot.db") as conn:
        conn.execute("PRAGMA user_version = 99")
    conn.close()
    for command in (("chat",), ("tape", "list")):
        done = run(home, *command, lines=["hi"])
        assert done.returncode == 4
        assert "newer bubbot" in sentence(done)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["header", "middle", "empty", "text"])
def test_a_damaged_database_is_told_and_left_alone(tmp_path: Path, damage: str) -> None:
    home = tmp_path / "home"
    said(home, *(f"hello {number} {'y' * 500}" for number in range(40)))
    database = home / "bubbot.db"
    data = bytearray(database.read_bytes())
    if damage == "header":
        data[:100] = os.urandom(100)
    elif damage == "middle":
        data[4096:] = os.urandom(len(data) - 4096)
    elif damage == "text":
        data = bytearray(b"this is not a database\n" * 100)
    else:
        data = bytearray()
    database.write_bytes(data)
    done = run(home, "chat", lines=["hi"])
    assert done.returncode in (4, 5)
    assert (f"the database {database} is empty, and this home had one" in sentence(done)) == (damage == "empty")
    assert database.read_bytes()[:4096] == bytes(data[:4096])


def _altered(home: Path, statement: str) -> None:
    """Change what is stored past the trigger, as somebody does who puts that back afterwards."""
    with sqlite3.connect(home / "bubbot.db") as conn:
        [(trigger,)] = conn.execute("SELECT sql FROM sqlite_master WHERE name = 'entries_update'").fetchall()
        conn.execute("DROP TRIGGER entries_update")
        conn.execute(statement)
        conn.execute(trigger)
    conn.close()


@pytest.mark.law("T15")
def test_one_damaged_entry_is_told_and_does_not_end_the_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello", "there")
    _altered(home, "UPDATE entries SET payload = replace(payload, 'hello', 'jello') WHERE kind = 'message'")
    printed = said(home, "again", ",new", "and now")
    assert printed[0].startswith("I could not answer this: entry ")
    assert "was altered" in printed[0]
    assert printed[-1] == "You said: and now"
    done = run(home, "tape", "verify")
    assert done.returncode == 5
    assert b"altered" in done.stdout


def test_a_damaged_memory_does_not_end_the_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello", ",memory.save tea")
    _altered(home, "UPDATE entries SET payload = 'x' WHERE name = 'memory.long_term'")
    printed = said(home, "again", ",tape.info")
    assert printed[0].startswith("I could not answer this: entry ")
    assert printed[1].startswith("entries: ")


def test_a_terminal_that_hangs_up_ends_the_chat(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    streams = (terminal, terminal, terminal)
    process = forked.start(forked.BOT, ["chat"], env=environment(tmp_path / "home"), cwd=tmp_path, streams=streams)
    os.close(terminal)
    os.write(controller, b"hi\n")
    shown = b""
    while b"You said: hi" not in shown:
        shown += os.read(controller, 1024)
    os.close(controller)
    process.wait(timeout=20)
