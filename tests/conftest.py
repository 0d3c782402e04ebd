"""What every test can ask for: clock, ids, stores; the option --proof; the versions in the report's header."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
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

PROOF_TIMEOUT_SECONDS = 3600
"""How long one test of the long versions may take."""
LONG = (
    "tests/quality/test_checks.py::test_mypy",
    "tests/docs/test_readme.py::test_a_page_runs",
    "tests/e2e/test_kill_",
    "tests/property/test_store_machine.py",
    "tests/property/test_fork_merge.py",
    "tests/property/test_privacy.py",
    "tests/property/test_gateway_machine.py",
    "tests/property/test_query_equivalence.py",
    "tests/e2e/test_own_channel.py",
    "tests/e2e/test_control_clients.py",
    "tests/e2e/test_disks.py",
    "tests/e2e/test_bench.py::test_every_row",
    "tests/e2e/test_planted_failures.py",
    "tests/e2e/test_status.py::test_a_model_that_still_loads",
    "tests/e2e/test_plugins.py::TestFeature",
    "tests/e2e/test_doctor.py::test_a_token_that_is_refused_later",
    "tests/e2e/test_litellm_secrets.py",
    "tests/e2e/test_openai_client.py",
    "tests/e2e/test_restore.py",
    "tests/unit/models/local/test_model.py",
    "tests/quality/test_timeout.py",
)
"""How the ids of tests begin that take seconds: they come first, so that no worker ends with one alone."""


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
"""Room that must be free in memory before the files of tests go there; a run needs a third of it at most."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="also run the long versions, with thousands of examples")


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
    if config.getoption("numprocesses", default=None):
        # Else every worker and every bot compiles everything again. A run in one process (mutants) stays as it was asked.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    quiet = hypothesis.settings(
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    hypothesis.settings.register_profile("default", quiet, max_examples=15)
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
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is imported for tests is ever garbage: the collector need not look at it, now and later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin with other files: in a new clone one compiles what the others then find compiled."""
    report = yield
    worker, workers = _worker()
    if workers and isinstance(collector, pytest.Directory) and report.passed:
        first = len(report.result) * worker // workers
        report.result = [*report.result[first:], *report.result[:first]]
    return report


def _worker() -> tuple[int, int]:
    """Return the number of this worker, and of how many; of none in a run without workers."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(name), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))


def pytest_xdist_auto_num_workers() -> int:
    """Run two workers a core, at most eight: half the time of a test that starts a bot is waiting."""
    return min(8, 2 * (os.cpu_count() or 1))


def pytest_report_header(config: pytest.Config) -> str:
    length = "proof" if config.getoption("--proof") else "default"
    return f"bubbot: Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {length} length"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--proof"):
        for item in items:
            if item.get_closest_marker("proof") or item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROOF_TIMEOUT_SECONDS), append=False)
        return
    long = [item for item in items if item.get_closest_marker("proof")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("proof")]
    if workers := _worker()[1]:
        items.sort(key=lambda item: item.path)  # each worker collects the files in another order
        items[:] = _dealt(items, workers)


def _dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the long tests to the workers, each of which begins with its part of the list.

    The tests that use litellm follow together, so that one worker loads it; the others stay beside their neighbours.
    """
    long = [item for item in items if item.nodeid.startswith(LONG)]
    rest = [item for item in items if not item.nodeid.startswith(LONG)]
    rest.sort(key=lambda item: not _uses_litellm(item))
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        first = long[worker::workers]
        share = (len(items) - len(dealt)) // (workers - worker) - len(first)
        dealt += [*first, *rest[: max(0, share)]]
        rest = rest[max(0, share) :]
    return [*dealt, *rest]


def _uses_litellm(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    is_its_way = callspec is not None and callspec.params.get("model_path") == "litellm"
    return is_its_way or "loaded_litellm" in getattr(item, "fixturenames", ())


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


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """Each store in turn: what the port promises, all of them keep."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def tape(memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds) -> TapeService:
    """A tape in memory, for tests that want no I/O."""
    return TapeService(memory_store, "tape", now=clock, new_id=ids, session="stdin:default")
