"""The man page: up to date, complete by `--help`, and without warnings of the formatter."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from bubbot.app.command_table import COMMANDS
from tests.command_line import own_params, walk
from tests.docs.manual_page import PAGE, write_manual


def test_it_is_what_the_declarations_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_manual(), "python -m tests.docs.manual_page writes it again"


@pytest.mark.parametrize("name", COMMANDS)
def test_it_has_every_command_and_option(name: str) -> None:
    shown = {
        option for _, command in walk(name) for param in own_params(command) for option in param.opts if "-" in option
    }
    shown |= {path for path, _ in walk(name)}
    page = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    assert sorted(word for word in shown if word not in page) == []


def test_man_shows_it_without_warnings() -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man here")
    done = subprocess.run(
        ["man", "--warnings", "-l", PAGE],
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "bubbot service install" in re.sub(r".\x08", "", done.stdout)
