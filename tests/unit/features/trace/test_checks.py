"""Doctor findings of the trace page. Each is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bubbot.home import Home
from tests.planting import found, look, mend, mends, plants


def check(home: Home) -> Any:
    """What is found under the settings of a home."""
    return look("trace", home)


def test_nothing_is_said_of_a_page_that_nobody_serves(home: Home) -> None:
    assert check(home) == []


@plants("trace.ok", "trace.readable_on_the_way")
@mends("trace.readable_on_the_way")
def test_a_page_that_is_read_on_its_way(home: Home, tmp_path: Path) -> None:
    home.config.write_text('[trace]\nport = 8766\nhost = "0.0.0.0"\n')
    assert "cross the network" in found(check(home))["trace.readable_on_the_way"].cause
    mend(lambda: check(home), "trace.readable_on_the_way", tmp_path, text="[trace]\nport = 8766\n")
    assert "http://127.0.0.1:8766" in found(check(home))["trace.ok"].cause


def test_a_proxy_that_speaks_https_is_fine(home: Home) -> None:
    home.config.write_text('[trace]\nport = 8766\nhost = "0.0.0.0"\nurl = "https://bot.example.org"\n')
    assert "https://bot.example.org" in found(check(home))["trace.ok"].cause


@plants("trace.key_readable")
@mends("trace.key_readable")
def test_a_key_that_others_can_read(home: Home, tmp_path: Path) -> None:
    home.config.write_text("[trace]\nport = 8766\n")
    key = home.path / "trace.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    assert str(key) in found(check(home))["trace.key_readable"].cause
    mend(lambda: check(home), "trace.key_readable", tmp_path, env={"BUBBOT_HOME": str(home.path)})
