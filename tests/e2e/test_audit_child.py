"""The page of an auditor comes from a child that can open one database, with the granted tapes, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from bubbot.app import audit_host
from bubbot.app.audit_host import FOLDER, LIMITS, list_code_folders
from bubbot.features.access.facts import Audit
from bubbot.home import Home
from bubbot.sandbox.sandbox import SandboxKind, SandboxUnusable, choose_sandbox, make_workspace, program_environment
from bubbot.settings.sections import TraceSettings
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.store import Batch
from tests.doubles import CountingSalt, SteppingClock
from tests.isolation.oracle import canaries
from tests.isolation.world import SETTINGS
from tests.trace.home import AUDITED, AUDITOR, OTHER, PROMPT_WORDS, apart, lived, tape_of, words_about
from tests.trace.serving import TraceSite, served

KINDS: tuple[SandboxKind, ...] = ("bwrap", "landlock")
CLOCK = re.compile(r"\d\d:\d\d:\d\d UTC")
"""When an export was written."""
DOORS = Path(__file__).with_name("audit_doors.py")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home where a sandbox has no folder of its own in place of it, as it has for /tmp and /dev."""
    with TemporaryDirectory(prefix="bubbot-audited-", dir="/var/tmp") as folder:
        path = Path(folder) / "home"
        path.mkdir(mode=0o700)
        lived(path)
        yield path


@pytest.fixture
def other() -> Iterator[Path]:
    """A folder of another program, with a socket that answers."""
    with TemporaryDirectory(prefix="bubbot-other-", dir="/var/tmp") as folder:
        yield Path(folder)


@contextmanager
def answering(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> Iterator[int]:
    """Answer whoever connects, or sends something; yield the port."""
    with socket.socket(family, kind) as made:
        made.bind(address)
        if kind == socket.SOCK_STREAM:
            made.listen()

        def answer() -> None:
            with suppress(OSError):
                while True:
                    if kind == socket.SOCK_DGRAM:
                        data, sender = made.recvfrom(9)
                        if not data:
                            return
                        made.sendto(b"y", sender)
                    else:
                        talk, _ = made.accept()
                        with talk:
                            talk.send(b"y")

        threading.Thread(target=answer, daemon=True).start()
        try:
            yield made.getsockname()[1] if family == socket.AF_INET else 0
        finally:
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> SandboxKind:
    found: SandboxKind = request.param
    rules = audit_host.SandboxChoice(found, readable=list_code_folders())
    try:
        asyncio.run(choose_sandbox(rules))
    except Exception as error:  # noqa: BLE001 - some containers allow one of them
        pytest.skip(f"{found} does not work here: {error}")
    return found


@pytest.fixture(scope="module")
def site(home: Path, kind: SandboxKind) -> Iterator[TraceSite]:
    settings = SETTINGS.model_copy(update={"trace": TraceSettings(sandbox=kind)})
    with served(home, settings, serves_auditors=True) as found:
        yield found


def get(site: TraceSite, *paths: str, person: str = AUDITOR) -> list[tuple[int, str]]:
    async def fetch() -> list[tuple[int, str]]:
        found = []
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            async with client.get(site.link(person)):
                pass
            for path in paths:
                async with client.get(site.address + path) as answer:
                    found.append((answer.status, CLOCK.sub("", await answer.text(errors="replace"))))
        return found

    return apart(fetch())


def audited_paths(home: Path) -> list[str]:
    base = f"/session/{tape_of(home, AUDITED.session)}"
    return [
        "/", base, f"{base}/turns", f"{base}/timeline", f"{base}/export?first=1&last=60", f"{base}/panel/deliveries",
        f"{base}/panel/schedule", f"{base}/panel/usage?p.period=all", f"{base}/panel/search?p.words=zq", f"{base}/step/8", f"{base}/entry/3",
        f"{base}/tail?after=0", "/panel/replays",
    ]  # fmt: skip


def databases(home: Path) -> list[Path]:
    return sorted((home / FOLDER).rglob("tapes.db"))


def children(home: Path) -> list[int]:
    """Return the processes of the pages of this home."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if audit_host.CHILD.encode() in words and str(home).encode() in b" ".join(words):
            found.append(int(folder.name))
    return found


def test_the_pages_are_those_of_the_bot_itself(home: Path, site: TraceSite) -> None:
    paths = audited_paths(home)
    shown = get(site, *paths)
    assert [status for status, _ in shown] == [200] * len(paths)
    assert children(home), "a child made them"
    with served(home) as own:
        expected = get(own, *paths)
    for path, (_, ours), (_, its) in zip(paths, shown, expected, strict=True):
        assert ours == its, path
    assert [status for status, _ in get(site, f"/session/{tape_of(home, OTHER.session)}", "/session/x")] == [403, 403]
    assert len(get(site, "/", person="tg:1")[0][1]) > len(shown[0][1]), "the owner sees more, and needs no child"


def test_the_database_has_the_words_of_the_granted_chat_alone(home: Path, site: TraceSite) -> None:
    get(site, "/")
    (database,) = databases(home)
    stored = database.read_bytes().decode("latin-1")
    assert canaries(stored) == apart(words_about(home, AUDITED.session))
    assert not [word for word in PROMPT_WORDS if word in stored]
    assert database.stat().st_mode & 0o777 == 0o600
    assert (home / FOLDER).stat().st_mode & 0o077 == 0


def test_a_killed_child_is_started_again(home: Path, site: TraceSite) -> None:
    get(site, "/")
    for pid in children(home):
        with suppress(ProcessLookupError):  # bubblewrap ends with the first of them
            os.kill(pid, signal.SIGKILL)
    statuses = [status for status, _ in (*get(site, "/"), *get(site, "/"))]
    assert statuses[-1] == 200
    assert set(statuses) <= {200, 500}


def test_a_grant_taken_back_and_new_words_hold_at_the_next_page(home: Path, site: TraceSite) -> None:
    async def write(*batches: Batch) -> None:
        store = await open_store(Home(home).database, salt=CountingSalt(), now=SteppingClock())
        await store.append(batches)
        await store.aclose()

    def decide(*, granted: bool) -> None:
        fact = Audit(channel="", id="bert", session=OTHER.session, by="terminal")
        apart(write(Batch("bubbot/access", (fact.to_entry(Audit.EVENTS[not granted]),))))

    page = f"/session/{tape_of(home, OTHER.session)}"
    decide(granted=True)
    (before,) = get(site, page, person="bert")
    assert before[0] == 200
    (late,) = get(site, f"{page}/entry/1", person="bert")
    assert late[0] == 200
    decide(granted=False)
    (after,) = get(site, page, person="bert")
    assert after[0] == 401, "nobody is let in who sees nothing"


def open_doors(home: Path, kind: SandboxKind, data: Path, other: Path) -> dict[str, str]:
    """Let a program in the sandbox of the child try every door; return what it could do."""
    work = data.parent / "work"
    make_workspace(work)
    (other / "other.txt").write_text("of another program")
    with (
        subprocess.Popen(["sleep", "100"]) as neighbour,
        answering(socket.AF_INET, ("127.0.0.1", 0)) as tcp,
        answering(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM) as udp,
        answering(socket.AF_UNIX, str(other / "socket")),
        answering(socket.AF_UNIX, f"\0bubbot-door-{os.getpid()}"),
    ):
        rules = audit_host.SandboxChoice(kind, readable=list_code_folders())
        sandbox = asyncio.run(choose_sandbox(rules))
        script = work / "doors.py"
        script.write_text(DOORS.read_text(encoding="utf-8"), encoding="utf-8")
        command = sandbox.build_command(
            [sys.executable, "-P", str(script), str(home), str(data), str(other), *map(str, (os.getpid(), neighbour.pid, tcp, udp))],
            work, LIMITS, [*list_code_folders(), str(data)],
        )  # fmt: skip
        done = subprocess.run(
            command, cwd=work, env=program_environment(work), capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        assert neighbour.poll() is None, "nobody ended the other process"
        neighbour.kill()
        assert not (Path("/tmp") / f"door-{os.getpid()}").exists()
        answers: dict[str, str] = json.loads(done.stdout)
        return answers


def test_the_child_can_open_no_other_door(home: Path, site: TraceSite, kind: SandboxKind, other: Path) -> None:
    get(site, "/")
    (database,) = [path for path in databases(home) if sha256(AUDITOR.encode()).hexdigest().startswith(path.parts[-3])]
    (home / "config.toml").write_text("[bot]\n")
    (home / "trace.key").touch()
    (home / "token.secret").write_text("hidden")
    before = {path: path.stat().st_mtime_ns for path in home.iterdir() if path.is_file()}
    answers = open_doors(home, kind, database.parent, other)
    assert answers.pop("read the granted database") == "open", "the doors are tried as the child would"
    assert answers.pop("write into the own folder") == "open"
    assert {door: answer for door, answer in answers.items() if answer == "open"} == {}, answers
    assert len(answers) >= 60
    assert {path: path.stat().st_mtime_ns for path in home.iterdir() if path.is_file()} == before


def test_an_auditor_who_looks_no_more_leaves_no_child_and_no_database(
    home: Path, kind: SandboxKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_host, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(audit_host, "REFRESH_SECONDS", 0.05)
    settings = SETTINGS.model_copy(update={"trace": TraceSettings(sandbox=kind)})
    path = home.parent / f"{home.name}-idle-{kind}"
    path.mkdir()
    for file in ("bubbot.db", "bubbot.db-wal", "bubbot.db-shm"):
        if (home / file).exists():
            (path / file).write_bytes((home / file).read_bytes())
    with served(path, settings, serves_auditors=True) as site:
        assert get(site, "/")[0][0] == 200
        latest = time.monotonic() + 30
        while (databases(path) or children(path)) and time.monotonic() < latest:
            time.sleep(0.05)
        assert (databases(path), children(path)) == ([], [])
    assert not (path / FOLDER).exists()


def test_without_a_sandbox_the_pages_of_auditors_are_refused_with_the_way_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_works(rules: Any) -> Any:
        raise SandboxUnusable("bubblewrap is not installed")

    monkeypatch.setattr(audit_host, "choose_sandbox", none_works)
    with served(home, serves_auditors=True) as site:
        ((status, text),) = get(site, "/")
        assert get(site, "/", person="tg:1")[0][0] == 200
    assert status == 400
    assert "no sandbox works here" in text
    assert "[trace] sandbox" in text
