"""What the doctor finds: each fault is planted, found under its id, and told with a cause and a command."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from bubbot.doctor.checkup import examine
from bubbot.doctor.config import read_config
from bubbot.doctor.database import check_database
from bubbot.doctor.finding import Finding
from bubbot.doctor.home import check_disk, check_home, check_lock
from bubbot.doctor.plugins import check_model, check_plugins
from bubbot.doctor.system import check_litellm, check_python, check_sqlite
from bubbot.home import Home, WriterLock
from bubbot.models import local
from bubbot.settings import ModelSettings, Settings
from bubbot.stores.sqlite import SqliteStore
from tests.docs.pages import ROOT
from tests.doubles import START
from tests.raw import raw, tamper
from tests.tapes import batch, note


@pytest.fixture
def home(tmp_path: Path, new_database: Path) -> Home:
    """A home with an empty database, as a first chat leaves it."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    shutil.copy(new_database, path / "bubbot.db")
    return Home(path)


def found(findings: Iterable[Finding]) -> dict[str, Finding]:
    made = list(findings)
    for one in made:
        assert (one.fix == "") == (one.level == "ok"), f"{one.id}: what is wrong has a command, and nothing else has"
        assert one.cause
        assert "\n" not in one.fix
    return {one.id: one for one in made}


def level(findings: Iterable[Finding], wanted: str) -> str:
    return found(findings)[wanted].level


def planted(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    """An installed package, as `importlib.metadata` sees one."""
    made = folder / f"{name}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (made / "entry_points.txt").write_text(entry_points)


class TestHome:
    def test_a_sound_one(self, home: Home) -> None:
        assert list(found(check_home(home))) == ["home.ok"]

    def test_a_missing_one_is_not_made(self, tmp_path: Path) -> None:
        assert level(check_home(Home(tmp_path / "none")), "home.missing") == "warning"
        assert not (tmp_path / "none").exists()

    def test_a_file_and_a_broken_link_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "link").symlink_to(tmp_path / "nothing")
        for name in ("file", "link"):
            assert level(check_home(Home(tmp_path / name)), "home.no_folder") == "problem"

    def test_one_that_cannot_be_written(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        assert level(check_home(home), "home.unwritable") == "problem"

    def test_one_that_others_can_read(self, home: Home) -> None:
        home.path.chmod(0o755)
        assert found(check_home(home))["home.open"].fix == f"chmod 700 {home.path}"

    def test_little_room_is_a_warning_and_almost_none_a_problem(self, home: Home) -> None:
        assert level(check_disk(home, free=lambda _: 2 * 10**9), "disk.ok") == "ok"
        assert level(check_disk(home, free=lambda _: 5 * 10**8), "disk.scarce") == "warning"
        assert level(check_disk(home, free=lambda _: 10**6), "disk.scarce") == "problem"
        assert found(check_disk(Home(home.path / "not" / "yet")))


class TestLock:
    def test_a_free_one(self, home: Home) -> None:
        assert list(found(check_lock(home))) == ["lock.free"]
        with WriterLock(home):
            pass
        assert list(found(check_lock(home))) == ["lock.free"]

    def test_one_that_is_held_tells_by_whom_and_stays_held(self, home: Home) -> None:
        with WriterLock(home):
            told = found(check_lock(home))["lock.held"]
            again = found(check_lock(home, locks=home.path / "no list of locks"))["lock.held"]
        assert f"Process {os.getpid()} " in told.cause
        assert again.cause == told.cause

    def test_a_dead_process_holds_nothing(self, home: Home) -> None:
        home.lock_file.write_text('{"pid": 4194305}')
        assert "lock.free" in found(check_lock(home))
        assert "lock.free" in found(check_lock(home, locks=home.path / "no list of locks"))

    def test_a_link_and_a_folder_in_its_place(self, home: Home) -> None:
        home.lock_file.symlink_to("elsewhere")
        assert level(check_lock(home), "lock.link") == "problem"
        home.lock_file.unlink()
        home.lock_file.mkdir()
        assert level(check_lock(home), "lock.unusable") == "problem"


class TestConfig:
    def test_unknown_keys_and_wrong_values_are_each_a_problem_that_names_the_file(self, home: Home) -> None:
        home.config.write_text('[bot]\nnmae = "x"\n[log]\nlevel = "loud"\n')
        settings, findings = read_config(home, None)
        assert settings is None
        assert [one.id for one in findings] == ["config.invalid", "config.invalid"]
        assert all(str(home.config) in one.fix for one in findings)

    def test_a_wrong_variable_is_mended_by_unsetting_it(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_BOT__NMAE", "x")
        assert read_config(home, None)[1][0].fix == "unset BUBBOT_BOT__NMAE"

    def test_a_file_with_a_secret_that_others_can_read(self, home: Home) -> None:
        home.config.write_text('[model]\napi_key = "canary-7f3a91"\n')
        home.config.chmod(0o644)
        told = found(read_config(home, None)[1])["config.open"]
        assert (told.level, told.fix) == ("warning", f"chmod 600 {home.config}")
        assert "canary" not in told.cause
        home.config.chmod(0o600)
        assert list(found(read_config(home, None)[1])) == ["config.ok"]

    def test_a_persona_file_that_is_not_there(self, home: Home) -> None:
        home.config.write_text('[bot]\npersona_file = "none.md"\n')
        assert level(read_config(home, None)[1], "config.persona") == "problem"

    def test_a_budget_that_cannot_be_reckoned_with(self, home: Home) -> None:
        home.config.write_text('[budget]\ncurrency = "EUR"\n')
        assert level(read_config(home, None)[1], "config.budget") == "problem"


class TestDatabase:
    def test_none_and_a_sound_one(self, home: Home) -> None:
        assert list(found(check_database(home, now=START, deep=True))) == ["database.ok", "clock.ok"]
        home.database.unlink()
        assert list(found(check_database(home, now=START, deep=True))) == ["database.missing"]
        assert not home.database.exists()

    @pytest.mark.parametrize(
        ("sql", "wanted"),
        [
            ("PRAGMA application_id = 7", "database.unusable"),
            ("PRAGMA user_version = 99", "database.too_new"),
            ("DROP TABLE entries", "database.unusable"),
        ],
    )
    def test_one_that_is_not_ours_newer_or_incomplete(self, home: Home, sql: str, wanted: str) -> None:
        with raw(home.database) as conn:
            conn.execute(sql)
        assert level(check_database(home, now=START, deep=False), wanted) == "problem"

    def test_one_that_is_empty(self, home: Home) -> None:
        home.database.unlink()
        sqlite3.connect(home.database).close()
        home.database.write_bytes(b"")
        assert level(check_database(home, now=START, deep=False), "database.empty") == "warning"

    def test_one_that_is_damaged(self, home: Home) -> None:
        home.database.write_bytes(b"no database at all" * 100)
        told = found(check_database(home, now=START, deep=False))["database.damaged"]
        assert told.level == "problem"
        assert "backup" in told.cause

    def test_one_with_torn_pages(self, home: Home) -> None:
        data = bytearray(home.database.read_bytes())
        data[4096:] = bytes(len(data) - 4096)
        home.database.write_bytes(data)
        assert level(check_database(home, now=START, deep=False), "database.damaged") == "problem"

    def test_a_folder_in_its_place(self, home: Home) -> None:
        home.database.unlink()
        home.database.mkdir()
        assert level(check_database(home, now=START, deep=False), "database.unusable") == "problem"

    async def test_an_altered_entry_is_found_when_asked_to_look_deep(
        self, sqlite_store: SqliteStore, tmp_path: Path
    ) -> None:
        await sqlite_store.append([batch(note("a"), note("b"))])
        home = Home(tmp_path)
        tamper(home.database, "UPDATE entries SET payload = '{}' WHERE id = 2")
        assert level(check_database(home, now=START, deep=False), "database.ok") == "ok"
        told = found(check_database(home, now=START, deep=True))["database.altered"]
        assert (told.level, told.fix) == ("problem", "bubbot tape verify")
        assert "tape #2 altered" in told.cause

    async def test_an_entry_from_the_future(self, sqlite_store: SqliteStore, tmp_path: Path) -> None:
        await sqlite_store.append([batch(note("a", date="2026-11-21T20:21:00+00:00"))])
        early = START - timedelta(hours=1)
        assert level(check_database(Home(tmp_path), now=early, deep=False), "clock.behind") == "warning"
        assert level(check_database(Home(tmp_path), now=START, deep=False), "clock.ok") == "ok"


class TestSystem:
    def test_an_old_python(self) -> None:
        assert level(check_python((3, 10, 4)), "python.old") == "problem"
        assert level(check_python((3, 13, 0)), "python.ok") == "ok"

    @pytest.mark.parametrize("version", [(3, 7, 0), (3, 40, 1), (3, 51, 2)])
    def test_a_sqlite_with_the_bug_is_told_and_no_fault(self, version: tuple[int, ...]) -> None:
        assert "one, so it is not met" in found(check_sqlite(version))["sqlite.wal_reset"].cause

    @pytest.mark.parametrize("version", [(3, 6, 23), (3, 51, 3), (3, 53, 0)])
    def test_a_sqlite_without_it(self, version: tuple[int, ...]) -> None:
        assert list(found(check_sqlite(version))) == ["sqlite.ok"]

    @pytest.mark.parametrize(
        ("version", "wanted", "how"),
        [
            ("1.82.7", "litellm.malicious", "problem"),
            ("1.82.8", "litellm.malicious", "problem"),
            ("1.80.0", "litellm.unsafe", "problem"),
            ("1.83.6", "litellm.unsafe", "problem"),
            ("1.83.7rc1", "litellm.unsafe", "problem"),
            ("1.83", "litellm.unsafe", "problem"),
            ("strange", "litellm.unsafe", "problem"),
            ("1.83.7", "litellm.ok", "ok"),
            ("1.106.2", "litellm.ok", "ok"),
        ],
    )
    def test_the_litellm_that_is_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str, how: str
    ) -> None:
        planted(tmp_path, "litellm", version)
        monkeypatch.syspath_prepend(tmp_path)
        assert level(check_litellm(), wanted) == how


class TestModel:
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("", "model.missing"),
            ("local", "model.local_missing"),
            ("nobody/x", "model.unknown"),
            ("opnai/gpt-4o", "model.unknown"),
            ("openai/gpt-4o", "model.ok"),
            ("scripted", "model.ok"),
        ],
    )
    def test_one_that_cannot_be_had(self, home: Home, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str) -> None:
        monkeypatch.setattr(local, "available", lambda: False)
        assert wanted in found(check_model(Settings(model=ModelSettings(name=name)), home))

    def test_a_fallback_that_cannot_be_had(self, home: Home) -> None:
        settings = Settings(model=ModelSettings(name="openai/gpt-4o", fallback=["opnai/gpt-4o"]))
        (finding,) = check_model(settings, home)
        assert finding.id == "model.unknown"
        assert "[model] fallback is 'opnai/gpt-4o'" in finding.cause
        assert "did you mean 'openai/gpt-4o'?" in finding.cause

    @pytest.mark.parametrize("script", [None, b"{", b"[1]", b'{"rules": [{"when": "("}]}'])
    def test_a_script_that_cannot_be_read(self, home: Home, tmp_path: Path, script: bytes | None) -> None:
        file = tmp_path / "script.json"
        if script is not None:
            file.write_bytes(script)
        settings = Settings(model=ModelSettings(name="scripted", script=file))
        assert level(check_model(settings, home), "model.script") == "problem"


class TestPlugins:
    def test_all_of_them_load(self) -> None:
        assert list(found(check_plugins(Settings()))) == ["plugin.ok"]

    def test_a_broken_one_is_named_with_its_reason_and_counts_where_it_is_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        points = (
            "[bubbot.channels]\nbroken = broken_channel:create\n[bubbot.models]\nlost = bubbot.models.lost:create\n"
        )
        planted(tmp_path, "bubbot-broken", "1.0", points)
        (tmp_path / "broken_channel.py").write_text("raise RuntimeError('out of order')")
        monkeypatch.syspath_prepend(tmp_path)
        told = [one for one in check_plugins(Settings()) if one.id == "plugin.broken"]
        assert [one.level for one in told] == ["warning", "warning"]
        assert "out of order" in told[0].cause
        assert "bubbot-broken" in told[0].fix
        assert "there is no module bubbot.models.lost" in told[1].cause
        used = Settings(channels={"broken": {}})
        assert [one.level for one in check_plugins(used) if one.id == "plugin.broken"] == ["problem", "warning"]


def test_without_a_home_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    told = examine(Home(tmp_path / "none"), None, now=START, deep=False)
    assert {"home.missing", "plugin.ok", "disk.ok"} <= {one.id for one in told.findings}
    assert not [one for one in told.findings if one.id.startswith(("lock", "database"))]


def test_every_finding_is_in_the_reference() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "bubbot" / "doctor").glob("*.py")))
    ids = set(re.findall(r'Finding\(\s*"([a-z]+\.[a-z_]+)"', source))
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text(encoding="utf-8")
    assert len(ids) > 30
    assert ids == set(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", page, re.MULTILINE))
