"""A pytest plugin: run the tests in forks of the process that has collected them. `-n` says in how many.

Everything is imported and collected once, and each worker takes the next piece of the list when it has done the last:
so no piece waits behind a long test, and a worker that dies costs the test it ran. docs/decisions/0030-tests-in-forks.md
tells why this is not pytest-xdist.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import SimpleNamespace
from typing import Any

import pytest

FORK = multiprocessing.get_context("fork")
PIECE = struct.Struct("H")
"""The number of a piece in the pipe that holds those nobody has taken."""
PIECES_A_WORKER = 8
"""How many pieces there are at least for each worker, if there are enough tests."""
END_SECONDS = 30.0
"""How long workers may take to clean up."""
NOTHING = -1
PASSED = ("when", "duration", "start", "stop")
"""What is told of a part of a test that passed."""


SECONDS = (
    ("tests/quality/test_checks.py::test_mypy", 30.0),
    ("tests/quality/", 2.0),
    ("tests/e2e/", 0.3),
    ("tests/property/test_long_talk.py", 8.0),
    ("tests/property/test_privacy.py", 1.5),
    ("tests/property/", 0.5),
    ("tests/golden/", 1.0),
    ("tests/docs/", 0.15),
    ("tests/contract/", 0.03),
    ("tests/unit/cli/test_loading.py", 0.5),
    ("tests/unit/features/schedule/test_timer.py", 0.25),
    ("tests/unit/features/search/test_search_quality.py", 2.0),
    ("tests/unit/features/shell/test_tools.py", 0.1),
    ("tests/unit/features/strategies/test_compact.py", 0.3),
    ("tests/unit/features/usage/test_chart.py", 0.5),
    ("tests/unit/features/web/test_tools.py", 0.15),
    ("tests/unit/models/local/test_model.py", 0.5),
    ("tests/unit/ops/doctor/test_fixes.py", 0.2),
    ("tests/unit/stores/sqlite/test_index.py", 0.2),
    ("", 0.03),
)
"""How long a test takes, about, by the beginning of its id; the first that fits. What is longest comes first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `-n`."""
    # pytest keeps small letters for itself; this one is what everybody types.
    parser.getgroup("workers")._addoption(
        "-n",
        "--workers",
        dest="workers",
        default="auto",
        metavar="COUNT",
        help="run the tests in this many processes; 0 runs them in this one; by default three for each processor, at most 8",
    )


def count_workers(config: pytest.Config) -> int:
    """Return how many workers a run has; 0 if it needs none."""
    chosen: str = config.getoption("workers")
    if config.getoption("collectonly") or config.getoption("usepdb"):
        return 0
    # Half the time of a test that starts a bot is waiting: with two for each processor an eighth of their time was unused.
    return min(8, 3 * (os.cpu_count() or 1)) if chosen == "auto" else int(chosen)


def runs_everything(config: pytest.Config) -> bool:
    """Return true if no tests were chosen, and workers run them: then what every run needs can begin early."""
    chosen = config.option.keyword or config.option.markexpr or config.args_source is not config.ArgsSource.TESTPATHS
    return not chosen and count_workers(config) > 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers, unless there is one piece of work only."""
    workers = count_workers(session.config)
    if workers == 0 or session.testsfailed:
        return None
    pieces = cut(session.items, workers * PIECES_A_WORKER)
    if len(pieces) < 2:
        return None
    Run(session, pieces, min(workers, len(pieces))).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the tests that use litellm together, so that few workers load it."""
    if count_workers(config):
        items.sort(key=_uses_litellm)


def _uses_litellm(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    is_its_way = callspec is not None and callspec.params.get("model_path") == "litellm"
    # openai's client is a part of what litellm loads.
    return is_its_way or not {"loaded_litellm", "loaded_openai"}.isdisjoint(getattr(item, "fixturenames", ()))


def cut(items: Sequence[pytest.Item], least: int) -> list[range]:
    """Cut the list of tests into pieces, at least so many if there are as many tests; the longest come first.

    A piece ends with its file, or if it is long; the tests that use litellm are one, as loading it takes seconds.
    """
    seconds = [_estimate(item) for item in items]
    longest = sum(seconds) / least
    files = ["litellm" if _uses_litellm(item) else item.path for item in items]
    pieces: list[range] = []
    first, total = 0, 0.0
    for place, file in enumerate(files):
        is_long = total + seconds[place] > longest and file != "litellm"
        if place > first and (file != files[first] or is_long):
            pieces.append(range(first, place))
            first, total = place, 0.0
        total += seconds[place]
    pieces.append(range(first, len(items)))
    return sorted(pieces, key=lambda piece: -sum(seconds[place] for place in piece))


def _estimate(item: pytest.Item) -> float:
    return next(seconds for beginning, seconds in SECONDS if item.nodeid.startswith(beginning))


class Run:
    """The workers of a session, and what they report."""

    def __init__(self, session: pytest.Session, pieces: Sequence[range], workers: int) -> None:
        self._session = session
        self._pieces = pieces
        self._running = RawArray("l", [NOTHING] * workers)
        self._stop = FORK.Event()
        self._source, sink = os.pipe()
        # A pipe holds 64 kB: more pieces than anybody has tests.
        os.write(sink, b"".join(PIECE.pack(number) for number in range(len(pieces))))
        os.close(sink)
        self._workers: dict[Connection, tuple[int, Any]] = {}
        self._selector = DefaultSelector()
        self._heard: set[int] = set()
        self._forks = 0
        self._folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self) -> None:
        """Run all tests, or until the session is to stop."""
        if reporter := self._session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False  # files alternate
        for number in range(len(self._running)):
            self._start(number, ())
        try:
            while self._workers:
                for key, _ in self._selector.select():
                    link = key.fileobj
                    assert isinstance(link, Connection)
                    if not self._hear(link):
                        self._bury(link)
                if self._session.shouldfail or self._session.shouldstop:
                    self._stop.set()
        finally:
            self._end()

    def _start(self, number: int, first: Sequence[int]) -> None:
        assert threading.active_count() == 1, f"no thread would survive the fork: {threading.enumerate()}"
        link, other = FORK.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self._forks += 1
        folder = self._folder / f"w{self._forks}"
        worker = Worker(self._session, number, folder, self._pieces, self._source, self._running, self._stop)
        process = FORK.Process(target=worker.run, args=(first, other))
        process.start()
        other.close()
        self._workers[link] = number, process
        self._selector.register(link, EVENT_READ)

    def _hear(self, link: Connection) -> bool:
        """Take what a worker reports of one test; return false if it has ended."""
        try:
            place, reports = link.recv()
        except EOFError:
            return False
        self._heard.add(place)
        item, hook = self._session.items[place], self._session.config.hook
        told = item.ihook  # found anew each time
        told.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            if isinstance(data, dict):
                report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            else:
                report = pytest.TestReport(
                    item.nodeid, item.location, {}, "passed", None, **dict(zip(PASSED, data, strict=True))
                )
            told.pytest_runtest_logreport(report=report)
        told.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _bury(self, link: Connection) -> None:
        """Report the test in which a worker died, if it did, and let another one go on behind it."""
        number, process = self._workers.pop(link)
        self._selector.unregister(link)
        link.close()
        process.join()
        if process.exitcode == 0:
            return
        place, self._running[number] = self._running[number], NOTHING
        assert place != NOTHING, f"a worker ended with {process.exitcode} before its first test"
        item = self._session.items[place]
        words = f"the process that ran this test ended with {process.exitcode}"
        if place in self._heard:
            words += ", behind the test; what it printed is above"
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", words, "teardown" if place in self._heard else "call"
        )
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        piece = next(piece for piece in self._pieces if place in piece)
        self._start(number, range(place + 1, piece.stop))

    def _end(self) -> None:
        """End workers that still run: after Ctrl-C, or an error of ours."""
        os.close(self._source)
        self._selector.close()
        for _, process in self._workers.values():
            os.kill(process.pid, signal.SIGINT)
        for _, process in self._workers.values():
            process.join(END_SECONDS)
            process.kill()


class Worker:
    """One process that runs tests."""

    def __init__(
        self,
        session: pytest.Session,
        number: int,
        folder: Path,
        pieces: Sequence[range],
        source: int,
        running: Any,
        stop: Any,
    ) -> None:
        self._session = session
        self._number = number
        self._folder = folder
        self._pieces = pieces
        self._source = source
        self._running = running
        self._stop = stop
        self._reports: list[object] = []

    def run(self, first: Sequence[int], link: Connection) -> None:
        """Run these tests, then piece after piece."""
        config = self._session.config
        self._separate(config)
        try:
            self._run_tests(first, link)
            while number := os.read(self._source, PIECE.size):
                self._run_tests(self._pieces[PIECE.unpack(number)[0]], link)
        except KeyboardInterrupt:
            pass
        finally:
            _plugin(config, "runner").pytest_sessionfinish(self._session)
            gc.collect()
            # What fails in the end of an object is raised before the next test; behind the last one, by this.
            _plugin(config, "unraisableexception").collect_unraisable(config)

    def _separate(self, config: pytest.Config) -> None:
        """Take nothing from the other workers: neither their output nor their folders."""
        plugins, writer = config.pluginmanager, config.get_terminal_writer()
        plugins.unregister(name="terminalreporter")
        plugins.register(SimpleNamespace(_tw=writer), "terminalreporter")  # where `config` looks for the writer
        plugins.register(self, "worker")
        if capture := plugins.get_plugin("capturemanager"):
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        config.option.basetemp = str(self._folder)
        _plugin(config, "tmpdir").pytest_configure(config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep it for the session: all of it, unless there is nothing to say but that something passed."""
        config = self._session.config
        is_plain = report.passed and not (report.sections or report.user_properties or report.longrepr)
        if is_plain and type(report) is pytest.TestReport and not hasattr(report, "wasxfail"):
            # Nobody looks at the beginning and the end of most tests, of which there are ten thousand.
            if report.when == "call" or config.option.durations is not None:
                self._reports.append(tuple(getattr(report, name) for name in PASSED))
            return
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def _run_tests(self, places: Sequence[int], link: Connection) -> None:
        items = self._session.items
        for place in places:
            if self._stop.is_set():
                return
            item = items[place]
            is_last = place == places[-1]
            # What is shared in the session stays for the next piece, which nobody knows yet.
            following: Any = self._session if is_last else items[place + 1]
            self._running[self._number] = place
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            link.send((place, self._reports))
            self._reports = []


def _plugin(config: pytest.Config, name: str) -> Any:
    return config.pluginmanager.get_plugin(name)
