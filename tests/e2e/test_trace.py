"""The trace page as people open it: `bubbot trace` beside no bot, and a daemon that serves it to those with tokens."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from shutil import rmtree
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from bubbot.tape.service import session_tape
from tests.e2e import bot

GIVE_UP = 20.0
SCRIPT = {"default": [{"text": "You said: {text}"}]}


class Browser:
    """Somebody with cookies."""

    def __init__(self) -> None:
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def get(self, address: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The status, and what is shown."""
        try:
            with self._opener.open(Request(address, headers=dict(headers or {})), timeout=GIVE_UP) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which two sessions were talked in."""
    home = tmp_path_factory.mktemp("trace") / "home"
    home.mkdir()
    (home / "script.json").write_text(json.dumps(SCRIPT))
    write_config(home)
    for session, text in (("ours", "the garden"), ("theirs", "the cellar")):
        done = bot.run(home, "ask", "--session", session, text)
        assert done.returncode == 0, done.stderr
    return home


def write_config(home: Path, more: str = "") -> None:
    script = json.dumps(str(home / "script.json"))
    (home / "config.toml").write_text(f'[model]\nname = "scripted"\nscript = {script}\n{more}')


def tape_of(home: Path, session: str) -> str:
    return session_tape(str(home.resolve()), f"stdin:{session}")


@contextmanager
def sockets() -> Iterator[str]:
    """A folder with a short name, as the path of a socket needs it."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        rmtree(path)


def test_a_person_opens_the_page_without_a_bot_and_ends_it_with_ctrl_c(home: Path) -> None:
    write_config(home)
    with closing(sqlite3.connect(home / "bubbot.db")) as database:
        before = database.execute("SELECT max(seq) FROM entries").fetchone()
    with bot.opened(home, "trace", "--no-browser") as opened:
        link = opened.stdout.readline().decode().strip()
        base, _, token = link.partition("/?token=")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", base)
        assert len(token) >= 43
        owner, stranger = Browser(), Browser()
        assert stranger.get(base)[0] == 401
        assert owner.get(base, {"Host": "evil.example"})[0] == 421
        status, page = owner.get(link)
        assert status == 200
        assert "stdin:theirs" in page
        status, page = owner.get(f"{base}/session/{tape_of(home, 'theirs')}")
        assert "the cellar" in page
        status, page = owner.get(f"{base}/session/{tape_of(home, 'theirs')}/timeline")
        (step,) = re.findall(r'href="(/session/[^"]+/step/\d+)"', page)
        assert "byte for byte what was recorded" in owner.get(base + step)[1]
        assert stranger.get(base + step)[0] == 401
        done = bot.run(home, "ask", "--session", "theirs", "meanwhile the attic")
        assert done.returncode == 0, done.stderr  # whoever looks holds nobody up
        assert "the attic" in owner.get(f"{base}/session/{tape_of(home, 'theirs')}/tail?after=3")[1]
        opened.process.send_signal(signal.SIGINT)
        assert opened.process.wait(GIVE_UP) == 0
    with closing(sqlite3.connect(home / "bubbot.db")) as database:
        assert database.execute("SELECT max(seq) FROM entries").fetchone() > before


def test_a_daemon_serves_auditors_and_forgets_who_lost_the_grant(home: Path) -> None:
    write_config(home, '[trace]\nport = 0\nurl = "http://localhost:8"\n')
    with sockets() as folder, bot.opened(home, "run", XDG_RUNTIME_DIR=folder) as opened:
        base = ""
        for line in opened.stderr:
            if b"action=pages.listening" in line:
                port = re.findall(rb"port=(\d+)", line)[0].decode()
                base = f"http://127.0.0.1:{port}"
            if b"action=run.started" in line:
                break
        assert base

        def token(account: str) -> str:
            return bot.run(home, "trace", "--token", account).stdout.decode().strip().partition("token=")[2]

        def change(*arguments: str) -> None:
            done = bot.run(home, "access", *arguments, env={"XDG_RUNTIME_DIR": folder})
            assert done.returncode == 0, done.stderr

        assert Browser().get(f"{base}/?token={token('telegram:43')}")[0] == 401
        auditor, link = Browser(), f"{base}/?token={token('ann')}"
        assert auditor.get(link)[0] == 401
        change("grant-audit", "ann", "stdin:ours")
        status, page = auditor.get(link)
        assert (status, "stdin:ours" in page, "stdin:theirs" in page) == (200, True, False)
        assert auditor.get(f"{base}/session/{tape_of(home, 'theirs')}")[0] == 403
        explained = bot.run(home, "ask", "--session", "ours", ",why", env={"XDG_RUNTIME_DIR": folder}).stdout.decode()
        turn = explained.partition("On the trace page: http://localhost:8")[2].strip()
        assert "the garden" in auditor.get(base + turn)[1]
        change("revoke-audit", "ann", "stdin:ours")
        assert auditor.get(base)[0] == 401
        opened.process.terminate()
        assert opened.process.wait(GIVE_UP) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--token", "Ann!"), "is not an auditor"),
        (("--port", "9" * 5000), "is not a port"),
        (("--token", "ann", "--end-tokens"), "exclude each other"),
    ],
)
def test_a_wrong_option_is_explained(home: Path, arguments: tuple[str, ...], words: str) -> None:
    done = bot.run(home, "trace", *arguments)
    assert done.returncode == 2
    assert words in bot.sentence(done)


def test_a_home_without_tapes_says_what_to_do(tmp_path: Path) -> None:
    done = bot.run(tmp_path / "none", "trace", "--no-browser")
    assert done.returncode == 4
    assert "bubbot chat" in bot.sentence(done)
