"""Each command that the doctor prints is run, and its finding is gone."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbot.app.tapes import now
from bubbot.errors import ModelUnavailable
from bubbot.features.schedule.changes import JobChanges, JobRequester
from bubbot.features.schedule.facts import Actor, ChatRef
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import ScheduleState
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.home import Home, WriterLock
from bubbot.ops.service.render import render_unit
from bubbot.ports.channel import MessagePart, Role
from bubbot.ports.checks import Finding
from bubbot.ports.model import Lesson
from bubbot.runtime.lessons import ModelLessons
from bubbot.stores.sqlite.backups import ExtraFiles, write_backup
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from tests.budgets import ANN, opened, plan
from tests.docs.pages import ROOT
from tests.doubles import START, CountingIds, SteppingClock
from tests.e2e import forked
from tests.fakes.botapi.server import Server
from tests.planting import examine, found, mend, mend_by_doctor, mend_in_shell, mend_running, mends, plants, write
from tests.raw import raw

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
TOKEN, OTHER = "12345678:" + "c" * 35, "87654321:" + "d" * 35


pytestmark = pytest.mark.usefixtures("no_plugins")


def run(folder: Path, *arguments: str) -> None:
    """`bubbot ARGUMENTS` with the variables of the test; fails if it fails."""
    done = forked.run(forked.BOT, arguments, b"", env=os.environ, cwd=folder)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home as a first chat leaves it, and the one that commands without --home mean."""
    monkeypatch.setenv("BUBBOT_HOME", str(home.path))
    monkeypatch.setenv("BUBBOT_MODEL__NAME", "scripted")
    return home


def checkup(home: Home, *, days: int = 0) -> Callable[[], Iterable[Finding]]:
    """The doctor, offline."""
    return lambda: examine(home, now=START + timedelta(days=days))


def config(home: Home, text: str) -> None:
    home.config.write_text(text)
    home.config.chmod(0o600)


class TestHome:
    @plants("home.writable")
    @mends("home.open", "home.writable")
    def test_one_that_others_can_read_or_write(self, home: Home, tmp_path: Path) -> None:
        for mode, wanted in ((0o755, "home.open"), (0o777, "home.writable"), (0o770, "home.writable")):
            home.path.chmod(mode)
            mend(checkup(home), wanted, tmp_path)
        home.path.chmod(0o777)
        told = found(checkup(home)())["home.writable"]
        assert told.level == "problem"
        assert "replace its database, its settings and its secrets" in told.cause

    @mends("home.no_folder", "home.missing")
    def test_one_that_is_a_file_or_is_not_there(self, home: Home, tmp_path: Path) -> None:
        shutil.rmtree(home.path)
        home.path.write_text("")
        mend(checkup(home), "home.no_folder", tmp_path)
        mend(checkup(home), "home.missing", tmp_path, data="hello\n")

    @ROOT_ONLY
    @plants("home.read_only")
    @mends("home.read_only")
    def test_one_on_a_disk_that_is_read_only(self, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=700", "none", disk], check=False).returncode:
            pytest.skip("this sandbox mounts nothing")
        try:
            mend(checkup(Home(disk)), "home.read_only", tmp_path)
        finally:
            subprocess.run(["umount", disk], check=True)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    @mends("home.unwritable")
    def test_one_that_its_owner_closed(self, home: Home, tmp_path: Path) -> None:
        home.path.chmod(0o500)
        mend(checkup(home), "home.unwritable", tmp_path)

    def test_one_of_somebody_else_is_taken_over_and_ones_own_is_opened(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(**_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        assert found(checkup(home)())["home.unwritable"].fix == f"chmod u+rwx {home.path}"
        monkeypatch.setattr("os.geteuid", lambda: 4711)
        assert found(checkup(home)())["home.unwritable"].fix.startswith("sudo chown -R")

    @mends("lock.link", "lock.unusable")
    def test_a_lock_that_is_no_file_is_mended(self, home: Home, tmp_path: Path) -> None:
        home.lock_file.symlink_to("elsewhere")
        mend(checkup(home), "lock.link", tmp_path)
        home.lock_file.mkdir()
        mend(checkup(home), "lock.unusable", tmp_path)


class TestSettings:
    @mends(
        "config.invalid",
        "config.renamed",
        "config.unowned",
        "config.persona",
        "config.server",
        "config.budget",
        "config.open",
        "model.unknown",
        "model.size_assumed",
    )
    def test_a_file_that_is_wrong_or_open(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("BUBBOT_MODEL__NAME")
        right = '[model]\nname = "scripted"\n'
        for text, wanted in (
            ('[bot]\nnmae = "x"\n', "config.invalid"),
            ('[bot]\npersona_file = "none.md"\n', "config.persona"),
            ("[server]\nport = 9391\n", "config.server"),
            ('[model]\nname = "scripted"\n[schedule]\nfailures = 3\n', "config.renamed"),
            ('[model]\nname = "scripted"\n[lottery]\nday = 3\n', "config.unowned"),
            ('[budget]\ncurrency = "EUR"\n', "config.budget"),
            ('[model]\nname = "nobody/x"\n', "model.unknown"),
            ('[model]\nname = "openai/our-own"\n', "model.size_assumed"),
        ):
            config(home, text)
            mend(checkup(home), wanted, tmp_path, text=right)
        config(home, '[model]\napi_key = "canary"\n')
        home.config.chmod(0o644)
        mend(checkup(home), "config.open", tmp_path)

    @mends("config.invalid", "secret.credentials", "limits.files")
    def test_what_the_shell_itself_has_wrong(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value, wanted in (
            ("BUBBOT_BOT__NMAE", "x", "config.invalid"),
            ("CREDENTIALS_DIRECTORY", str(tmp_path / "none"), "secret.credentials"),
        ):
            with monkeypatch.context() as inside:
                inside.setenv(name, value)
                mend_in_shell(found(checkup(home)())[wanted], tmp_path)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
            mend_in_shell(found(checkup(home)())["limits.files"], tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    @mends("model.script", "secret.no_key")
    def test_a_model_that_lacks_its_script_or_its_key(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("BUBBOT_MODEL__NAME")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        config(home, '[model]\nname = "scripted"\nscript = "script.json"\n')
        for script in (None, "{"):
            if script is not None:
                (home.path / "script.json").write_text(script)
            mend(checkup(home), "model.script", tmp_path, text='{"default": [{"text": "hello"}]}')
        keyless = '[model]\nname = "openai/gpt-4o"\n'
        config(home, keyless)
        mend(checkup(home), "secret.no_key", tmp_path, text=f'{keyless}api_key = "canary"\n')

    @mends("model.failing")
    def test_a_model_that_did_not_answer(self, home: Home, tmp_path: Path) -> None:
        write(home, lambda store: failing_call(store, "scripted"))
        mend(checkup(home), "model.failing", tmp_path)

    @plants("port.used", "port.ok")
    @mends("port.used")
    def test_a_port_that_somebody_has(self, home: Home, tmp_path: Path) -> None:
        with socket.socket() as taken, socket.socket() as free:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            free.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in (taken, free)]
            free.close()
            config(home, f"[health]\nport = {ports[0]}\n")
            mend(checkup(home), "port.used", tmp_path, text=f"[health]\nport = {ports[1]}\n")
            assert "port.ok" in found(checkup(home)())
            config(home, f"[health]\nport = {ports[0]}\n")
            with WriterLock(home):  # the bot of this home has it
                assert examine(home, "port.") == []
            config(home, "")
            assert examine(home, "port.") == []


class TestOtherUsers:
    """Root of these tests is the person who asks by `sudo`; the doctor looks as somebody else."""

    @mends("home.closed", "home.hidden")
    def test_a_home_that_is_closed(self, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        access = os.access
        monkeypatch.setattr("os.access", lambda path, mode: Path(path) != home.path and access(path, mode))
        mend_by_doctor(found(checkup(home)())["home.closed"], tmp_path)
        mend_by_doctor(found(checkup(Home(home.path / "inner"))())["home.hidden"], tmp_path)

    @plants("home.unusable")
    @mends("home.unusable")
    def test_a_home_whose_name_no_folder_can_have(self, tmp_path: Path) -> None:
        unusable = Home(tmp_path / ("x" * 300))
        told = found(checkup(unusable)())
        assert "File name too long" in told["home.unusable"].cause
        assert "home.missing" not in told
        mend_by_doctor(told["home.unusable"], tmp_path, env={"BUBBOT_HOME": str(unusable.path)})

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @mends("secret.file_unreadable")
    def test_a_secret_of_somebody_else(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        access, file = os.access, home.path / "token"
        config(home, '[channels.telegram]\ntoken_file = "token"\n')
        file.write_text(TOKEN)
        os.chown(file, 65534, 65534)
        monkeypatch.setattr(
            "os.access", lambda path, mode: access(path, mode) and (Path(path) != file or file.stat().st_uid == 0)
        )
        mend(checkup(home), "secret.file_unreadable", tmp_path)

    @mends("channel.hidden_token")
    def test_a_token_that_only_root_can_see(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config(home, "[channels.telegram]\n")
        unit = render_unit("bubbot.service", python=Path(sys.executable), home=home.path, config=None)
        store = tmp_path / "credstore"
        with monkeypatch.context() as inside:
            inside.setattr(
                "bubbot.ops.doctor.credentials.read_output", lambda words: unit if "--system" in words else None
            )
            inside.setattr("bubbot.ops.doctor.credentials.CREDSTORE", store)  # as if closed
            finding = found(checkup(home)())["channel.hidden_token"]
        mend_by_doctor(finding, tmp_path)

    @mends("service.other_home")
    def test_the_service_of_another_home(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other, programs = tmp_path / "other", tmp_path / "programs"
        other.mkdir(mode=0o700)
        programs.mkdir()
        lines = f"LoadState=loaded\nActiveState=active\nExecStart={{ argv[]=x -m bubbot --home {other} run ; }}"
        show = f"[ \"$1 $2\" = '--system show' ] && cat <<'END'\n{lines}\nEND\nexit 0"
        (programs / "systemctl").write_text(f"#!/bin/sh\n{show}\n")
        (programs / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        mend_by_doctor(found(checkup(home)())["service.other_home"], tmp_path)


class TestSecrets:
    @plants("secret.file_odd")
    @mends("secret.file_missing", "secret.file_empty", "secret.file_open", "secret.file_odd")
    def test_a_file_with_a_secret(self, home: Home, tmp_path: Path) -> None:
        config(home, '[channels.telegram]\ntoken_file = "token"\n')
        file, check = home.path / "token", checkup(home)
        mend(check, "secret.file_missing", tmp_path, data=TOKEN)
        file.write_text("")
        mend(check, "secret.file_empty", tmp_path, data=TOKEN)
        file.chmod(0o644)
        mend(check, "secret.file_open", tmp_path)
        file.write_bytes(b"\xff\xfe")
        mend(check, "secret.file_odd", tmp_path, data=TOKEN)
        file.unlink()
        file.mkdir()
        mend(check, "secret.file_odd", tmp_path, data=TOKEN)
        assert file.read_text() == TOKEN

    @mends("secret.odd_token", "channel.invalid", "channel.same_token")
    def test_a_token_is_replaced_where_it_is_taken_from(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        named = '[channels.telegram]\ntoken_file = "token"\n'
        file, check = home.path / "token", checkup(home)
        config(home, named)
        file.touch(0o600)
        for wrong, wanted in (("12345678:short", "secret.odd_token"), ("nonsense", "channel.invalid")):
            file.write_text(wrong)
            mend(check, wanted, tmp_path, data=TOKEN)
            config(home, f'[channels.telegram]\ntoken = "{wrong}"\n')
            mend(check, wanted, tmp_path, text=named)
        config(home, f'{named}[channels.b]\nkind = "telegram"\ntoken_file = "other"\n')
        shutil.copy(file, home.path / "other")
        mend(check, "channel.same_token", tmp_path, data=OTHER)
        assert file.read_text() == TOKEN
        monkeypatch.setenv("BUBBOT_CHANNELS__TELEGRAM__TOKEN", "12345678:short")
        command = found(check())["secret.odd_token"].fix
        shell = f"{command} && printf %s $BUBBOT_CHANNELS__TELEGRAM__TOKEN"
        assert (
            subprocess.run(["sh", "-c", shell], input=f"{TOKEN}\n", capture_output=True, text=True, check=True).stdout
            == TOKEN
        )


class TestChannels:
    @mends("channel.no_token")
    def test_one_without_a_token(self, home: Home, tmp_path: Path) -> None:
        with platform() as server:
            config(home, f'[channels.telegram]\nbase_url = "{server.base_url}"\n')
            typed = f"\n\n\n\n{server.bot.token}\n42\n\n"
            mend(checkup(home), "channel.no_token", tmp_path, data=typed)

    @plants("channel.group_as_person")
    @mends("channel.group_as_person")
    def test_a_group_in_a_list_of_people(self, home: Home, tmp_path: Path) -> None:
        table = f'[channels.telegram]\ntoken = "{TOKEN}"\n'
        config(home, f"{table}owners = [42, -1001]\n")
        mend(checkup(home), "channel.group_as_person", tmp_path, text=f"{table}owners = [42]\ngroups = [-1001]\n")

    @plants("channel.nobody")
    @mends("channel.nobody")
    def test_one_on_which_nobody_can_ever_speak(self, home: Home, tmp_path: Path) -> None:
        silent = f'[channels.telegram]\ntoken = "{TOKEN}"\npairing = false\n'
        config(home, silent)
        mend(checkup(home), "channel.nobody", tmp_path, text=f"{silent}owners = [42]\n")
        config(home, silent)
        run(tmp_path, "access", "grant", "telegram", "42", "member")
        assert "channel.nobody" not in found(checkup(home)())

    @mends("platform.refused")
    def test_one_whose_token_is_refused(self, home: Home, tmp_path: Path) -> None:
        with platform() as server:
            config(home, f'[channels.telegram]\ntoken_file = "token"\nbase_url = "{server.base_url}"\n')
            (home.path / "token").touch(0o600)
            (home.path / "token").write_text(OTHER)

            def online() -> Iterable[Finding]:
                return examine(home, online=True)

            mend(online, "platform.refused", tmp_path, data=server.bot.token)
            assert "platform.ok" in found(online())


class TestCredentials:
    @plants("channel.credential", "channel.hidden_token")
    def test_a_token_that_systemd_hands_over_is_not_missing(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config(home, "[channels.telegram]\n")
        runtime, store = tmp_path / "run", tmp_path / "credstore"
        unit = render_unit("bubbot.service", python=Path(sys.executable), home=home.path, config=None)
        monkeypatch.setattr(
            "bubbot.ops.doctor.credentials.read_output", lambda words: unit if "--system" in words else None
        )
        monkeypatch.setattr("bubbot.ops.doctor.credentials.RUNTIME", runtime)
        monkeypatch.setattr("bubbot.ops.doctor.credentials.CREDSTORE", store)
        assert "channel.hidden_token" in found(checkup(home)())  # nobody can look there
        store.mkdir()
        assert "channel.no_token" in found(checkup(home)())
        (store / "bubbot.channels.telegram.token").write_text(TOKEN)
        assert "channel.credential" in found(checkup(home)())
        folder = runtime / "credentials" / "bubbot.service"
        folder.mkdir(parents=True)
        (folder / "channels.telegram.token").write_text(TOKEN)
        assert {"channel.ok"} == {one for one in found(checkup(home)()) if one.startswith("channel")}
        other = Home(tmp_path / "other")
        other.path.mkdir(mode=0o700)
        config(other, "[channels.telegram]\n")
        assert [one.id for one in examine(other, "channel.")] == ["channel.no_token"]


class TestDatabase:
    @mends("database.empty", "database.unusable", "database.damaged")
    def test_one_that_cannot_be_used(self, home: Home, tmp_path: Path) -> None:
        check = checkup(home)
        home.database.write_bytes(b"")
        mend(check, "database.empty", tmp_path, data="hello\n")
        home.database.write_bytes(b"no database at all" * 100)
        mend(check, "database.damaged", tmp_path)
        home.database.mkdir()
        mend(check, "database.unusable", tmp_path)

    @plants("database.lost")
    @mends("database.lost")
    def test_one_that_is_missing(self, home: Home, tmp_path: Path) -> None:
        home.mark_database()
        (home.path / "backups").mkdir()
        write_backup(home.database, home.path / "backups" / "b", ExtraFiles({}), START)
        home.database.unlink()
        assert found(checkup(home)())["database.lost"].level == "problem"
        mend(checkup(home), "database.lost", tmp_path)
        assert found(checkup(home)())["database.ok"].level == "ok"
        shutil.rmtree(home.path / "backups")
        home.database.unlink()
        mend(checkup(home), "database.lost", tmp_path)
        assert "database.missing" in found(checkup(home)())

    @mends("database.triggers", "database.indexes", "database.slack")
    def test_one_without_its_triggers_and_one_that_is_half_empty(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with raw(home.database) as conn:
            conn.execute("DROP TRIGGER entries_delete")
        mend(checkup(home), "database.triggers", tmp_path)
        with raw(home.database) as conn:
            conn.execute("DROP INDEX entries_name")
        mend(checkup(home), "database.indexes", tmp_path)
        monkeypatch.setattr("bubbot.ops.doctor.database.NEGLIGIBLE_BYTES", 10_000)
        with raw(home.database) as conn:
            conn.execute("CREATE TABLE filler (data BLOB)")
            conn.execute("INSERT INTO filler VALUES (zeroblob(2000000))")
            conn.execute("DROP TABLE filler")
        mend(checkup(home), "database.slack", tmp_path)

    @mends("clock.jobs")
    def test_one_whose_jobs_wait_for_a_clock_that_was_ahead(self, home: Home, tmp_path: Path) -> None:
        async def add(store: SqliteStore) -> None:
            tape = TapeService(store, "bubbot/schedule", now=lambda: START, new_id=str)
            asker = JobRequester(Actor("test", "1"), Role.OWNER, ChatRef("test", "1"), owns_all=True)
            made = JobChanges(
                ScheduleState(), asker, datetime(2099, 1, 1, tzinfo=UTC), lambda: "abcdef", ScheduleSettings(), "UTC"
            )
            await tape.append(made.add({"when": "0 * * * *", "text": "tea"})[1])

        write(home, add)
        mend(lambda: examine(home, now=now()), "clock.jobs", tmp_path)

    @mends("turn.stuck", "delivery.stuck")
    def test_one_with_turns_and_messages_that_are_open(self, home: Home, tmp_path: Path) -> None:
        with platform() as server:
            ada = server.user("Ada")
            room = str(server.private(ada).id)
            table = f'token = "{server.bot.token}"\nbase_url = "{server.base_url}"\nowners = [{ada.id}]\n'
            config(home, f"[channels.telegram]\n{table}")

            start = {"attempt": 1, "session": f"telegram:{room}", "inbounds": []}

            async def open_turn(store: SqliteStore) -> None:
                turn = TapeService(store, f"telegram:{room}", now=lambda: START, new_id=CountingIds())
                await turn.append_event("before")
                await turn.open_fork([event("turn/start", start, turn="t")])

            async def open_message(store: SqliteStore) -> None:
                box = TapeService(store, outbox_tape("telegram"), now=lambda: START, new_id=CountingIds())
                await Outbox(box).enqueue(f"telegram:{room}", "a", (MessagePart(room, "hello"),), {})

            for wanted, work in (("turn.stuck", open_turn), ("delivery.stuck", open_message)):
                write(home, work)
                mend_running(checkup(home, days=2), wanted, tmp_path)

    @pytest.mark.proof
    @mends("backup.old")
    def test_one_whose_backup_is_old(self, home: Home, tmp_path: Path) -> None:
        run(tmp_path, "ask", "hello")
        folder = home.path / "backups"
        folder.mkdir()
        write_backup(home.database, folder / "old", ExtraFiles(), START - timedelta(days=9))
        mend(lambda: examine(home, now=now()), "backup.old", tmp_path)

    @mends("backup.none", "home.quarantine")
    def test_one_without_a_backup_and_one_restored_from_it(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(tmp_path, "ask", "hello")
        mend(checkup(home, days=3650), "backup.none", tmp_path)
        (copy,) = (home.path / "backups").iterdir()
        other = Home(tmp_path / "other")
        run(tmp_path, "--home", str(other.path), "restore", str(copy))
        monkeypatch.setenv("BUBBOT_HOME", str(other.path))
        mend(checkup(other), "home.quarantine", tmp_path)


class TestModels:
    @mends("model.learned")
    def test_one_that_refused_requests_is_asked_in_the_usual_form_again(self, home: Home, tmp_path: Path) -> None:
        async def learn(store: SqliteStore) -> None:
            lessons = ModelLessons(TapeService(store, "bubbot/models", now=lambda: START, new_id=CountingIds()))
            lesson = Lesson("ollama/gemma3:4b", "127.0.0.1:8080", "no_tools@1")
            lessons.try_out(lesson)
            await lessons.keep([lesson])

        run(tmp_path, "ask", "hello")
        write(home, learn)
        mend(checkup(home), "model.learned", tmp_path)

    @mends("model.unread")
    def test_one_that_read_too_little_is_watched_again(self, home: Home, tmp_path: Path) -> None:
        async def learn(store: SqliteStore) -> None:
            lessons = ModelLessons(TapeService(store, "bubbot/models", now=lambda: START, new_id=CountingIds()))
            lesson = Lesson.of_size("ollama/gemma3:4b", "", "unread", 2_050)
            lessons.try_out(lesson)
            await lessons.keep([lesson])

        run(tmp_path, "ask", "hello")
        write(home, learn)
        mend(checkup(home), "model.unread", tmp_path)


class TestDisk:
    @mends("disk.memory")
    def test_a_home_in_memory_is_moved(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mounts, person = tmp_path / "mounts", tmp_path / "person"
        monkeypatch.setattr("bubbot.ops.doctor.disk.MOUNTS_PATH", mounts)
        mounts.write_text(f"none {home.path} tmpfs rw 0 0\n/dev/a {person} ext4 rw 0 0\n")
        person.mkdir()

        def check() -> Iterable[Finding]:
            moved = Home(person / "bubbot")
            return examine(moved if moved.path.exists() else home)

        mend(check, "disk.memory", tmp_path, env={"HOME": str(person)})
        assert "disk.local" in found(check())


class TestPackages:
    """pip, an environment of its own, and an index in a folder: nothing comes over a network."""

    VERSIONS = (
        ("discord.py", "2.6.0", ""), ("discord.py", "2.7.9", ""),
        ("bubbot-odd", "1.0", "raise RuntimeError('out of order')\n"), ("bubbot-odd", "1.1", "def create(_): ...\n"),
    )  # fmt: skip

    CHECK = (
        "import dataclasses, json\n"
        "from bubbot.ops.doctor import conflicts, plugins, versions\n"
        "plugins.ENTRY_POINT_GROUPS = ('bubbot.channels',)\n"
        "found = [*versions.check_libraries(), *plugins.check_plugins(None), *conflicts.check_conflicts()]\n"
        "print(json.dumps([dataclasses.astuple(one) for one in found]))\n"
    )

    @pytest.mark.proof
    @mends("library.untested", "plugin.broken", "package.conflict")
    def test_libraries_that_are_untested_broken_or_in_the_way(
        self, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index, place = tmp_path / "index", tmp_path / "environment"
        index.mkdir()
        for name, version, code in self.VERSIONS:
            wheel(index, name, version, code)
        wheel(index, "channels", "4.3", "", top_level="channels")
        venv.create(place, with_pip=False, symlinks=True)
        python = place / "bin" / "python"
        site = place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        roots = [str(ROOT), *(one for one in sys.path if one.endswith("site-packages"))]
        (site / "theirs.pth").write_text("".join(f"{one}\n" for one in roots))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(index))
        monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")

        def install(*what: str) -> None:
            subprocess.run([python, "-m", "pip", "install", "--no-deps", *what], check=True, capture_output=True)

        def check() -> Iterable[Finding]:
            done = subprocess.run([python, "-c", self.CHECK], capture_output=True, text=True, check=True)
            return [Finding(*one) for one in json.loads(done.stdout)]

        install("discord.py==2.6.0", "bubbot-odd==1.0", "channels")
        for wanted in ("library.untested", "plugin.broken", "package.conflict"):
            mend(check, wanted, tmp_path)


def wheel(folder: Path, name: str, version: str, code: str, *, top_level: str = "") -> None:
    """Make a wheel with one module and, if it has code, a model plugin in it."""
    module = name.replace("-", "_").replace(".", "_")
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if top_level:
        files[f"{info}/top_level.txt"] = f"{top_level}\n"
    if code:
        files[f"{module}.py"] = code
        files[f"{info}/entry_points.txt"] = f"[bubbot.channels]\nodd = {module}:create\n"
    record = "".join(f"{one},,\n" for one in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as made:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(path, text)


async def failing_call(store: SqliteStore, model: str) -> None:
    """Record a call of a model that failed."""
    budget = await opened(store, plan(), clock=SteppingClock(START))
    error = ModelUnavailable("it rains")
    with pytest.raises(ModelUnavailable):
        async with budget.metered_call(ANN, model, 5):
            raise error
    await budget.wait_written()


@contextmanager
def platform() -> Iterator[Server]:
    """A Bot API server in a thread of its own: the commands that are run are processes, and wait for them blocks."""
    ready = threading.Event()
    box: list[tuple[Server, asyncio.Event]] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        ended = asyncio.Event()
        async with _served() as server:
            box.append((server, ended))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(30)
    try:
        yield box[0][0]
    finally:
        loop.call_soon_threadsafe(box[0][1].set)
        thread.join(30)
        loop.close()


@asynccontextmanager
async def _served() -> AsyncIterator[Server]:
    async with Server(limits=None) as server:
        yield server
