"""What every test can ask for: clock, ids, stores; the option --proof; the versions in the report's header."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import platform
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck

from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.e2e import forked
from tests.postgres_server import PostgresServer, copied_database, find_programs, make_template, shared_server

PROOF_TIMEOUT_SECONDS = 3600
"""How long one test of the long versions may take."""
GC_THRESHOLDS = (20_000, 20, 50)
"""How seldom garbage is collected: at the usual 700 it took a twelfth of a unit test, with hypothesis, which counts it."""
REAPING_SECONDS = 5.0
"""How long after its test an ended process may wait for the thread that waits for it."""
_TOLD = set[str]()
"""The ended processes that a test was failed for: the tests after it are not."""
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
"""Room that must be free in memory before the files of tests go there; a run needs a third of it at most."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="also run the long versions, with thousands of examples")
    parser.addoption("--part", metavar="K/N", type=_read_part, help="run the Kth of N parts of the files, such as 3/12")


def _read_part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write K/N with K from 1 to N, such as 3/12")
    return int(number), int(count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports travel between processes as UTF-8; what tests print on purpose need not be that."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that runs us in the background sets that
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else no child of a test would hear Ctrl-C
    if config.getoption("--proof"):
        os.environ[forked.ANEW] = "yes"
    elif _has_room_in_memory():
        # A process that is killed loses nothing there either; only who cuts the power would see the difference.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if config.getoption("numprocesses"):
        # Else every bot compiles everything again, and pytest rewrites the assertions of each test file, which takes longer than
        # all the rest of the collection. A run in one process stays as it was asked.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
    quiet = hypothesis.settings(
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    hypothesis.settings.register_profile("default", quiet, max_examples=10)
    hypothesis.settings.register_profile("proof", quiet, max_examples=1000, derandomize=False)
    hypothesis.settings.load_profile("proof" if config.getoption("--proof") else "default")


def _has_room_in_memory() -> bool:
    """Whether files of tests may be in memory: programs among them must be allowed to run there."""
    try:
        disk = os.statvfs(MEMORY)
    except OSError:
        return False
    is_ours = os.access(MEMORY, os.W_OK | os.X_OK) and not disk.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return is_ours and disk.f_bavail * disk.f_frsize >= MEMORY_BYTES


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect. Nothing of what is imported for tests is ever garbage: the collector need not look at it, now and later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    return result


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Half the time of a test that starts a bot is waiting: two workers for each processor, and none for tests of one file.

    The long versions compute, and kill what they measure: one worker for each processor.
    """
    chosen = [name for name in config.args if name.partition("::")[0].endswith(".py")]
    processors = os.cpu_count() or 1
    return 0 if chosen else processors if config.getoption("--proof") else min(8, 2 * processors)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Fail a test that leaves an ended process unwaited for: it would be a stranger among the children of a later one."""
    result = yield
    deadline = time.monotonic() + REAPING_SECONDS
    while ended := [stat for stat in _list_ended_children() if stat not in _TOLD]:
        if time.monotonic() > deadline:
            _TOLD.update(ended)
            pytest.fail(f"nobody waited for ended processes: {ended}", pytrace=False)
        time.sleep(0.01)
    return result


def _list_ended_children() -> list[str]:
    """Describe the zombies of this process, each as in `/proc/PID/stat`."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that ended
            for pid in (task / "children").read_text().split():
                with suppress(OSError):
                    stat = Path(f"/proc/{pid}/stat").read_text()
                    if stat.rpartition(")")[2].split()[0] == "Z":
                        found.append(stat[:60])
    return found


def pytest_report_header(config: pytest.Config) -> str:
    length = "proof" if config.getoption("--proof") else "default"
    return f"bubbot: Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {length} length"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        number, count = part
        chosen = set(sorted({item.path for item in items})[number - 1 :: count])
        config.hook.pytest_deselected(items=[item for item in items if item.path not in chosen])
        items[:] = [item for item in items if item.path in chosen]
    if config.getoption("--proof"):
        for item in items:
            if item.get_closest_marker("proof") or item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROOF_TIMEOUT_SECONDS), append=False)
        return
    long = {item for item in items if item.get_closest_marker("proof")} | _list_left_cases(items)
    if long:
        config.hook.pytest_deselected(items=[*long])
        items[:] = [item for item in items if item not in long]


def _list_left_cases(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the cases that the marker `sampled` leaves to the proof. A case that was chosen alone is the first: it runs."""
    left, places = set[pytest.Item](), Counter[str]()
    for item in items:
        if marker := item.get_closest_marker("sampled"):
            function = item.nodeid.partition("[")[0]
            if places[function] % marker.args[0]:
                left.add(item)
            places[function] += 1
    return left


@pytest.fixture(autouse=True)
def _untouched_loggers() -> Iterator[None]:
    """Undo `log.setup`, whose levels would hide what the next test looks for."""
    loggers = [logging.getLogger(name) for name in ("", "bubbot", "channels")]
    before = [(logger, logger.level) for logger in loggers]
    yield
    for logger, level in before:
        if logger.level != level:  # to set it costs more than the fixture
            logger.setLevel(level)


@pytest.fixture
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come only from what the test writes, and not from the environment of the person who runs it."""
    for name in os.environ:
        if name.startswith("BUBBOT_") or name == "CREDENTIALS_DIRECTORY":
            monkeypatch.delenv(name)


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def ids() -> CountingIds:
    return CountingIds()


@pytest.fixture
def memory_store() -> InMemoryStore:
    """A store in memory; it leaves gaps between positions, so that a test fails if somebody counts with them."""
    return InMemoryStore(position_step=3)


@pytest.fixture
def sharded_store() -> InMemoryStore:
    """A store in memory that spreads system tapes over eight shards."""
    return InMemoryStore(position_step=3, tape_shards=8)


@pytest.fixture(scope="session")
def loaded_litellm() -> None:
    """litellm, which takes seconds to load: only in a process whose tests use it, and outside of their time limits."""
    gc.disable()
    from bubbot.models.litellm import model  # noqa: F401

    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that holds nothing yet; a copy of it is open sooner than one that has to be made."""
    path = tmp_path_factory.mktemp("new") / "bubbot.db"

    async def make() -> None:
        await (await open_store(path, salt=CountingSalt(), now=SteppingClock())).aclose()

    asyncio.run(make())
    return path


@pytest.fixture
async def sqlite_store(new_database: Path, tmp_path: Path, clock: SteppingClock) -> AsyncIterator[SqliteStore]:
    """A new database at `tmp_path / "bubbot.db"`, open for writing."""
    path = Path(shutil.copy(new_database, tmp_path))
    store = await open_store(path, salt=CountingSalt(), now=clock)
    yield store
    await store.aclose()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The PostgreSQL server of this run, which has a database for copies, with the schema and nothing else."""
    programs = find_programs()
    if programs is None:
        pytest.fail("no PostgreSQL here: install the extra dev, or the system's")
    folder = tmp_path_factory.getbasetemp()
    run_folder = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder
    with shared_server(run_folder, programs) as server:
        make_template(server)
        yield server


@pytest.fixture
def postgres_address(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database with the schema, for the owner of it."""
    with copied_database(postgres_server) as address:
        yield address


@pytest.fixture
async def postgres_store(postgres_address: str, clock: SteppingClock) -> AsyncIterator[TapeStore]:
    """A store on an empty database."""
    from bubbot.stores.postgres.store import open_store as open_on_server

    store = await open_on_server(postgres_address, salt=CountingSalt(), now=clock)
    yield store
    await store.aclose()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """Each store in turn: what the port promises, all of them keep."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def tape(memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds) -> TapeService:
    """A tape in memory, for tests that want no I/O."""
    return TapeService(memory_store, "tape", now=clock, new_id=ids, session="stdin:default")
