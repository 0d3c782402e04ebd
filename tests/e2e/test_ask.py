"""`bubbot ask`: what goes with a question, in a process of its own, through the daemon and through a chat."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from bubbot.home import Home, WriterLock
from tests.e2e import forked
from tests.e2e.bot import entries, environment, opened, run, sentence
from tests.e2e.terminal import Terminal
from tests.e2e.test_control import daemon, named, until

OTHER_MODEL = {"BUBBOT_MODEL__NAME": "openai/gpt-5-mini"}
"""Not set up: only a question that names another model is answered."""


@pytest.fixture(params=["alone", "daemon", "chat"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A home whose questions are answered in the process of `ask`, by a daemon, or by a chat."""
    sockets = Path(tempfile.mkdtemp())
    home = tmp_path / "home"
    places: dict[str, Any] = {"daemon": lambda: daemon(home, sockets), "chat": lambda: _chat(home, sockets)}
    try:
        with places.get(request.param, nullcontext)():
            yield home
    finally:
        rmtree(sockets)


@contextmanager
def _chat(home: Path, sockets: Path, **env: str) -> Iterator[None]:
    """A chat that stays open, in another session."""
    with opened(home, "chat", "--session", "open", XDG_RUNTIME_DIR=str(sockets), **env) as chat:
        chat.type("hello")
        assert chat.stdout.readline() == b"You said: hello\n"
        yield
        chat.stdin.close()
        assert chat.process.wait(20) == 0


@pytest.mark.sampled(2)
def test_text_that_is_piped_in_stands_before_the_question(place: Path) -> None:
    done = run(place, "ask", "what went wrong?", lines="one\ntwo\n")
    assert (done.returncode, done.stdout.decode()) == (0, "You said: one\ntwo\n\nwhat went wrong?\n")
    assert run(place, "ask", lines="all of it\n").stdout == b"You said: all of it\n"


@pytest.mark.sampled(2)
def test_files_go_with_the_question_by_path_and_by_standard_input(place: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    done = run(place, "ask", "read these", "-a", str(tmp_path / "notes.txt"), "-a", "-", lines="and bread\n")
    printed = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert printed.startswith("You said: read these\n")
    assert (
        printed.index("[file notes.txt, text/plain, 9 bytes") < printed.index("buy milk") < printed.index("and bread")
    )


@pytest.mark.sampled(2)
def test_on_a_terminal_it_prints_the_answer_and_no_prompt(place: Path) -> None:
    with Terminal(place, "ask", "hello", first="You said: hello") as terminal:
        assert terminal.ended() == 0
        assert terminal.sent == "You said: hello\r\n"


@pytest.mark.sampled(2)
def test_a_model_and_instructions_are_for_one_question(place: Path) -> None:
    done = run(place, "ask", "-m", "scripted", "-s", "Answer in rhymes.", "hello")
    assert (done.returncode, done.stdout) == (0, b"You said: hello\n"), done.stderr
    run(place, "ask", "again")
    told = entries(place)
    chosen = [entry["payload"]["data"] for entry in told if entry["payload"].get("name") == "model/chosen"]  # type: ignore[index,attr-defined]
    assert chosen == [{"model": "scripted"}]
    systems = [entry["payload"]["digest"] for entry in told if entry["kind"] == "system"]  # type: ignore[index]
    assert len(set(systems)) == 2


def test_the_model_of_one_question_leaves_that_of_its_session_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run(home, "ask", "-m", "scripted", "hello", env=OTHER_MODEL).stdout == b"You said: hello\n"
    assert b"openai/gpt-5-mini" in run(home, "ask", ",model", env=OTHER_MODEL).stdout
    assert run(home, "ask", "hello", env=OTHER_MODEL).returncode == 1


@pytest.mark.sampled(2)
def test_an_unknown_model_is_refused_before_anything_is_stored(place: Path) -> None:
    done = run(place, "ask", "-m", "nowhere/x", "hello")
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence(done).startswith("bubbot: -m nowhere/x: ")
    assert "nowhere" not in run(place, "tape", "show", "stdin:default").stdout.decode()


@pytest.mark.sampled(2)
def test_four_questions_at_once_are_all_answered(place: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: run(place, "ask", f"number {number}"), range(4)))
    assert [one.stdout.decode() for one in done] == [f"You said: number {number}\n" for number in range(4)]
    assert [one.returncode for one in done] == [0] * 4


def test_the_wait_for_a_writer_is_announced_and_has_an_end(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.ensure()
    with WriterLock(home):
        done = run(home.path, "ask", "hello", "--wait", "0.5")
        now = run(home.path, "ask", "hello", "--wait", "0")
    first, second = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (3, b"")
    assert f"process {os.getpid()} is writing to this home; waiting for it, 0.5 seconds at most" in first
    assert (now.returncode, sentence(now)) == (3, second)


BAD_FILES = [
    ("folder", "is a folder"),
    ("missing", "cannot be read (No such file"),
    ("large", "larger than 20.0 MB"),
    ("https://example.org/a", "is a URL"),
    ("", "-a is empty"),
    ("/dev/zero", "is not a regular file"),
]


@pytest.mark.parametrize(("name", "reason"), BAD_FILES)
def test_a_file_that_cannot_be_sent_is_refused_in_one_sentence(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(20_000_001)
    done = run(tmp_path / "home", "ask", "look", "-a", name)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, b"", 1)
    assert reason in sentence(done)
    assert not (tmp_path / "home" / "bubbot.db").exists()


@pytest.mark.parametrize(
    ("arguments", "lines", "reason"),
    [
        ((), b"", "the message is empty"),
        (("",), b"", "the message is empty"),
        ((" ",), b"\n \n", "the message is empty"),
        (("look",), b"a\xffb", "standard input is not valid UTF-8 (byte 2)"),
        (("-", "-a", "-"), b"x", "standard input can be read once only"),
        (("look", "-a", "-", "-a", "-"), b"x", "standard input can be read once only"),
        (("look", "--wait", "soon"), b"", "'soon' is not a number of seconds"),
    ],
)
def test_unusable_input_is_refused_in_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], lines: bytes, reason: str
) -> None:
    done = run(tmp_path / "home", "ask", *arguments, lines=lines)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, b"", 1)
    assert reason in sentence(done)


def test_binary_input_is_a_file(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "ask", "look", "-a", "-", lines=bytes(range(256)))
    assert (done.returncode, b"256 bytes" in done.stdout) == (0, True)


def test_a_failed_turn_prints_json_for_programs(tmp_path: Path) -> None:
    script = tmp_path / "broken.json"
    script.write_text(json.dumps({"default": [{"error": "unavailable", "message": "the provider is down"}]}))
    done = run(tmp_path / "home", "ask", "--json", "hello", env={"BUBBOT_MODEL__SCRIPT": str(script)})
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed")


@pytest.mark.sampled(2)
def test_a_lost_answer_is_one_sentence_and_the_next_question_does_not_print_it(place: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = forked.run(
            forked.BOT, ["ask", "hello"], b"", env=environment(place), cwd=place.parent, stdout=full.fileno()
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert b"The output could not be written: No space left on device" in done.stderr
    assert run(place, "ask", "next").stdout == b"You said: next\n"


@pytest.mark.sampled(2)
def test_a_reader_that_stops_is_no_failure(place: Path) -> None:
    shown, given = os.pipe()

    def read_some() -> bytes:
        """As `head -c 10` does."""
        with os.fdopen(shown, "rb", buffering=0) as reader:
            return reader.read(10)

    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(read_some)
        try:
            question = b"x" * 400_000
            done = forked.run(
                forked.BOT, ["ask", "-"], question, env=environment(place), cwd=place.parent, stdout=given
            )
        finally:
            os.close(given)
        assert (done.returncode, read.result(), done.stderr) == (0, b"You said: ", b"")


def test_a_daemon_that_is_killed_during_a_question_is_one_sentence_and_answers_after_its_start(tmp_path: Path) -> None:
    home, script, sockets = tmp_path / "home", tmp_path / "slow.json", Path(tempfile.mkdtemp())
    script.write_text(json.dumps({"default": [{"delay": 600, "text": "late"}]}))
    try:
        with daemon(home, sockets, BUBBOT_MODEL__SCRIPT=str(script)) as process, opened(home, "ask", "hello") as asked:
            asked.stdin.close()
            until(lambda: named(home, "inbox/received") != [])
            process.kill()
            assert asked.stdout.read() == b""
            (line,) = asked.stderr.read().decode().splitlines()
            assert line.startswith("bubbot: The other end of the control connection is gone.")
            assert asked.process.wait(20) == 1
        assert run(home, "ask", "and now").stdout == b"You said: and now\n"
        assert "You said: hello" in str(entries(home))
    finally:
        rmtree(sockets)
