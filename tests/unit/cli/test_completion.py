"""Completion: what each argument is completed with, the names of a home, and where a script is put."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbot.app.tapes import new_id, now, open_tapes
from bubbot.cli.main import main
from bubbot.home import Home
from bubbot.settings.loader import Settings
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService, session_tape
from tests.docs.pages import ROOT


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with two sessions of the terminal, one of Telegram, an archive, and two jobs, one of them removed."""
    home = Home(tmp_path / "home")
    home.ensure()
    monkeypatch.setenv("BUBBOT_HOME", str(home.path))

    async def fill() -> None:
        async with open_tapes(home, Settings().store, write=True) as (store, workspace):
            for session in ("stdin:default", "stdin:a b", "telegram:42"):
                name = session_tape(workspace, session)
                await TapeService(store, name, now=now, new_id=new_id, session=session).ensure_bootstrap_anchor()
            tape = TapeService(store, "bubbot/schedule", now=now, new_id=new_id)
            await tape.append(
                [
                    event("schedule/added", {"job": "abc123", "name": "Tea"}),
                    event("schedule/added", {"job": "def456", "name": ""}),
                    event("schedule/changed", {"job": "abc123", "name": "Tea time"}),
                    event("schedule/added", {"job": "fff000", "name": "Gone"}),
                    event("schedule/removed", {"job": "fff000"}),
                ]
            )

    asyncio.run(fill())
    return home


@pytest.fixture
def offer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """A function that returns what bash is offered for a line."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("_BUBBOT_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"{line}''" if line.endswith(" ") else line)
        monkeypatch.setenv("COMP_CWORD", "-1")
        assert main([]) == 0
        monkeypatch.delenv("_BUBBOT_COMPLETE")
        return [found.removeprefix("plain,") for found in capsys.readouterr().out.splitlines()]

    return complete


def test_words_options_and_choices_are_offered(offer: Callable[[str], list[str]]) -> None:
    assert offer("bubbot sched") == ["schedule"]
    assert offer("bubbot tape ver") == ["verify"]
    assert offer("bubbot --pl") == ["--plain"]
    assert {"--json", "--home"} <= {*offer("bubbot tape show --")}
    assert offer("bubbot usage --by ") == ["chat", "user", "job", "agent", "model", "day"]
    assert offer("bubbot usage --by=mo") == ["model"]
    assert offer("bubbot access approve --role a") == ["admin"]
    assert offer("bubbot tape search default ") == []
    for line in ("tape import ta", "init --api-key-file k", "backup b", "--home h"):
        assert offer(f"bubbot {line}") == [f"file,{line.rpartition(' ')[2]}"]


def test_sessions_are_offered_in_the_form_that_a_command_takes(home: Home, offer: Callable[[str], list[str]]) -> None:
    assert offer("bubbot memory show ") == ["telegram:42", "a b", "default"]
    assert offer("bubbot memory show stdin:") == ["stdin:a b", "stdin:default"]
    assert offer("bubbot schedule add ") == ["telegram:42", "stdin:a b", "stdin:default"]
    assert offer("bubbot ask --session ") == ["a b", "default"]
    assert offer("bubbot ask hello --session d") == ["default"]


def test_tapes_without_a_session_and_jobs_that_exist(home: Home, offer: Callable[[str], list[str]]) -> None:
    assert offer("bubbot tape show bubbot/s") == ["bubbot/schedule"]
    assert offer("bubbot tape show --last 3 t") == ["telegram:42"]
    assert offer("bubbot schedule show ") == ["Tea time", "abc123", "def456"]


def test_an_archive_is_a_tape_and_no_session(
    home: Home, offer: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tape", "archive", "default"]) == 0
    name = capsys.readouterr().out.strip()
    assert name in offer("bubbot tape show ")
    assert name not in offer("bubbot memory show ")


def test_the_home_that_the_line_names_counts(
    home: Home, tmp_path: Path, offer: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_HOME", str(tmp_path / "none"))
    assert offer("bubbot schedule show ") == []
    assert offer(f"bubbot --home {home.path} schedule show d") == ["def456"]
    assert offer(f"bubbot schedule --home={home.path} show d") == ["def456"]


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_what_cannot_be_read_offers_nothing(
    content: bytes | None, tmp_path: Path, offer: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_HOME", str(tmp_path))
    if content is not None:
        (tmp_path / "bubbot.db").write_bytes(content)
    for line in ("memory show", "tape show", "schedule show"):
        assert offer(f"bubbot {line} ") == []
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["bubbot.db"])


def test_the_words_are_offered_without_their_commands() -> None:
    code = (
        "import sys; sys.argv = ['bubbot']\n"
        "from bubbot.__main__ import main; main(); print(*sorted(sys.modules), file=sys.stderr)"
    )
    request = {"_BUBBOT_COMPLETE": "bash_complete", "COMP_WORDS": "bubbot ''", "COMP_CWORD": "-1", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=request, capture_output=True, text=True, check=True
    )
    assert "plain,memory" in done.stdout
    assert not {"pydantic", "asyncio", "sqlite3"} & set(done.stderr.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_put_where_its_shell_looks(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for _ in range(2):
        assert main(["completion", shell, "--install"]) == 0
    out = capsys.readouterr().out
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "home" not in path.parts]
    assert [file.read_text(encoding="utf-8") for file in files] == [script]
    assert str(files[0]) in out
    assert "_BUBBOT_COMPLETE" in script


def test_a_folder_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert main(["completion", "bash", "--install"]) == 2
    assert "bubbot completion bash > FILE" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bash_script() -> bytes:
    """What `bubbot completion bash` prints."""
    command = [sys.executable, "-m", "bubbot", "completion", "bash"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout


@pytest.mark.sampled(7)
@pytest.mark.parametrize("quote", ["", '"', "'"])
@pytest.mark.parametrize(
    "name", ["Ev$(touch owned)", "Ev`touch owned`", "Ev';touch owned;'", 'Ev";touch owned;"', "Ev!1"]
)
def test_a_name_that_others_chose_runs_nothing_in_bash(
    bash_script: bytes, tmp_path: Path, name: str, quote: str
) -> None:
    """People in chats name their jobs; bash puts what is offered within quotes into the line as it is."""
    (tmp_path / "bubbot").write_text(f"#!/bin/sh\ncat <<'END'\nplain,{name}\nplain,Evening\nEND\n")
    (tmp_path / "bubbot").chmod(0o755)
    (tmp_path / "script").write_bytes(bash_script)
    word = f"{quote}Ev"
    typed = shlex.quote(word)
    program = (
        f"source ./script; COMP_WORDS=(./bubbot schedule show {typed}); COMP_CWORD=3; "
        f"COMP_LINE='./bubbot schedule show '{typed}; COMP_POINT=${{#COMP_LINE}}; _bubbot_completion 2>/dev/null; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    offered = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    lines = offered.splitlines()
    assert any("Evening" in line for line in lines)
    for line in lines:
        closed = f"{quote}{line.lstrip(quote)}{quote}" if quote else line
        done = subprocess.run(
            ["bash", "-c", f"printf %s {closed}"], cwd=tmp_path, capture_output=True, check=False, text=True
        )
        assert done.stdout in (name, "Evening"), line
    assert not (tmp_path / "owned").exists()
