"""`bubbot backup`, `bubbot restore` and `bubbot tape gc` as commands: beside a daemon, killed, and on a full disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bubbot.stores.sqlite.backups import list_backups
from bubbot.stores.sqlite.restore import verify_backup
from bubbot.stores.sqlite.schema import MIGRATIONS
from tests.e2e import forked
from tests.e2e.bot import environment, sentence
from tests.e2e.inside import run, said
from tests.e2e.test_control import daemon, sockets
from tests.e2e.test_json import check

__all__ = ["sockets"]
KILLED = -9
PERSONA = "who.md"
"""Beside the settings."""


def fine(home: Path, *arguments: str, **how: Any) -> str:
    """What a command prints that goes well."""
    done = run(home, *arguments, **how)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def child(home: Path, point: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command that is killed at a point, or has a small disk: see backup_child.py."""
    return forked.run("tests.e2e.backup_child:run", [point, *arguments], b"", env=environment(home), cwd=home.parent)


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with settings, a persona and a conversation."""
    made = tmp_path_factory.mktemp("conversation") / "home"
    made.mkdir(mode=0o700)
    (made / "who.md").write_text("You are Bo.")
    (made / "key").write_text("sk-secret")
    (made / "config.toml").write_text(f"[bot]\npersona_file = {json.dumps(PERSONA)}\n")
    said(made, "hello", ",memory.save Likes tea.")
    return made


@pytest.fixture
def home(conversation: Path, tmp_path: Path) -> Path:
    """A copy of it; nothing is open there."""
    return Path(shutil.copytree(conversation, tmp_path / "home"))


def test_a_backup_has_all_but_secrets_and_is_told_as_json(home: Path) -> None:
    told = json.loads(fine(home, "backup", "--json"))
    [found] = list_backups(home)
    assert (told["path"], told["head"], told["size"]) == (str(found.path), found.head, found.size)
    assert told["files"] == ["bubbot.db", "config.toml", "who.md"]
    assert not any("sk-secret" in path.read_text(errors="replace") for path in found.path.iterdir())
    assert f"head {found.head}" in fine(home, "tape", "verify", "--head", found.head).replace("; ", "\n")
    told = json.loads(fine(home, "backup", "--json", "--keep", "1"))
    assert told["removed"] == [str(found.path)]
    assert [one.path for one in list_backups(home)] == [Path(told["path"])]


def test_a_restored_home_is_the_same_bot_under_another_path(home: Path, tmp_path: Path) -> None:
    fine(home, "backup", str(tmp_path / "copy"))
    new = tmp_path / "new"
    told = fine(new, "restore", str(tmp_path / "copy"))
    assert "verified" in told
    assert (new / "who.md").read_text() == "You are Bo."
    assert "Likes tea." in fine(new, "memory", "show", "default")
    assert "0 altered, 0 missing" in fine(new, "tape", "verify")
    assert {"bubbot.db", "config.toml"} < {path.name for path in new.iterdir()}
    assert not [path.name for path in new.iterdir() if path.name.startswith(".")]
    again = run(new, "restore", str(tmp_path / "copy"))
    assert (again.returncode, "holds bubbot.db" in sentence(again)) == (2, True)


def test_a_bot_whose_database_was_removed_begins_no_other_one_unasked(home: Path, sockets: Path) -> None:
    """From the loss under the running bot to the restored one; and then the other way out."""
    database, [backup] = home / "bubbot.db", json.loads(fine(home, "backup", "--json"))["path"].split()
    with daemon(home, sockets):
        fine(home, "ask", "newest", env={"XDG_RUNTIME_DIR": str(sockets)})
        content = database.read_bytes()
        database.unlink()
    for command in (("run",), ("ask", "hello"), ("tape", "list"), ("backup",), ("tape", "repair")):
        done = run(home, *command)
        assert done.returncode == 5
        assert sentence(done) == (
            f"bubbot: the database {database} is missing, and this home had one: put the file back, or restore a backup "
            f"(`bubbot --home {home} restore {backup}`), or begin with an empty one (`bubbot --home {home} restore --empty`)"
        )
    assert f"none can: the database {database} is missing" in run(home, "status").stdout.decode()
    assert f"newest backup   {Path(backup).name}" in run(home, "status").stdout.decode()
    assert f"No bot starts for this home yet: the database {database} is missing" in fine(home, "init", "--yes")
    assert not database.exists()

    told = fine(home, "restore", backup)
    [remains] = home.glob("lost-database-*")
    assert f"What the missing database left is in {remains}; if you find that database, put it beside it." in told
    assert "Likes tea." in fine(home, "memory", "show", "default")
    assert "newest" not in fine(home, "tape", "show", "default")
    (remains / "bubbot.db").write_bytes(content)  # found again
    assert "newest" in fine(remains, "tape", "show", "default")

    database.write_bytes(b"")
    mark = home / "had-database"
    mark.unlink()
    mark.mkdir()
    stuck = run(home, "restore", "--empty")
    assert (stuck.returncode, f"{mark} cannot be removed" in sentence(stuck)) == (2, True)
    assert run(home, "ask", "hello").returncode == 5
    mark.rmdir()
    mark.touch()
    [result] = check("restore empty", run(home, "restore", "--empty", "--json"))
    assert result["home"] == str(home)
    assert fine(home, "ask", "hello") == "You said: hello\n"
    assert "Likes tea." not in fine(home, "memory", "show", "default")
    refused = run(home, "restore", "--empty")
    assert (refused.returncode, "lacks no database" in sentence(refused)) == (2, True)


def test_a_bot_whose_database_is_an_older_copy_goes_on_only_if_told_to(home: Path, tmp_path: Path) -> None:
    """What was sent and done since then looks open in it, so it goes on in quarantine; or a backup takes its place."""
    database, older = home / "bubbot.db", (home / "bubbot.db").read_bytes()
    assert fine(home, "ask", "newest") == "You said: newest\n"
    [backup] = json.loads(fine(home, "backup", "--json"))["path"].split()
    assert fine(home, "ask", "newer than the backup")
    newest = int(fine(home, "tape", "verify").rpartition("head ")[2].partition(":")[0])
    database.write_bytes(older)
    for command in (
        ("run",),
        ("ask", "hello"),
        ("tape", "list"),
        ("backup",),
        ("tape", "repair"),
        ("restore", "--release"),
    ):
        done = run(home, *command)
        assert done.returncode == 5
        assert f"the database {database} ends with entry " in sentence(done)
        assert f", and this home had {newest}: its newest entries are missing" in sentence(done)
        assert f"(`bubbot --home {home} restore {backup}`)" in sentence(done)
        assert sentence(done).endswith(f"or go on with what it holds (`bubbot --home {home} restore --accept-loss`)")
    assert "none can: the database" in run(home, "status").stdout.decode()
    assert database.read_bytes() == older

    other = Path(shutil.copytree(home, tmp_path / "other"))
    fine(other, "restore", backup)
    [remains] = other.glob("lost-database-*")
    assert (remains / "bubbot.db").read_bytes() == older
    assert "newest" in fine(other, "tape", "show", "default")

    [result] = check("restore accept-loss", run(home, "restore", "--accept-loss", "--json"))
    assert result["home"] == str(home)
    assert result["lost"].startswith(f"ends with entry {result['newest']}, and this home had {newest}:")
    fact = fine(home, "tape", "show", "bubbot/home", "--json")
    assert "home/restored" in fact
    assert f"and this home had {newest}" in fact
    assert run(home, "status").returncode == 1
    assert "quarantine" in run(home, "doctor").stdout.decode()
    assert "newest" not in fine(home, "tape", "show", "default")
    fine(home, "restore", "--release")
    assert fine(home, "ask", "hello") == "You said: hello\n"
    refused = run(home, "restore", "--accept-loss")
    assert (refused.returncode, "lacks no entries" in sentence(refused)) == (2, True)
    database.unlink()
    refused = run(home, "restore", "--accept-loss")
    assert (refused.returncode, "there is nothing to go on with" in sentence(refused)) == (2, True)


def test_a_home_whose_loss_is_accepted_half_way_is_still_refused(home: Path) -> None:
    """Killed before the quarantine is recorded, it must not go on as if nothing were wrong."""
    older = (home / "bubbot.db").read_bytes()
    fine(home, "ask", "newest")
    (home / "bubbot.db").write_bytes(older)
    killed = child(home, "bubbot.cli.restore:timestamp", "restore", "--accept-loss")
    assert killed.returncode == KILLED
    assert run(home, "ask", "hello").returncode == 5
    fine(home, "restore", "--accept-loss")
    assert "quarantine" in run(home, "doctor").stdout.decode()


def test_a_restore_that_cannot_mark_the_home_puts_no_database_there(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark names an entry that the backup lacks: the restored home would be refused as one that lost it."""
    copy, older = str(tmp_path / "copy"), (home / "bubbot.db").read_bytes()
    fine(home, "backup", copy)
    fine(home, "ask", "newest")
    (home / "bubbot.db").write_bytes(older)
    with monkeypatch.context() as patched:
        patched.setattr("bubbot.home.Home.mark_database", lambda *_: None)  # a full disk
        failed = run(home, "restore", copy)
    assert (failed.returncode, "had-database cannot be written" in sentence(failed)) == (2, True)
    assert not (home / "bubbot.db").exists()
    fine(home, "restore", copy)
    assert "Likes tea." in fine(home, "memory", "show", "default")


@pytest.mark.parametrize("place", ["bubbot.db", "bubbot.db-wal"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_in_place_of_the_database_is_named_at_once(home: Path, place: str, make: Any) -> None:
    """A container makes a folder of what it cannot mount; SQLite waits for a pipe for ever."""
    (home / place).unlink(missing_ok=True)
    make(home / place)
    for command in (("run",), ("ask", "hello"), ("status",), ("tape", "list"), ("backup",), ("tape", "repair")):
        done = run(home, *command)
        assert done.returncode == 4
        assert f"{home / place} is {'a folder' if make is Path.mkdir else 'not a regular file'}" in sentence(done)
        assert f"(`mv {home / place} {home / place}.old`)" in sentence(done)
    assert f"No bot starts for this home yet: {home / place} is " in fine(home, "init", "--yes")
    assert f"mv {home / place} {home / place}.old" in run(home, "doctor").stdout.decode()


def test_a_restore_that_fails_half_way_leaves_a_home_that_knows_of_its_loss(home: Path, tmp_path: Path) -> None:
    """A home of a version that left no mark knows of it by the write-ahead log alone, which is set aside first."""
    copy, lost = str(tmp_path / "copy"), tmp_path / "lost"
    (home / "people").mkdir()
    (home / "who.md").rename(home / "people" / "who.md")
    (home / "config.toml").write_text('[bot]\npersona_file = "people/who.md"\n')
    fine(home, "backup", copy)
    lost.mkdir()
    (lost / "bubbot.db-wal").write_bytes(b"the newest entries")
    (lost / "people").write_text("in the way of the folder")
    failed = run(lost, "restore", copy)
    assert failed.returncode != 0
    assert str(lost / "people") in sentence(failed)
    [remains] = lost.glob("lost-database-*")
    assert (remains / "bubbot.db-wal").read_bytes() == b"the newest entries"
    assert run(lost, "ask", "hello").returncode == 5, "no other database is begun"
    (lost / "people").unlink()
    (lost / "bubbot.db").write_bytes(b"")  # is no database that a restore would replace
    fine(lost, "restore", copy)
    assert "Likes tea." in fine(lost, "memory", "show", "default")


def test_a_persona_from_elsewhere_comes_along_and_its_place_is_told(home: Path, tmp_path: Path) -> None:
    (home / "who.md").rename(tmp_path / "who.md")
    (home / "config.toml").write_text(f"[bot]\npersona_file = {json.dumps(str(tmp_path / 'who.md'))}\n")
    fine(home, "backup", str(tmp_path / "copy"))
    (tmp_path / "who.md").unlink()
    told = fine(tmp_path / "new", "restore", str(tmp_path / "copy"))
    assert f"who.md was at {tmp_path / 'who.md'}: put it there, or change" in told
    assert (tmp_path / "new" / "who.md").read_text() == "You are Bo."


def test_a_backup_takes_no_other_backup_in(home: Path, tmp_path: Path) -> None:
    fine(home, "backup", str(tmp_path / "copy"))
    before = sorted(path.name for path in (tmp_path / "copy").iterdir())
    refused = run(home, "backup", str(tmp_path / "copy"))
    assert (refused.returncode, b"is a backup itself: name the folder that contains it" in refused.stderr) == (2, True)
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == before
    assert fine(home, "backup", str(tmp_path))


def test_files_that_are_there_are_kept(home: Path, tmp_path: Path) -> None:
    fine(home, "backup", str(tmp_path / "copy"))
    new = tmp_path / "new"
    new.mkdir()
    (new / "config.toml").write_text("[log]\n")
    assert "config.toml was there already and is kept" in fine(new, "restore", str(tmp_path / "copy"))
    assert (new / "config.toml").read_text() == "[log]\n"


def test_nothing_is_written_for_a_backup_that_was_altered(home: Path, tmp_path: Path) -> None:
    fine(home, "backup", str(tmp_path / "copy"))
    with (tmp_path / "copy" / "who.md").open("a") as file:
        file.write("!")
    done = run(tmp_path / "new", "restore", str(tmp_path / "copy"))
    assert (done.returncode, "altered: who.md" in sentence(done)) == (5, True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", [("restore",), ("restore", "x", "--release"), ("restore", "x", "--deliver"),
                                       ("restore", "x", "--empty"),
                                       ("backup", "x", "--keep", "1"), ("backup", "home/config.toml")])  # fmt: skip
def test_what_makes_no_sense_is_refused(home: Path, arguments: tuple[str, ...]) -> None:
    done = run(home, *arguments)
    assert done.returncode == 2
    assert sentence(done)
    assert list_backups(home) == []


AT = (
    "bubbot.stores.sqlite.backups:copy_database",
    "bubbot.stores.sqlite.backups:write_file",
    "bubbot.stores.files:sync_tree",
)


@pytest.mark.parametrize("point", AT)
def test_a_killed_backup_leaves_nothing_that_looks_like_one_and_the_next_removes_it(home: Path, point: str) -> None:
    assert child(home, point, "backup").returncode == KILLED
    [left] = (home / "backups").iterdir()
    assert left.name.startswith(".partial-")
    assert list_backups(home) == []
    fine(home, "backup")
    assert [path.name for path in (home / "backups").iterdir()] == [one.path.name for one in list_backups(home)]


@pytest.mark.parametrize(
    "point",
    [
        "bubbot.stores.sqlite.restore:copy_file",
        "bubbot.stores.sqlite.restore:sync_tree",
        "bubbot.stores.sqlite.restore:sync",
    ],
)
def test_a_killed_restore_leaves_no_database_and_the_next_one_is_whole(home: Path, tmp_path: Path, point: str) -> None:
    fine(home, "backup", str(tmp_path / "copy"))
    new = tmp_path / "new"
    assert child(new, point, "restore", str(tmp_path / "copy")).returncode == KILLED
    assert not (new / "bubbot.db").exists()
    fine(new, "restore", str(tmp_path / "copy"))
    assert "home/restored" in fine(new, "tape", "show", "bubbot/home")
    assert not [path for path in new.iterdir() if path.name.startswith(".")]


def test_on_a_full_disk_the_part_is_removed_and_a_sentence_says_so(home: Path) -> None:
    done = child(home, "limit:50000", "backup")
    assert (done.returncode, "no room for the backup" in sentence(done)) == (4, True)
    assert list((home / "backups").iterdir()) == []
    done = child(home, "limit:50000", "backup", "copy")
    assert done.returncode == 4
    assert not [path for path in home.parent.iterdir() if path != home]


def test_beside_a_daemon_backups_are_made_and_garbage_is_collected(home: Path, tmp_path: Path, sockets: Path) -> None:
    with daemon(home, sockets):
        said(home, "first", session="work")
        fine(home, "tape", "archive", "work")
        fine(home, "backup", str(tmp_path / "copy"))
        said(home, "second", session="work")
        assert "erased: 0" in fine(home, "tape", "gc")
        assert ": 1, with" in fine(home, "tape", "gc", "--older", "0", "--dry-run")
        assert "erased: 1, with" in fine(home, "tape", "gc", "--older", "0")
        assert "erased: 0, with" in fine(home, "tape", "gc", "--older", "0")
        assert "second" in fine(home, "tape", "show", "work")
        inbox = fine(home, "tape", "show", "bubbot/inbox/stdin")
        assert ("first" in inbox, "second" in inbox) == (False, True)
        assert "0 altered, 0 missing" in fine(home, "tape", "verify")
        sizes = json.loads(fine(home, "tape", "size", "--json"))
        assert {"stdin:default", "stdin:work"} <= {one["session"] for one in sizes["tapes"]}
    assert verify_backup(tmp_path / "copy").database.version == len(MIGRATIONS)
    fine(tmp_path / "new", "restore", str(tmp_path / "copy"))
    archive = next(one["name"] for one in sizes["tapes"] if "@" in one["name"])
    assert "first" in fine(tmp_path / "new", "tape", "show", archive)


def test_a_backup_with_secrets_in_its_configuration_says_so(home: Path, tmp_path: Path) -> None:
    assert "No secrets are in it" in fine(home, "backup", str(tmp_path / "without"))
    token, password = "12345678:" + "a" * 35, "p4ssw0rd"
    text = f'[model]\napi_base = "http://me:{password}@localhost/v1"\n[channels.telegram]\ntoken = "{token}"\n'
    (home / "config.toml").write_text(text)
    told = fine(home, "backup", str(tmp_path / "with"))
    assert "config.toml holds secrets (model.api_base, channels.telegram.token), and so does this backup" in told
    assert json.loads(fine(home, "backup", "--json"))["secrets"] == [
        "model.api_base",
        "channels.telegram.token",
    ]
    assert token not in told
    assert password not in told
