"""`bubbot service`: whose service is meant."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from bubbot.cli import service


@pytest.mark.parametrize(
    ("uid", "options", "of_user"),
    [(0, [], False), (1000, [], True), (1, [], True), (0, ["--user"], True), (1000, ["--system"], False)],
)
def test_it_is_that_of_the_system_for_root_and_that_of_the_user_for_others(
    uid: int, options: list[str], of_user: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def show_status(_home: Path, *, user: bool) -> int:
        seen.append(user)
        return 0

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(service, "_show_status", show_status)
    parser: Any = argparse.ArgumentParser()
    service.configure(parser)
    args = parser.parse_args(["status", *options], argparse.Namespace(home=tmp_path))
    assert service.run(args) == 0
    assert seen == [of_user]
