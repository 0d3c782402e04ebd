"""Secrets of servers: where they are read, where they stand, and where they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bubbot import log
from bubbot.errors import ConfigError
from bubbot.features.mcp.commands import read_login, read_secrets
from bubbot.features.mcp.results import LoginArgs, TypedServerArgs
from bubbot.features.mcp.secrets import SECRETS_FILE, McpSecrets, ServerSecrets

ADDRESS = "https://docs.example.org/mcp"


class Files:
    """The files of a person."""

    def read_text(self, path: Path, limit: int, subject: str) -> str:
        assert subject.startswith("--")
        return path.read_text()[:limit]

    def read_stdin(self, limit: int) -> bytes:
        raise AssertionError


def test_values_come_from_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("Bearer one\n")
    monkeypatch.setenv("NOTES_KEY", "two-two")
    headers = (f"Authorization=@{tmp_path / 'key'}", "X-Key=env:NOTES_KEY")
    sent = read_secrets(TypedServerArgs("docs", ADDRESS, header=headers), Files())
    assert sent.headers == {"Authorization": "Bearer one", "X-Key": "two-two"}
    sent = read_secrets(TypedServerArgs("docs", "notes", env=("NOTES_KEY=env:NOTES_KEY",), network=True), Files())
    assert (sent.env, sent.network, sent.argv) == ({"NOTES_KEY": "two-two"}, True, ("notes",))


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("Authorization=Bearer secret", "a value does not belong on the command line"),
        ("Authorization=env:NO_SUCH_VARIABLE", "there is no variable NO_SUCH_VARIABLE"),
        ("Authorization", "there is no terminal to ask on"),
        ("no name=@x", "is no name"),
    ],
)
def test_a_secret_that_cannot_be_read_says_how(header: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigError, match=problem):
        read_secrets(TypedServerArgs("docs", ADDRESS, header=(header,)), Files())


def test_the_secret_of_a_registration_stands_on_no_command_line() -> None:
    with pytest.raises(ConfigError, match="does not belong on the command line"):
        read_login(LoginArgs("docs", "id", "hunter2"), Files())


def test_the_file_is_the_owners_alone_and_the_log_hides_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.setup("info", form="text")
    McpSecrets(tmp_path).put("docs", ServerSecrets({"Authorization": "Bearer hunter2hunter2"}))
    assert (tmp_path / SECRETS_FILE).stat().st_mode & 0o777 == 0o600
    assert McpSecrets(tmp_path).find("docs").headers == {"Authorization": "Bearer hunter2hunter2"}
    assert McpSecrets(tmp_path).find("other") == ServerSecrets()
    assert log.redact("it is hunter2hunter2") == "it is [redacted]"
    McpSecrets(tmp_path).put("docs", None)
    assert "hunter2" not in (tmp_path / SECRETS_FILE).read_text()


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_off_nothing_is_loaded_and_on_the_sdk_is_not(tmp_path: Path, enabled: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from bubbot.app.bot import open_app\n"
        "from bubbot.home import Home\n"
        "from tests.made_settings import make_settings\n"
        "from bubbot.features.mcp.settings import McpSettings\n"
        "from bubbot.settings.loader import ModelSettings\n"
        "async def run():\n"
        f"    settings = make_settings(McpSettings(enabled={enabled.title()}), model=ModelSettings(name='scripted'))\n"
        f"    async with open_app(settings, Home(Path({str(tmp_path)!r}))):\n"
        "        print(sorted(name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types')\n"
        "            or name.startswith(('bubbot.features.mcp.host', 'bubbot.sandbox'))))\n"
        "asyncio.run(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.strip().splitlines()[-1]
    assert loaded == "[]" if enabled == "false" else "'mcp'" not in loaded and "mcp_types" not in loaded
