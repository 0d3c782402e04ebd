"""Doctor findings: each fault is planted, found under its id, and told with a cause and a command."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbot.app.tapes import now
from bubbot.features.schedule.changes import JobChanges, JobRequester
from bubbot.features.schedule.facts import Actor, ChatRef
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import ScheduleState
from bubbot.home import Home, WriterLock
from bubbot.ports.channel import Role
from bubbot.ports.checks import Finding
from bubbot.stores.sqlite.backups import ExtraFiles, write_backup
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from tests.doubles import START
from tests.e2e.inside import run
from tests.installed import installed
from tests.planting import examine, found, level, plants, table, write
from tests.raw import raw, tamper
from tests.tapes import batch, note

pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")


async def append(store: SqliteStore, *entries: TapeEntry) -> None:
    await store.append([batch(*entries)])


def database(home: Home, *, now: datetime = START, deep: bool = False) -> list[Finding]:
    """What is found of the database."""
    return examine(home, "database.", "clock.ok", "clock.behind", now=now, deep=deep)


class TestHome:
    @plants("home.ok")
    def test_a_sound_one(self, home: Home) -> None:
        assert list(found(examine(home, "home."))) == ["home.ok"]

    @plants("home.missing")
    def test_a_missing_one_is_not_made(self, tmp_path: Path) -> None:
        assert level(examine(Home(tmp_path / "none")), "home.missing") == "warning"
        assert not (tmp_path / "none").exists()

    @plants("home.no_folder")
    def test_a_file_and_a_broken_link_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "link").symlink_to(tmp_path / "nothing")
        for name in ("file", "link"):
            assert level(examine(Home(tmp_path / name)), "home.no_folder") == "problem"

    @plants("home.unwritable")
    def test_one_that_cannot_be_written(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(**_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        assert level(examine(home), "home.unwritable") == "problem"

    @plants("home.open")
    def test_one_that_others_can_read(self, home: Home) -> None:
        home.path.chmod(0o755)
        assert found(examine(home))["home.open"].fix == f"chmod 700 {home.path}"


class TestLock:
    @plants("lock.free")
    def test_a_free_one(self, home: Home) -> None:
        assert list(found(examine(home, "lock."))) == ["lock.free"]
        with WriterLock(home):
            pass
        assert list(found(examine(home, "lock."))) == ["lock.free"]

    @plants("lock.held")
    def test_one_that_is_held_tells_by_whom_and_stays_held(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        with WriterLock(home):
            told = found(examine(home))["lock.held"]
            monkeypatch.setattr("bubbot.ops.doctor.home.LOCKS_PATH", home.path / "no list of locks")
            again = found(examine(home))["lock.held"]
        assert f"Process {os.getpid()} " in told.cause
        assert again.cause == told.cause

    def test_a_dead_process_holds_nothing(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.lock_file.write_text('{"pid": 4194305}')
        assert "lock.free" in found(examine(home))
        monkeypatch.setattr("bubbot.ops.doctor.home.LOCKS_PATH", home.path / "no list of locks")
        assert "lock.free" in found(examine(home))

    @plants("lock.link", "lock.unusable")
    def test_a_link_and_a_folder_in_its_place(self, home: Home) -> None:
        home.lock_file.symlink_to("elsewhere")
        assert level(examine(home), "lock.link") == "problem"
        home.lock_file.unlink()
        home.lock_file.mkdir()
        assert level(examine(home), "lock.unusable") == "problem"


class TestConfig:
    @plants("config.invalid")
    def test_unknown_keys_and_wrong_values_are_each_a_problem_that_names_the_file(self, home: Home) -> None:
        home.config.write_text('[bot]\nnmae = "x"\n[log]\nlevel = "loud"\n')
        findings = examine(home, "config.")
        assert list(found(findings)) == ["config.invalid"]
        assert len(findings) == 2
        assert all(str(home.config) in one.fix for one in findings)

    def test_a_selector_that_no_context_can_be_built_by_is_a_problem(self, home: Home) -> None:
        home.config.write_text('[context]\nselector = "windw"\n')
        findings = examine(home, "config.")
        assert list(found(findings)) == ["config.invalid"]
        assert "did you mean 'window'" in findings[0].cause

    def test_a_wrong_variable_is_mended_by_unsetting_it(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BUBBOT_BOT__NMAE", "x")
        assert examine(home, "config.")[0].fix == "unset BUBBOT_BOT__NMAE"

    @plants("config.open", "config.ok")
    def test_a_file_with_a_secret_that_others_can_read(self, home: Home) -> None:
        home.config.write_text('[model]\napi_key = "canary-7f3a91"\n')
        home.config.chmod(0o644)
        told = found(examine(home))["config.open"]
        assert (told.level, told.fix) == ("warning", f"chmod 600 {home.config}")
        assert "canary" not in told.cause
        home.config.chmod(0o600)
        assert list(found(examine(home, "config."))) == ["config.ok"]

    @plants("config.unowned")
    def test_a_section_of_a_feature_that_is_not_installed(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.config.write_text("[lottery]\nday = 3\n")
        finding = found(examine(home))["config.unowned"]
        assert (finding.level, finding.fix) == ("warning", f'"${{EDITOR:-vi}}" {home.config}')
        assert "[lottery] belongs to no installed feature" in finding.cause
        home.config.write_text("")
        monkeypatch.setenv("BUBBOT_LOTTERY__DAY", "3")
        assert found(examine(home))["config.unowned"].fix == "unset BUBBOT_LOTTERY__DAY"

    @plants("config.renamed")
    def test_a_setting_under_its_old_name(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.config.write_text("[schedule]\nfailures = 3\n")
        finding = found(examine(home))["config.renamed"]
        assert (finding.level, finding.cause.partition(": ")[2]) == (
            "warning",
            "[schedule] failures is now called max_failures; the old name still works. Write: max_failures = 3",
        )
        home.config.write_text("")
        monkeypatch.setenv("BUBBOT_SCHEDULE__FAILURES", "3")
        finding = found(examine(home))["config.renamed"]
        assert finding.cause.endswith("Call the variable BUBBOT_SCHEDULE__MAX_FAILURES.")
        assert finding.fix == "unset BUBBOT_SCHEDULE__FAILURES"
        monkeypatch.delenv("BUBBOT_SCHEDULE__FAILURES")
        monkeypatch.setenv("BUBBOT_CHANNELS__DISCORD__GUILDS", '{"5": {"listen": [1]}}')
        finding = found(examine(home))["config.renamed"]
        assert "[channels.discord.guilds.5] listen is now called record_only" in finding.cause
        assert finding.fix == "unset BUBBOT_CHANNELS__DISCORD__GUILDS"
        monkeypatch.delenv("BUBBOT_CHANNELS__DISCORD__GUILDS")
        home.config.write_text("[budget]\ndollar = inf\n")
        assert found(examine(home))["config.renamed"].cause.endswith("Write: usd_rate = inf")

    @pytest.mark.parametrize(
        ("variable", "value", "rest"),
        [
            ("DISCORD__GUILDS", '{"5": {"always": [1]}}', 'Write there: "respond_to_all": [1]'),
            ("DISCORD__GUILDS", '{"5": {"always": null}}', 'Write there: "respond_to_all": null'),
            ("DISCORD__GUILDS__5", '{"always": ["ü"]}', 'Write there: "respond_to_all": ["ü"]'),
            ("DISCORD", '{"guilds": {"5": {"always": [1]}}}', 'Write there: "respond_to_all": [1]'),
            (
                "DISCORD__GUILDS__5__ALWAYS",
                "[1]",
                "Call the variable BUBBOT_CHANNELS__DISCORD__GUILDS__5__RESPOND_TO_ALL.",
            ),
            (
                "discord__guilds__5__always",
                "[1]",
                "Call the variable BUBBOT_CHANNELS__discord__guilds__5__RESPOND_TO_ALL.",
            ),
        ],
    )
    def test_the_variable_of_an_old_name_is_the_one_that_is_set(
        self, home: Home, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, rest: str
    ) -> None:
        monkeypatch.setenv(f"BUBBOT_CHANNELS__{variable}", value)
        finding = found(examine(home))["config.renamed"]
        assert finding.cause == (
            f"environment variable BUBBOT_CHANNELS__{variable}: [channels.discord.guilds.5] always is now called "
            f"respond_to_all; the old name still works. {rest}"
        )
        assert finding.fix == f"unset BUBBOT_CHANNELS__{variable}"

    @plants("config.persona")
    def test_a_persona_file_that_is_not_there(self, home: Home) -> None:
        home.config.write_text('[bot]\npersona_file = "none.md"\n')
        assert level(examine(home), "config.persona") == "problem"

    @plants("config.server")
    @pytest.mark.parametrize("text", ["port = 9391", 'token = "abc"', "openai = true"])
    def test_a_server_with_which_the_bot_does_not_start(self, home: Home, text: str) -> None:
        home.config.write_text(f"[server]\n{text}\n")
        assert level(examine(home), "config.server") == "problem"

    @plants("config.budget")
    def test_a_budget_that_cannot_be_reckoned_with(self, home: Home) -> None:
        home.config.write_text('[budget]\ncurrency = "EUR"\n')
        assert level(examine(home), "config.budget") == "problem"


class TestDatabase:
    @plants("database.ok", "clock.ok", "database.missing")
    def test_none_and_a_sound_one(self, home: Home) -> None:
        assert list(found(database(home, deep=True))) == ["database.ok", "clock.ok"]
        home.database.unlink()
        assert list(found(database(home, deep=True))) == ["database.missing"]
        assert not home.database.exists()

    @plants("database.unusable", "database.too_new")
    def test_one_that_is_not_ours_newer_or_incomplete(self, home: Home) -> None:
        for sql, wanted in (
            ("PRAGMA user_version = 99", "database.too_new"),
            ("PRAGMA user_version = 1", "database.triggers"),
            ("DROP TABLE entries", "database.unusable"),
            ("PRAGMA application_id = 7", "database.unusable"),
        ):
            with raw(home.database) as conn:
                conn.execute(sql)
            assert level(database(home), wanted) == "problem"

    @plants("database.older")
    def test_one_of_an_older_version_is_no_fault(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.ops.doctor.database.MIGRATIONS", ("",) * 5)
        assert "brings it to 5" in found(database(home))["database.older"].cause

    @plants("database.journal", "database.slack")
    def test_files_that_are_much_larger_than_what_is_in_them(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "database.slack" not in found(database(home))
        monkeypatch.setattr("bubbot.ops.doctor.database.NEGLIGIBLE_BYTES", 10_000)
        with raw(home.database) as conn:
            conn.execute("PRAGMA wal_autocheckpoint = 0")
            conn.execute("CREATE TABLE filler (data BLOB)")
            conn.execute("INSERT INTO filler VALUES (zeroblob(2000000))")
            conn.execute("DROP TABLE filler")
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            told = found(database(home))
            assert told["database.slack"].level == "warning"
            assert "database.journal" not in told
            conn.execute("VACUUM")  # goes through the journal, which nobody empties
            conn.execute("CREATE TABLE filler (data BLOB)")
            for _ in range(8):
                conn.execute("INSERT INTO filler VALUES (zeroblob(500000))")
                conn.execute("DELETE FROM filler")
            assert level(database(home), "database.journal") == "warning"

    @plants("database.empty")
    def test_one_that_is_empty(self, home: Home) -> None:
        home.database.unlink()
        sqlite3.connect(home.database).close()
        home.database.write_bytes(b"")
        assert level(database(home), "database.empty") == "warning"

    @plants("database.damaged")
    def test_one_that_is_damaged(self, home: Home) -> None:
        home.database.write_bytes(b"no database at all" * 100)
        told = found(database(home))["database.damaged"]
        assert told.level == "problem"
        assert "backup" in told.cause
        assert told.fix.endswith(f"mv {home.path}/bubbot.db* {home.path}/damaged")

    def test_a_damaged_one_of_which_there_is_a_backup_is_mended_by_the_command(self, home: Home) -> None:
        (home.path / "backups").mkdir()
        write_backup(home.database, home.path / "backups" / "whole", ExtraFiles(), START)
        home.database.write_bytes(b"no database at all" * 100)
        told = found(database(home))["database.damaged"]
        assert f"bubbot restore takes the backup of {START:%Y-%m-%d}" in told.cause
        aside, _, restore = told.fix.rpartition(" && bubbot ")
        assert subprocess.run(aside, shell=True, check=False).returncode == 0
        assert run(home.path, *shlex.split(restore)).returncode == 0
        assert "database.ok" in found(database(home))

    def test_one_with_torn_pages(self, home: Home) -> None:
        data = bytearray(home.database.read_bytes())
        data[4096:] = bytes(len(data) - 4096)
        home.database.write_bytes(data)
        assert level(database(home), "database.damaged") == "problem"

    def test_a_folder_in_its_place(self, home: Home) -> None:
        home.database.unlink()
        home.database.mkdir()
        assert level(database(home), "database.unusable") == "problem"

    @plants("database.altered")
    def test_an_altered_entry_is_found_when_asked_to_look_deep(self, home: Home) -> None:
        write(home, lambda store: append(store, note("a"), note("b")))
        tamper(home.database, "UPDATE entries SET payload = '{}' WHERE id = 2")
        assert level(database(home), "database.ok") == "ok"
        told = found(database(home, deep=True))["database.altered"]
        assert (told.level, told.fix) == ("problem", "bubbot tape verify")
        assert "tape #2 altered" in told.cause

    @plants("database.indexes")
    def test_one_whose_index_hides_facts(self, home: Home) -> None:
        with raw(home.database) as conn:
            conn.execute("DROP INDEX entries_name")
        for deep in (False, True):
            told = found(database(home, deep=deep))["database.indexes"]
            assert (told.level, told.fix) == ("problem", f"bubbot --home {home.path} tape repair")
            assert "entries_name" in told.cause
        assert run(home.path, "tape", "repair").returncode == 0
        assert level(database(home, deep=True), "database.ok") == "ok"

    @plants("database.triggers")
    def test_one_that_no_longer_refuses_to_lose_history(self, home: Home) -> None:
        with raw(home.database) as conn:
            conn.execute("DROP TRIGGER entries_delete")
        told = found(database(home))["database.triggers"]
        assert told.level == "problem"
        assert "entries_delete" in told.cause
        assert told.fix == f"bubbot --home {home.path} tape repair"
        assert run(home.path, "tape", "repair").returncode == 0
        assert level(database(home), "database.ok") == "ok"

    @plants("clock.behind")
    def test_an_entry_from_the_future(self, home: Home) -> None:
        write(home, lambda store: append(store, note("a", date="2026-11-21T20:21:00+00:00")))
        assert level(database(home, now=START - timedelta(hours=1)), "clock.behind") == "warning"
        assert level(database(home), "clock.ok") == "ok"

    @plants("clock.jobs")
    def test_jobs_that_wait_for_a_clock_that_was_ahead(self, home: Home) -> None:
        async def add(store: SqliteStore) -> None:
            tape = TapeService(store, "bubbot/schedule", now=lambda: START, new_id=str)
            asker = JobRequester(Actor("test", "1"), Role.OWNER, ChatRef("test", "1"), owns_all=True)
            made = JobChanges(
                ScheduleState(), asker, datetime(2099, 1, 1, tzinfo=UTC), lambda: "abcdef", ScheduleSettings(), "UTC"
            )
            await tape.append(made.add({"when": "0 * * * *", "text": "tea"})[1])

        write(home, add)
        (told,) = found(examine(home, "clock.jobs", now=now())).values()
        assert (told.level, told.fix) == ("warning", "bubbot schedule resume")
        assert "1 jobs are done up to 2099-01-01 00:00 UTC" in told.cause
        assert b"1 jobs go on from the present" in run(home.path, *told.fix.split()[1:]).stdout
        assert examine(home, "clock.jobs", now=now()) == []


def model(home: Home, **values: object) -> list[Finding]:
    """What the doctor says of a model."""
    home.config.write_text(f"[model]\n{table(**values)}")
    return examine(home, "model.", "config.invalid")


class TestModel:
    @plants("model.missing", "model.local_missing", "model.unknown", "model.ok")
    def test_one_that_cannot_be_had(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.models.local.model.is_available", lambda: False)
        for name, wanted in (
            ("", "model.missing"),
            ("local", "model.local_missing"),
            ("nobody/x", "model.unknown"),
            ("opnai/gpt-4o", "model.unknown"),
            ("openai/gpt-4o", "model.ok"),
            ("scripted", "model.ok"),
        ):
            assert wanted in found(model(home, name=name)), name
        assert found(model(home, name="scripted"))["model.ok"].cause == "The model is scripted."

    @pytest.mark.parametrize("name", ["openai/mine", "azure/our deployment", "ollama/../odd", "openrouter/a/b:free"])
    def test_any_model_of_a_known_provider_is_possible(self, home: Home, name: str) -> None:
        assert "model.ok" in found(model(home, name=name))

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("../../etc/passwd", "[model] name is '../../etc/passwd', and litellm knows no provider '..'"),
            ("opnai/gpt-4o", "did you mean 'openai/gpt-4o'?"),
            ("OpenAI/gpt-4o", "did you mean 'openai/gpt-4o'?"),
            ("lokal", "one of local, scripted (did you mean 'local'?)"),
            ("/x", "knows no provider ''"),
            ("openai/ ", "it has to be 'provider/model'"),
            ("openai/a\nb", "it has to be 'provider/model'"),
            ("zzz/x", "Among those it knows are anthropic, gemini"),
        ],
    )
    def test_a_name_that_nobody_has_is_refused_with_what_there_is(self, home: Home, name: str, words: str) -> None:
        assert words in found(model(home, name=name))["model.unknown"].cause

    @pytest.mark.parametrize("name", ["local", "nobody/x", ""])
    def test_a_fallback_has_to_be_a_model_of_a_provider(self, home: Home, name: str) -> None:
        assert "model.ok" in found(model(home, name="openai/gpt-4o", fallback=["openai/x", "anthropic/y"]))
        told = model(home, name="openai/gpt-4o", fallback=["openai/x", name])
        assert f"[model] fallback is '{name}'" in found(told)["model.unknown"].cause

    @plants("model.size_assumed")
    def test_one_whose_context_has_a_size_that_nobody_knows(self, home: Home) -> None:
        for name, tokens, is_told in (
            ("openai/our-own", {}, True),
            ("ollama_chat/our-own", {}, True),
            ("openai/our-own", {"context_tokens": 65_536}, False),
            ("openai/gpt-4o", {}, False),
            ("scripted", {}, False),
        ):
            assert ("model.size_assumed" in found(model(home, name=name, **tokens))) == is_told, name

    @plants("context.embeddings")
    def test_embeddings_without_their_packages(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        home.config.write_text("[context]\nembeddings = true\n")
        assert examine(home, "context.") == []
        monkeypatch.setattr("bubbot.ops.doctor.plugins.embeddings_are_installed", lambda: False)
        (finding,) = found(examine(home, "context.")).values()
        assert (finding.id, finding.level) == ("context.embeddings", "warning")
        assert finding.fix.endswith("models/embeddings/requirements.txt")
        home.config.write_text("")
        assert examine(home, "context.") == []

    def test_a_fallback_that_cannot_be_had(self, home: Home) -> None:
        (finding,) = model(home, name="openai/gpt-4o", fallback=["opnai/gpt-4o"])
        assert finding.id == "model.unknown"
        assert "[model] fallback is 'opnai/gpt-4o'" in finding.cause
        assert "did you mean 'openai/gpt-4o'?" in finding.cause

    def test_the_model_of_an_agent_that_cannot_be_had(self, home: Home) -> None:
        home.config.write_text("[model]\nname = 'scripted'\n[agents.rosi]\nmodel = 'opnai/gpt-4o'\n")
        cause = found(examine(home, "model."))["model.unknown"].cause
        assert cause.startswith("[agents.rosi] model is 'opnai/gpt-4o'")
        home.config.write_text("[model]\nname = 'scripted'\n[agents.rosi]\nmodel = 'openai/gpt-4o'\n")
        assert "model.ok" in found(examine(home, "model."))

    @pytest.mark.parametrize("script", [None, b"{", b"[1]", b'{"rules": [{"when": "("}]}'])
    @plants("model.script")
    def test_a_script_that_cannot_be_read(self, home: Home, tmp_path: Path, script: bytes | None) -> None:
        file = tmp_path / "script.json"
        if script is not None:
            file.write_bytes(script)
        assert level(model(home, name="scripted", script=str(file)), "model.script") == "problem"


class TestPlugins:
    @pytest.fixture
    def no_plugins(self, no_packages: None) -> None:
        """Here they are looked at."""

    @plants("plugin.ok")
    def test_all_of_them_load(self, home: Home) -> None:
        assert list(found(examine(home, "plugin."))) == ["plugin.ok"]

    @plants("plugin.broken")
    def test_a_broken_one_is_named_with_its_reason_and_counts_where_it_is_used(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        points = (
            "[bubbot.channels]\nbroken = broken_channel:create\n[bubbot.models]\nlost = bubbot.models.lost:create\n"
        )
        installed(tmp_path, "bubbot-broken", "1.0", points)
        (tmp_path / "broken_channel.py").write_text("raise RuntimeError('out of order')")
        monkeypatch.syspath_prepend(tmp_path)
        told = examine(home, "plugin.")
        assert list(found(told)) == ["plugin.broken"]
        assert [one.level for one in told] == ["warning", "warning"]
        assert "out of order" in told[0].cause
        assert "bubbot-broken" in told[0].fix
        assert "there is no module bubbot.models.lost" in told[1].cause
        home.config.write_text("[channels.broken]\n")
        assert [one.level for one in examine(home, "plugin.")] == ["problem", "warning"]


@plants("doctor.failed")
def test_a_check_that_fails_is_a_finding_and_the_others_are_made(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("all\nis lost")

    for name in ("check_plugins", "check_lock", "read_database", "check_python", "check_service", "read_config"):
        monkeypatch.setattr(f"bubbot.ops.doctor.checkup.{name}", fail)
    made = examine(home)
    told = [one for one in made if one.id == "doctor.failed"]
    assert "doctor.failed" in found(told)
    assert [one.cause.partition(" failed")[0] for one in told] == [
        f"The check of {name}"
        for name in ("Python", "the settings", "the lock", "the database", "the plugins", "the service")
    ]
    assert told[0].cause.endswith("ValueError: all is lost.")
    assert {"disk.ok", "home.ok", "library.ok"} <= {one.id for one in made}


def test_without_a_home_the_rest_is_looked_at_all_the_same(tmp_path: Path) -> None:
    told = examine(Home(tmp_path / "none"))
    assert {"home.missing", "library.ok", "disk.ok"} <= {one.id for one in told}
    assert not [one for one in told if one.id.startswith(("lock", "database"))]


class TestStoreOfAPackage:
    @plants("store.ok")
    def test_one_that_opens_is_counted(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        installed(tmp_path, "bubbot-kept", "1.0", "[bubbot.stores]\nkept = kept_store:open_store\n")
        code = (
            "from bubbot.stores.inmemory import InMemoryStore\nasync def open_store(_):\n    return InMemoryStore()\n"
        )
        (tmp_path / "kept_store.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        home.config.write_text('[store]\nkind = "kept"\n')
        assert level(examine(home), "store.ok") == "ok"
        assert not examine(home, "delivery.", "database.")

    @plants("store.unusable")
    def test_one_that_nobody_offers_is_a_problem(self, home: Home) -> None:
        home.config.write_text('[store]\nkind = "gone"\n')
        told = found(examine(home))["store.unusable"]
        assert told.level == "problem"
        assert "No plugin 'gone' in bubbot.stores" in told.cause
        assert not examine(home, "delivery.", "database.")
