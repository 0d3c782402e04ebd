"""The names of sessions on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.cli.main import main


def test_a_name_has_a_limit_that_the_error_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(tmp_path), "ask", "hello", "--session", f"stdin:{'x' * 201}"]) == 2
    assert "201 characters: use 200 at most" in capsys.readouterr().err
