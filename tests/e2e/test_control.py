"""The control socket with a daemon in a process of its own: chat, ask and writing commands beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from bubbot.home import Home, WriterLock
from tests.docs.pages import ROOT
from tests.e2e import bot, forked, inside
from tests.e2e.bot import sentence

SLOW = {
    "rules": [
        {"when": "slow", "steps": [{"delay": 30, "text": "late"}]},
        {"when": "wait", "steps": [{"delay": 0.4, "text": "ok"}]},
    ]
}
GIVE_UP = 20.0


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short name, as the path of a socket needs it."""
    path = Path(tempfile.mkdtemp())
    yield path
    rmtree(path)


@contextmanager
def daemon(home: Path, sockets: Path, **env: str) -> Iterator[forked.Child]:
    """A real `bubbot run` without channels, listening on its control socket below `sockets`."""
    home.mkdir(mode=0o700, exist_ok=True)
    with bot.opened(home, "run", XDG_RUNTIME_DIR=str(sockets), **env) as opened:
        assert any(b"action=run.started" in line for line in opened.stderr)
        # What it logs must not fill the pipe.
        reader = threading.Thread(target=opened.stderr.read, daemon=True)
        reader.start()
        try:
            yield opened.process
        finally:
            opened.process.terminate()
            with suppress(TimeoutError):
                opened.process.wait(GIVE_UP)
            opened.process.close()
            reader.join()


def until(fine: Callable[[], bool]) -> None:
    """Returns when it is so."""
    end = time.monotonic() + GIVE_UP
    while not fine():
        assert time.monotonic() < end
        time.sleep(0.1)


def entries(home: Path, tape: str = "stdin:default") -> list[dict[str, Any]]:
    """The entries of a tape; none where there is no such tape yet."""
    done = inside.run(home, "tape", "show", tape, "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def named(home: Path, name: str) -> list[dict[str, Any]]:
    """The data of the events of this name on the channel's inbox or outbox."""
    tape = f"bubbot/{name.partition('/')[0]}/stdin"
    return [entry["payload"]["data"] for entry in entries(home, tape) if entry["payload"].get("name") == name]


def receipts(home: Path) -> list[dict[str, Any]]:
    """The data of the receipts on the outbox tape."""
    return named(home, "outbox/receipt")


def test_chat_and_ask_are_clients_of_the_daemon_and_the_same_facts_come_of_it(tmp_path: Path, sockets: Path) -> None:
    beside, alone = tmp_path / "beside", tmp_path / "alone"
    said: dict[Path, list[bytes]] = {}
    with daemon(beside, sockets):
        for home in (beside, alone):
            chat = bot.run(home, "chat", lines=["hello", ",tape.info", "x" * 1_100_000, ",quit"])
            assert chat.returncode == 0, chat.stderr
            asked = inside.run(home, "ask", "and you")
            answer = json.loads(inside.run(home, "ask", "--json", "--session", "work", "as JSON").stdout)
            answer.pop("turn")
            untimed = re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d", b"then", chat.stdout)  # they ran one after the other
            said[home] = [untimed, asked.stdout, json.dumps(answer).encode()]
        assert [one["part"] for one in receipts(beside)] == [one["part"] for one in receipts(alone)] == [0] * 6
    assert said[beside] == said[alone]
    assert said[alone][1] == b"You said: and you\n"
    assert [entry["kind"] for entry in entries(beside)] == [entry["kind"] for entry in entries(alone)]


def test_a_session_with_a_colon_in_its_name_gets_its_last_answer_too(tmp_path: Path, sockets: Path) -> None:
    with daemon(tmp_path / "home", sockets):
        for text in ("hello", "again"):
            chat = bot.run(tmp_path / "home", "chat", "--session", "a:b", lines=["first", text])
            assert chat.stdout.decode().splitlines() == ["You said: first", f"You said: {text}"]


def test_a_failed_turn_is_the_exit_code_of_ask(tmp_path: Path, sockets: Path) -> None:
    script = tmp_path / "broken.json"
    script.write_text(json.dumps({"default": [{"error": "unavailable", "message": "the provider is down"}]}))
    with daemon(tmp_path / "home", sockets, BUBBOT_MODEL__SCRIPT=str(script)):
        done = inside.run(tmp_path / "home", "ask", "hello")
    assert done.returncode == 1
    assert done.stdout == b""
    assert re.fullmatch(
        rb"bubbot: I could not answer this: the provider is down\. \(trace [0-9a-f]{8}\)\n", done.stderr
    )


BOTH_WAYS: list[tuple[str, ...]] = [
    ("memory", "save", "default", "Likes green tea.\nIs Ada."),
    ("memory", "save", "default", "Likes green tea.\nIs Ada."),
    ("memory", "forget", "default", "TEA"),
    ("memory", "forget", "default", "nothing of that"),
    ("memory", "forget", "default", " "),
    ("memory", "forget", "nobody", "tea"),
    ("memory", "restore", "default", "1"),
    ("memory", "restore", "default", "9"),
    ("memory", "save", "bubbot/inbox/stdin", "x"),
    ("memory", "save", ":", "x"),
    ("memory", "save", "work", "-"),
    ("memory", "import", "default", "page.md"),
    ("memory", "import", "default", "page.md", "--replace"),
    ("memory", "import", "other", "notes"),
    ("memory", "import", "other", "none"),
    ("memory", "show", "default"),
    ("tape", "import", "talk.jsonl", "--session", "copy"),
    ("tape", "import", "talk.jsonl", "--session", "copy"),
    ("tape", "import", "torn.jsonl", "--session", "torn"),
    ("tape", "import", "torn.jsonl", "--session", "torn", "--repair"),
    ("tape", "import", "torn.jsonl", "--session", "torn", "--repair"),
    ("tape", "show", "copy"),
    ("tape", "archive", "copy"),
    ("tape", "archive", "nobody"),
]


@pytest.mark.proof
def test_writing_commands_do_and_say_the_same_with_and_without_a_daemon(tmp_path: Path, sockets: Path) -> None:
    told: dict[str, list[tuple[int, str, str]]] = {"beside": [], "alone": []}
    big = "z" * 1_100_000
    for way in told:
        folder = tmp_path / way
        (folder / "notes").mkdir(parents=True)
        (folder / "page.md").write_text(f"My page\n\n{big}\r\n")
        (folder / "notes" / "2020-01-01.md").write_text("Long ago.")
        (folder / "notes" / "odd.txt").write_text("")
        line = '{"id":1,"kind":"message","payload":{"role":"user","content":"h\\u0000i"},"meta":{},"date":"2026-11-21T20:21:00+00:00"}'
        (folder / "talk.jsonl").write_text(line + "\n")
        (folder / "torn.jsonl").write_bytes(line.encode() + b'\n{"id":2,\r"kin\n')
    with daemon(tmp_path / "beside" / "home", sockets):
        for arguments in BOTH_WAYS:
            for way, seen in told.items():
                done = inside.run(tmp_path / way / "home", *arguments, lines="from a pipe\n")
                texts = [
                    re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.+]*|[0-9a-f]{16}|\d{8}T\d{6}\.\d+", "#", raw.decode())
                    for raw in (done.stdout, done.stderr)
                ]
                seen.append((done.returncode, *(text.replace(way, "") for text in texts)))  # type: ignore[arg-type]
            assert told["beside"][-1] == told["alone"][-1], arguments
    codes = [code for code, _, _ in told["alone"]]
    assert (codes.count(0), codes.count(1), codes.count(2), codes.count(5)) == (12, 4, 7, 1)  # memory takes no 1.1 MB
    assert (tmp_path / "beside" / "torn.jsonl.unreadable").read_bytes() == b'{"id":2,\r"kin\n'
    assert inside.run(tmp_path / "beside" / "home", "tape", "verify").returncode == 0


def test_what_a_killed_client_was_owed_comes_with_the_next_chat(tmp_path: Path, sockets: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "slow.json"
    script.write_text(json.dumps(SLOW))
    with daemon(home, sockets, BUBBOT_MODEL__SCRIPT=str(script)):
        for number, command in enumerate((["chat"], ["ask", "wait a little"]), 1):
            with bot.opened(home, *command) as client:
                client.type("wait")
                if command[0] == "ask":
                    client.stdin.close()  # what is piped in belongs to the question
                until(lambda number=number: len(named(home, "inbox/received")) == number)  # type: ignore[misc]
                client.process.kill()
                assert client.stdout.read() == b""
        until(lambda: len(named(home, "outbox/intent")) == 2)
        assert receipts(home) == []
        assert bot.said(home, "hello") == ["ok", "ok", "You said: hello"]
        assert [one.get("resumed") for one in receipts(home)] == [True, True, None]


def test_a_daemon_that_is_killed_ends_the_chat_with_a_sentence_and_nothing_is_lost(
    tmp_path: Path, sockets: Path
) -> None:
    home, script = tmp_path / "home", tmp_path / "slow.json"
    script.write_text(json.dumps(SLOW))
    with daemon(home, sockets, BUBBOT_MODEL__SCRIPT=str(script)) as process, bot.opened(home, "chat") as client:
        client.type("slow")
        until(lambda: len(named(home, "inbox/received")) == 1)
        process.kill()
        process.wait(GIVE_UP)
        err = client.stderr.read().decode()
        assert client.process.wait(GIVE_UP) == 1
    assert err.splitlines() == [line for line in err.splitlines() if line.startswith("bubbot: The other end")]
    (left,) = (sockets / "bubbot").glob("*.sock")
    assert left.is_socket()  # what it left behind is in nobody's way
    with daemon(home, sockets):
        until(lambda: len(named(home, "outbox/intent")) == 1)
        assert bot.said(home, "again") == ["You said: slow", "You said: again"]
    assert bot.said(home, "alone") == ["You said: alone"]
    assert not left.exists()


def test_a_holder_of_the_lock_that_takes_no_requests_is_told_as_before(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with WriterLock(Home(home)):
        for arguments in (("memory", "save", "default", "x"), ("ask", "x", "--wait", "0"), ("chat",)):
            done = bot.run(home, *arguments)
            assert (done.returncode, "is writing to the home" in sentence(done)) == (3, True)


def test_a_client_waits_for_a_daemon_that_is_just_starting(tmp_path: Path, sockets: Path) -> None:
    """The lock names an address that does not answer yet; then the lock is free, and the command is done here."""
    home = tmp_path / "home"
    home.mkdir()
    hold = (
        "import sys\nfrom pathlib import Path\nfrom bubbot.home import Home, WriterLock\n"
        "with WriterLock(Home(Path(sys.argv[1])), sys.argv[2]):\n    print('held', flush=True)\n    sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", hold, str(home), str(sockets / "later.sock")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with bot.opened(home, "memory", "save", "a", "x") as client:
            with pytest.raises(TimeoutError):
                client.process.wait(1.5)
            holder.stdin.write(b"\n")
            holder.stdin.flush()
            assert b"version 1" in client.stdout.read()


def test_a_daemon_whose_socket_was_deleted_has_to_be_started_again_and_status_says_so(
    tmp_path: Path, sockets: Path
) -> None:
    home = tmp_path / "home"
    with daemon(home, sockets):
        (path,) = (sockets / "bubbot").glob("*.sock")
        path.unlink()
        done = inside.run(home, "status", "--wait", "0.3")
        assert (done.returncode, f"Its control socket {path} does not exist" in done.stdout.decode()) == (1, True)
    with daemon(home, sockets):
        assert inside.run(home, "ask", "hello").stdout == b"You said: hello\n"


def test_a_folder_that_others_can_enter_is_not_trusted(tmp_path: Path, sockets: Path) -> None:
    home = tmp_path / "home"
    with daemon(home, sockets):
        (path,) = (sockets / "bubbot").glob("*.sock")
        path.parent.chmod(0o755)
        try:
            done = inside.run(home, "ask", "hello")
            assert (done.returncode, "chmod 700" in sentence(done)) == (2, True)
        finally:
            path.parent.chmod(0o700)
        (tmp_path / "link").symlink_to(path.parent)
        (home / "daemon.lock").write_text(json.dumps({"pid": 1, "address": str(tmp_path / "link" / path.name)}))
        assert "is a link" in sentence(inside.run(home, "ask", "hello"))
