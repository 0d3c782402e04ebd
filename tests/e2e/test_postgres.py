"""A real bot on a real PostgreSQL server: its tapes move there and back, and the server goes away under it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from bubbot.ports.checks import Finding
from bubbot.stores.files import remove_partials
from tests.e2e import forked
from tests.e2e.bot import environment, run
from tests.e2e.daemon import configured, running, started
from tests.e2e.platforms import MARK
from tests.e2e.small_disk import ROOT_ONLY, small_disk
from tests.e2e.test_status import WATCHED
from tests.fakes.botapi.server import Server
from tests.planting import found, plants
from tests.postgres_server import (
    OWNER,
    OwnServer,
    PostgresServer,
    copied_database,
    own_server,
)

SCRIPT = {"default": [{"text": "You said: {text}", "delay": 0.3}]}
SLOWLY = {"default": [{"text": "You said: {text}", "delay": 60}]}
PASSWORD = "Wa1ru5secret"
ANSWERED = re.compile(r"You said: (m\d\d-\d\d)")


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    with copied_database(postgres_server) as address:
        yield address


@pytest.fixture
async def telegram() -> AsyncIterator[Server]:
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        yield server


def fine(home: Path, *arguments: str) -> str:
    done = run(home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def said(home: Path, *lines: str) -> None:
    for line in lines:
        fine(home, "ask", line)


def let_live_on_of(home: Path, url: str) -> None:
    """Write settings that name a server, and nothing else."""
    (home / "config.toml").write_text(f"[store]\nurl = {json.dumps(url)}\n")


def let_live_on(home: Path, url: str) -> None:
    """Let the settings of a home name a server, or none."""
    settings = re.sub(r"\n\[store\][^\[]*", "", (home / "config.toml").read_text())
    (home / "config.toml").write_text(settings + (f"\n[store]\nurl = {json.dumps(url)}\n" if url else ""))


async def test_a_killed_bot_moves_to_a_server_and_back_and_forgets_nothing(
    tmp_path: Path, database: str, telegram: Server
) -> None:
    """With an open turn, an archive and an erasure. After each move it goes on where it was."""
    home, moved = tmp_path / "home", tmp_path / "moved"
    ann = telegram.user("Ann")
    room = telegram.private(ann)
    configured(home, telegram, SCRIPT, owners=[ann.id])
    said(home, "old words")
    fine(home, "tape", "archive", "default")
    fine(home, "ask", "--session", "other", "a secret")
    fine(home, "ask", "--session", "other", ",reset erase")
    said(home, ",memory.save Likes tea.")
    configured(home, telegram, SLOWLY, owners=[ann.id])
    daemon = await started(home)
    room.say("m01-01")
    await telegram.until(lambda: telegram.calls("sendChatAction"), 60)  # the turn runs
    await daemon.kill()
    configured(home, telegram, SCRIPT, owners=[ann.id])

    told = json.loads(fine(home, "tape", "copy", str(home), database, "--json"))
    assert (told["archives"] >= 2, told["erased"] >= 1, told["forks"]) == (True, True, 1)
    assert "Wa1ru5" not in json.dumps(told)
    let_live_on(home, database)
    assert f"head {told['head']}" in fine(home, "tape", "verify", "--head", told["head"]).replace("; ", "\n")
    async with running(home):
        await telegram.until(lambda: ANSWERED.findall(telegram.transcript(times=False)) == ["m01-01"], 60)
    assert "Likes tea." in fine(home, "memory", "show", "default")

    fine(moved.parent, "tape", "copy", database, str(moved))
    (moved / "config.toml").write_text((home / "config.toml").read_text())
    let_live_on(moved, "")
    async with running(moved):
        room.say("m01-02")
        await telegram.until(lambda: ANSWERED.findall(telegram.transcript(times=False)) == ["m01-01", "m01-02"], 60)
    assert "Likes tea." in fine(moved, "memory", "show", "default")
    assert "0 altered, 0 missing" in fine(moved, "tape", "verify")


@pytest.mark.parametrize("target", ["server", "home"])
def test_a_command_that_is_killed_leaves_nothing_and_begins_again(target: str, tmp_path: Path, database: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    said(home, "hello", ",memory.save Likes tea.")
    place = database if target == "server" else str(tmp_path / "new")
    arguments = ["tape", "copy", str(home), place]
    killed = forked.run("tests.e2e.copy_child:run", arguments, b"", env=environment(home), cwd=tmp_path)
    assert killed.returncode == -9, killed.stderr
    if target == "home":
        assert not (tmp_path / "new" / "bubbot.db").exists()
    told = json.loads(fine(home, "tape", "copy", str(home), place, "--json"))
    assert told["entries"] > 0
    if target == "home":
        assert not list((tmp_path / "new").glob(".partial-*"))
        remove_partials(tmp_path / "new")


def has_lost(home: Path, times: int) -> bool:
    """Return true if the bot has said so often that its server is away."""
    return (home / "errors").read_text().count("server lost") >= times


@pytest.fixture
def breakable() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.mark.parametrize("chats", [pytest.param(4), pytest.param(30, marks=pytest.mark.proof)])
async def test_a_server_that_goes_away_in_mid_turn_loses_and_doubles_nothing(
    chats: int, tmp_path: Path, breakable: OwnServer, telegram: Server
) -> None:
    """It is stopped at once three times; the last time the bot is killed, too, while it is away."""
    home = tmp_path / "home"
    people = [telegram.user(f"P{number}") for number in range(chats)]
    rooms = [telegram.private(person) for person in people]
    # Each is answered alone: of two that wait when the bot starts again only the later one would be named.
    access = {"owners": [people[0].id], "members": [person.id for person in people[1:]]}
    configured(home, telegram, SCRIPT, debounce=0, **access)
    let_live_on(home, breakable.address())
    sent: list[str] = []

    def say(number: int) -> None:
        for chat, room in enumerate(rooms):
            sent.append(f"m{number:02}-{chat:02}")
            room.say(sent[-1])

    def answers() -> list[str]:
        return ANSWERED.findall(telegram.transcript(times=False))

    async def answered() -> None:
        await telegram.until(lambda: {*answers()} == {*sent}, 120)

    daemon = await started(home)
    try:
        say(0)
        await answered()
        for cycle in range(3):
            say(2 * cycle + 1)
            await telegram.until(lambda: len(answers()) > len(sent) - chats, 60)  # others are in mid-turn
            breakable.stop()
            say(2 * cycle + 2)
            await telegram.until(partial(has_lost, home, cycle + 1), 60)
            if cycle == 2:
                await daemon.kill()
            breakable.start()
            if cycle == 2:
                daemon = await started(home)
            await answered()
        await daemon.quiet(telegram)
        assert await daemon.end() == 0, daemon.errors
    finally:
        if daemon.process.returncode is None:
            await daemon.kill()
    texts = [text for room in rooms for text in room.texts(telegram.bot.user)]
    # Telegram cannot tell whether what was sent before the kill arrived: such a part comes again, and says so.
    again = {*ANSWERED.findall("\n".join(text for text in texts if MARK.search(text)))}
    assert again <= {*sent[-2 * chats :]}
    counted = Counter(ANSWERED.findall("\n".join(text for text in texts if not MARK.search(text))))
    assert {*sent} - counted.keys() - again == set()
    assert {text: times for text, times in counted.items() if times > 1} == {}
    assert "0 altered, 0 missing" in fine(home, "tape", "verify")


def test_passwords_come_from_a_file_a_credential_or_pgpassfile_and_are_printed_nowhere(
    tmp_path: Path, breakable: OwnServer
) -> None:
    with psycopg.connect(breakable.address(), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE me LOGIN CREATEROLE PASSWORD '{PASSWORD}'")
        conn.execute("CREATE DATABASE tapes OWNER me")
        rules = breakable.folder / "data" / "pg_hba.conf"
        rules.write_text("local all me scram-sha-256\nlocal all all trust\n")
        conn.execute("SELECT pg_reload_conf()")
    plain = breakable.address("tapes", "me")
    secret = plain.replace("//me@", f"//me:{PASSWORD}@")
    homes = {name: tmp_path / name for name in ("file", "credential", "passfile", "wrong")}
    for home in homes.values():
        home.mkdir(mode=0o700)
    ways: dict[str, dict[str, str]] = {name: {} for name in homes}

    written = homes["file"] / "url"
    written.write_text(secret)
    written.chmod(0o600)
    (homes["file"] / "config.toml").write_text(f"[store]\nurl_file = {json.dumps(str(written))}\n")
    (tmp_path / "credentials").mkdir(mode=0o700)
    (tmp_path / "credentials" / "store.url").write_text(secret)
    ways["credential"] = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    let_live_on_of(homes["passfile"], plain)
    (tmp_path / "pass").write_text(f"*:*:tapes:me:{PASSWORD}\n")
    (tmp_path / "pass").chmod(0o600)
    ways["passfile"] = {"PGPASSFILE": str(tmp_path / "pass")}
    let_live_on_of(homes["wrong"], secret.replace(PASSWORD, f"{PASSWORD}2"))
    for name, home in homes.items():
        commands = [["ask", "hello"], ["doctor", "--offline"], ["backup", str(home / "copy")]]
        for command in commands:
            done = run(home, *command, env=ways[name])
            assert PASSWORD.encode() not in done.stdout + done.stderr
            if command[0] != "doctor":
                assert (done.returncode == 0) == (name != "wrong"), done.stderr.decode()
        assert PASSWORD not in "".join(path.read_text() for path in home.glob("copy/manifest.json"))
    assert "password authentication failed" in run(homes["wrong"], "tape", "list").stderr.decode()


@ROOT_ONLY
@plants("server.full")
async def test_a_full_disk_of_the_server_holds_everything_until_there_is_room(
    tmp_path: Path, breakable: OwnServer, telegram: Server
) -> None:
    home = tmp_path / "home"
    ann = telegram.user("Ann")
    room = telegram.private(ann)
    configured(home, telegram, SCRIPT, owners=[ann.id])
    with small_disk(breakable.folder / "disk", 24) as disk:
        place = disk.path / "tapes"
        place.mkdir()
        disk.path.chmod(0o755)
        breakable.take(place)
        with psycopg.connect(breakable.address(), autocommit=True) as conn:
            conn.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
            conn.execute("CREATE DATABASE tapes TABLESPACE small")
        let_live_on(home, breakable.address("tapes"))
        async with running(home, env=WATCHED) as daemon:
            room.say("m01-00")
            await telegram.until(lambda: ANSWERED.findall(telegram.transcript(times=False)) == ["m01-00"], 60)
            disk.fill()
            for number in range(1, 4):
                room.say(f"m01-{number:02} {'x' * 3000}")
            await telegram.until(lambda: "store.full" in daemon.errors, 60)
            done = await asyncio.to_thread(run, home, "doctor", "--offline", "--json")
            told = found(Finding(**one) for one in json.loads(done.stdout)["findings"])
            assert "waits for room on the disk of the PostgreSQL server" in told["server.full"].cause
            assert "disk.full" not in told
            disk.free()
            await telegram.until(lambda: "m01-03" in "".join(room.texts(telegram.bot.user)), 60)
            await daemon.quiet(telegram)
        kept = fine(home, "tape", "show", f"telegram:{room.id}", "--json")
        assert all(f"m01-{number:02} xxx" in kept for number in range(1, 4)), "three messages, joined in one turn"
        breakable.stop()
    said_there = re.sub(r"\(to Ann: [^)]*\)", "", "".join(room.texts(telegram.bot.user)))
    assert (said_there.count("m01-00"), said_there.count("m01-03")) == (1, 1)


@pytest.fixture
def another_database(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty one, without bubbot's tables."""
    name = f"restored_{os.getpid()}"
    with psycopg.connect(postgres_server.address(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} OWNER {OWNER}")
        try:
            yield postgres_server.address(name, OWNER)
        finally:
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


def dump(server: PostgresServer, *words: str) -> None:
    """Run `pg_dump` or `pg_restore` of the server."""
    program, *arguments = words
    done = subprocess.run([f"{server.programs}/{program}", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_dump_is_checked_against_the_backup_and_goes_into_quarantine(
    tmp_path: Path, postgres_server: PostgresServer, database: str, another_database: str
) -> None:
    home, new = tmp_path / "home", tmp_path / "new"
    home.mkdir()
    (home / "who.md").write_text("You are Bo.")
    (home / "config.toml").write_text('[bot]\npersona_file = "who.md"\n')
    let_live_on(home, database)
    said(home, "hello", ",memory.save Likes tea.")
    told = fine(home, "backup", str(tmp_path / "copy"))
    command = shlex.split(next(line for line in told.splitlines() if "pg_dump" in line).partition(": ")[2])
    assert command[:3] == ["pg_dump", "--format", "custom"]
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_text())
    assert (manifest["format"], sorted(manifest["files"])) == (2, ["config.toml", "who.md"])
    assert f"head {manifest['deployment_head']}" in told
    dump(postgres_server, *command, "--username", OWNER)
    said(home, "later")  # after the dump
    told = fine(home, "backup", str(tmp_path / "later"))

    dump(postgres_server, "pg_restore", "--dbname", another_database, str(tmp_path / "copy" / "bubbot.dump"))
    new.mkdir()
    let_live_on_of(new, another_database)
    done = run(new, "restore", str(tmp_path / "later"))
    assert done.returncode == 5
    assert "is of an older day than the backup" in done.stderr.decode()
    told = fine(new, "restore", str(tmp_path / "copy"))
    assert "verified" in told
    assert "It is in quarantine" in told
    assert (new / "who.md").read_text() == "You are Bo."
    assert f"{new / 'config.toml'} was there already" in told.replace("\n", " ")
    assert "Likes tea." in fine(new, "memory", "show", "default")
    assert "0 altered, 0 missing" in fine(new, "tape", "verify", "--head", manifest["deployment_head"])
    fine(new, "restore", "--release")
    said(new, "hello again")
    assert "has 1" not in fine(new, "tape", "verify")

    done = run(new, "restore", str(tmp_path / "later"))  # it has gone on elsewhere
    assert (done.returncode, "is not the one of the backup" in done.stderr.decode()) == (5, True)
    (tmp_path / "copy" / "who.md").write_text("You are Bob.")
    assert "who.md is not what its manifest says" in run(new, "restore", str(tmp_path / "copy")).stderr.decode()


def test_backups_of_a_file_and_of_a_server_are_told_apart(tmp_path: Path, database: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    said(home, "hello")
    fine(home, "backup", str(tmp_path / "of-file"))
    let_live_on_of(home, database)
    said(home, "hello")
    fine(home, "backup", str(tmp_path / "of-server"))
    assert "holds a database of SQLite" in run(home, "restore", str(tmp_path / "of-file")).stderr.decode()
    done = run(tmp_path / "new", "restore", str(tmp_path / "of-server"))
    assert (done.returncode, "let pg_restore make a database of its dump" in done.stderr.decode()) == (2, True)
