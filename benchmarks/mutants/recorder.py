"""A pytest plugin: records how tests end, and which one runs now.

`MUTANTS_OUT` names the folder it writes to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from benchmarks.mutants import reached

FAILURE = "failure.json"
"""The first failure."""
RESULTS = "results.json"
"""The tests that passed, with their duration, and those that failed."""
TESTS = "tests.json"
"""All tests, in the order of their numbers."""
CHOSEN = "chosen.json"
"""The tests to run, in this order; without it all."""


class Recorder:
    """See the module."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._skipped: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._reached = reached.start()
        self._chosen = out / CHOSEN

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the chosen tests. To name thousands in the command line takes pytest minutes."""
        if not self._chosen.exists():
            return
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in json.loads(self._chosen.read_text()) if name in by_name]
        for item in items:  # a share of a table was chosen when they were recorded
            item.own_markers[:] = [marker for marker in item.own_markers if marker.name != "sampled"]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Number the tests."""
        names = [item.nodeid for item in session.items]
        self._numbers = {name: place for place, name in enumerate(names, 1)}
        (self._out / TESTS).write_text(json.dumps(names))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Attribute what runs now to this test."""
        if self._reached is None:
            return (yield)
        self._reached.run(self._numbers[item.nodeid])
        try:
            return (yield)
        finally:
            self._reached.run(0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the first failure: a file that cannot be imported."""
        if report.failed:
            self._keep_failure(report.nodeid, str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how long a test took, and the first failure."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.skipped:
            self._skipped.add(report.nodeid)
        elif report.failed:
            self._failed.add(report.nodeid)
            self._keep_failure(report.nodeid, str(report.longrepr))

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        passed = {name: seconds for name, seconds in self._seconds.items() if name not in self._failed | self._skipped}
        results = {"passed": passed, "failed": sorted(self._failed)}
        (self._out / RESULTS).write_text(json.dumps(results))

    def _keep_failure(self, test: str, words: str) -> None:
        file = self._out / FAILURE
        if not file.exists():
            file.write_text(json.dumps({"test": test, "words": words}))


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    if out := os.environ.get("MUTANTS_OUT", ""):
        config.pluginmanager.register(Recorder(Path(out)), "mutants-recorder")
