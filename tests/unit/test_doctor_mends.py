"""Each command that the doctor prints is run, and its finding is gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bubbot.doctor.checkup import examine
from bubbot.doctor.credentials import ServiceCredentials, service_credentials
from bubbot.doctor.database import read_database
from bubbot.doctor.finding import Finding
from bubbot.doctor.home import check_home, check_lock
from bubbot.doctor.ports import check_ports
from bubbot.home import Home, WriterLock
from bubbot.service.render import rendered
from bubbot.settings import Settings
from bubbot.settings_model import HealthSettings
from tests.botapi.server import Server
from tests.doubles import START
from tests.planting import found, mend, mends, plants

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
TOKEN, OTHER = "12345678:" + "c" * 35, "87654321:" + "d" * 35


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at elsewhere, and take the most time by far."""
    monkeypatch.setattr("bubbot.doctor.checkup.check_plugins", lambda _: ())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_database: Path) -> Home:
    """A home as a first chat leaves it, and the one that commands without --home mean."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    shutil.copy(new_database, path / "bubbot.db")
    monkeypatch.setenv("BUBBOT_HOME", str(path))
    monkeypatch.setenv("BUBBOT_MODEL__NAME", "scripted")
    return Home(path)


def checkup(home: Home, *, days: int = 0) -> Callable[[], Iterable[Finding]]:
    """The doctor, offline."""
    return lambda: examine(home, None, now=START + timedelta(days=days), deep=False).findings


def about(home: Home) -> Callable[[], Iterable[Finding]]:
    return lambda: check_home(home)


def config(home: Home, text: str) -> None:
    home.config.write_text(text)
    home.config.chmod(0o600)


class TestHome:
    @plants("home.writable")
    @mends("home.open", "home.writable")
    def test_one_that_others_can_read_or_write(self, home: Home, tmp_path: Path) -> None:
        for mode, wanted in ((0o755, "home.open"), (0o777, "home.writable"), (0o770, "home.writable")):
            home.path.chmod(mode)
            mend(about(home), wanted, tmp_path)
        home.path.chmod(0o777)
        told = found(check_home(home))["home.writable"]
        assert told.level == "problem"
        assert "replace its database, its settings and its secrets" in told.cause

    @mends("home.no_folder", "home.missing")
    def test_one_that_is_a_file_or_is_not_there(self, home: Home, tmp_path: Path) -> None:
        shutil.rmtree(home.path)
        home.path.write_text("")
        mend(about(home), "home.no_folder", tmp_path)
        mend(about(home), "home.missing", tmp_path, data="hello\n")

    @ROOT_ONLY
    @plants("home.read_only")
    @mends("home.read_only")
    def test_one_on_a_disk_that_is_read_only(self, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=700", "none", disk], check=False).returncode:
            pytest.skip("this sandbox mounts nothing")
        try:
            mend(about(Home(disk)), "home.read_only", tmp_path)
        finally:
            subprocess.run(["umount", disk], check=True)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    @mends("home.unwritable")
    def test_one_that_its_owner_closed(self, home: Home, tmp_path: Path) -> None:
        home.path.chmod(0o500)
        mend(about(home), "home.unwritable", tmp_path)

    def test_one_of_somebody_else_is_taken_over_and_ones_own_is_opened(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(**_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        assert found(check_home(home))["home.unwritable"].fix == f"chmod u+rwx {home.path}"
        monkeypatch.setattr("os.geteuid", lambda: 4711)
        assert found(check_home(home))["home.unwritable"].fix.startswith("sudo chown -R")

    @mends("lock.link", "lock.unusable")
    def test_its_lock(self, home: Home, tmp_path: Path) -> None:
        home.lock_file.symlink_to("elsewhere")
        mend(lambda: check_lock(home), "lock.link", tmp_path)
        home.lock_file.mkdir()
        mend(lambda: check_lock(home), "lock.unusable", tmp_path)


class TestSettings:
    @mends("config.invalid", "config.persona", "config.budget", "config.open", "model.unknown")
    def test_a_file_that_is_wrong_or_open(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("BUBBOT_MODEL__NAME")
        right = '[model]\nname = "scripted"\n'
        for text, wanted in (
            ('[bot]\nnmae = "x"\n', "config.invalid"),
            ('[bot]\npersona_file = "none.md"\n', "config.persona"),
            ('[budget]\ncurrency = "EUR"\n', "config.budget"),
            ('[model]\nname = "nobody/x"\n', "model.unknown"),
        ):
            config(home, text)
            mend(checkup(home), wanted, tmp_path, text=right)
        config(home, '[model]\napi_key = "canary"\n')
        home.config.chmod(0o644)
        mend(checkup(home), "config.open", tmp_path)

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
            settings = Settings(health=HealthSettings(port=ports[0]))
            with WriterLock(home):  # the bot of this home has it
                assert list(check_ports(settings, home, home.config)) == []
            assert list(check_ports(Settings(), home, home.config)) == []


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

    @plants("channel.nobody")
    @mends("channel.nobody")
    def test_one_on_which_nobody_can_ever_speak(self, home: Home, tmp_path: Path) -> None:
        silent = f'[channels.telegram]\ntoken = "{TOKEN}"\npairing = false\n'
        config(home, silent)
        mend(checkup(home), "channel.nobody", tmp_path, text=f"{silent}owners = [42]\n")
        config(home, silent)
        command = ["bubbot", "access", "grant", "telegram", "42", "member"]
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
        assert "channel.nobody" not in found(checkup(home)())

    @mends("platform.refused")
    def test_one_whose_token_is_refused(self, home: Home, tmp_path: Path) -> None:
        with platform() as server:
            config(home, f'[channels.telegram]\ntoken_file = "token"\nbase_url = "{server.base_url}"\n')
            (home.path / "token").touch(0o600)
            (home.path / "token").write_text(OTHER)

            def online() -> Iterable[Finding]:
                return examine(home, None, now=START, deep=False, online=True).findings

            mend(online, "platform.refused", tmp_path, data=server.bot.token)
            assert "platform.ok" in found(online())


class TestCredentials:
    @plants("channel.credential", "channel.hidden_token")
    def test_a_token_that_systemd_hands_over_is_not_missing(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config(home, "[channels.telegram]\n")
        runtime, store = tmp_path / "run", tmp_path / "credstore"
        unit = rendered("bubbot.service", python=Path(sys.executable), home=home.path, config=None)
        monkeypatch.setattr("bubbot.doctor.credentials.told", lambda words: unit if "--system" in words else None)
        monkeypatch.setattr("bubbot.doctor.credentials.RUNTIME", runtime)
        monkeypatch.setattr("bubbot.doctor.credentials.CREDSTORE", store)
        assert "channel.hidden_token" in found(checkup(home)())  # nobody can look there
        store.mkdir()
        assert "channel.no_token" in found(checkup(home)())
        (store / "bubbot.channels.telegram.token").write_text(TOKEN)
        assert "channel.credential" in found(checkup(home)())
        folder = runtime / "credentials" / "bubbot.service"
        folder.mkdir(parents=True)
        (folder / "channels.telegram.token").write_text(TOKEN)
        assert {"channel.ok"} == {one for one in found(checkup(home)()) if one.startswith("channel")}
        assert service_credentials(Home(tmp_path / "other")) == ServiceCredentials()


class TestDatabase:
    @mends("database.empty", "database.unusable", "database.damaged")
    def test_one_that_cannot_be_used(self, home: Home, tmp_path: Path) -> None:
        def check() -> Iterable[Finding]:
            return read_database(home, now=START, deep=False)[1]

        home.database.write_bytes(b"")
        mend(check, "database.empty", tmp_path, data="hello\n")
        home.database.write_bytes(b"no database at all" * 100)
        mend(check, "database.damaged", tmp_path)
        home.database.mkdir()
        mend(check, "database.unusable", tmp_path)

    @mends("backup.none", "home.quarantine")
    def test_one_without_a_backup_and_one_restored_from_it(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = [sys.executable, "-m", "bubbot"]
        subprocess.run([*run, "ask", "hello"], check=True, capture_output=True)
        mend(checkup(home, days=3650), "backup.none", tmp_path)
        (copy,) = (home.path / "backups").iterdir()
        other = Home(tmp_path / "other")
        subprocess.run([*run, "--home", str(other.path), "restore", str(copy)], check=True, capture_output=True)
        monkeypatch.setenv("BUBBOT_HOME", str(other.path))
        mend(checkup(other), "home.quarantine", tmp_path)


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
