"""A home in which everything has happened, and its exports in each format: made once for the tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.learn.exports import export_all
from tests.learn.home import LearnHome, live
from tests.trace.home import apart


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> LearnHome:
    return apart(live(tmp_path_factory.mktemp("learn") / "home"))


@pytest.fixture(scope="session")
def exports(home: LearnHome, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return export_all(home, tmp_path_factory.mktemp("exports"))
