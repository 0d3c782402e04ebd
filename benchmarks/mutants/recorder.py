"""A pytest plugin: records which test runs which line, and how tests end.

`MUTANTS_OUT` names the folder it writes to. With `MUTANTS_RECORD` set it measures coverage too, test by test; child
processes measure themselves (`sandbox.py`) and read from a file there which test they belong to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

CONTEXT = "context"
"""The file that names the test that runs."""
RESULTS = "results.json"
FAILURE = "failure.json"


class Recorder:
    """See the module."""

    def __init__(self, out: Path, *, measures: bool) -> None:
        self._out = out
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage: coverage.Coverage | None = None
        if measures:
            root = Path.cwd()
            sources = [str(root / "bubbot"), str(root / "channels")]
            self._coverage = coverage.Coverage(str(out / "data"), data_suffix=True, source=sources, config_file=False)
            self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Attribute what runs now to this test."""
        if self._coverage is not None:
            (self._out / CONTEXT).write_text(item.nodeid)
            self._coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the first failure: a file that cannot be imported."""
        if report.failed:
            self._keep_failure(report.nodeid, str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how long a test took, and the first failure."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)
        if report.failed:
            self._keep_failure(report.nodeid, str(report.longrepr))

    def pytest_sessionfinish(self) -> None:
        """Write the results."""
        if self._coverage is not None:
            self._coverage.stop()
            self._coverage.save()
        passed = {name: seconds for name, seconds in self._seconds.items() if name not in self._failed}
        (self._out / RESULTS).write_text(json.dumps(passed))

    def _keep_failure(self, test: str, words: str) -> None:
        file = self._out / FAILURE
        if not file.exists():
            file.write_text(json.dumps({"test": test, "words": words}))


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    out, measures = os.environ.pop("MUTANTS_OUT", ""), bool(os.environ.pop("MUTANTS_RECORD", ""))
    if out:
        config.pluginmanager.register(Recorder(Path(out), measures=measures), "mutants-recorder")
