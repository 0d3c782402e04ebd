"""Doctor findings of the web tools. Each is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from tests.planting import found, look, mend, mends, plants


def check(home: Home) -> Any:
    """What is found under the settings of a home."""
    return look("web", home)


def test_nothing_is_said_of_what_is_off(home: Home) -> None:
    assert check(home) == []


@plants("web.ok", "web.engine_unusable")
@mends("web.engine_unusable")
def test_an_engine_without_a_key(home: Home, tmp_path: Path) -> None:
    home.config.write_text('[tools.web]\nenabled = true\nengines = ["tavily", "ddgs"]\n')
    assert "names tavily" in found(check(home))["web.engine_unusable"].cause
    mend(lambda: check(home), "web.engine_unusable", tmp_path, text="[tools.web]\nenabled = true\n")
    assert "with ddgs" in found(check(home))["web.ok"].cause


@plants("web.packages_missing")
def test_packages_that_are_not_installed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bubbot.features.web.reading.find_spec", lambda name: None if name in ("trafilatura", "ddgs") else name
    )
    home.config.write_text("[tools.web]\nenabled = true\n")
    finding = found(check(home))["web.packages_missing"]
    assert "trafilatura, ddgs" in finding.cause
    assert "--require-hashes" in finding.fix
