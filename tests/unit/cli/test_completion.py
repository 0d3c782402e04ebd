"""Completion: the table, the names of a home, how little is loaded for them, and where a script is put."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbot.app.tapes import new_id, now, open_tapes
from bubbot.cli.completion.script import SHELLS, list_rows
from bubbot.cli.completion.values import SCHEDULE_TAPE, print_values
from bubbot.cli.main import COMMANDS, load_command, main
from bubbot.features.schedule import changes
from bubbot.home import Home
from bubbot.settings.sections import DEFAULT_STORE
from bubbot.stores.sqlite.lookup import list_tape_names
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
        async with open_tapes(home, DEFAULT_STORE, write=True) as (store, workspace):
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


def rows() -> Iterator[tuple[str, str, str, str]]:
    parsers = {name: (command.help, load_command(name)[0]) for name, command in COMMANDS.items()}
    for row in list_rows(parsers):
        path, word, values, text = row.split("|")
        yield path, word, values, text


def values(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert print_values(words) == 0
    return capsys.readouterr().out.splitlines()


def test_the_table_knows_what_each_argument_and_option_takes() -> None:
    table = {(path, word): values for path, word, values, _ in rows()}
    assert {name for (path, name), values in table.items() if path == "" and values == "command"} == set(COMMANDS)
    assert table["tape", "show"] == "command"
    assert table["tape show", "1"] == "tape"
    assert table["tape show", "--json"] == ""
    assert table["tape search", "*"] == "text"
    assert table["tape import", "1"] == "file"
    assert table["memory show", "1"] == "session"
    assert table["ask", "--session"] == "terminal"
    assert table["schedule add", "1"] == "chat"
    assert table["schedule show", "1"] == "job"
    assert table["usage", "--by"] == "=chat user job model day"
    assert table["init", "--api-key-file"] == "file"
    assert table["access approve", "--role"] == "=member admin owner"


def test_sessions_in_the_form_that_a_command_takes(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert values(capsys, "session", "") == ["telegram:42", "a b", "default"]
    assert values(capsys, "session", "stdin:") == ["stdin:a b", "stdin:default"]
    assert values(capsys, "chat", "") == ["telegram:42", "stdin:a b", "stdin:default"]
    assert values(capsys, "terminal", "") == ["a b", "default"]
    assert values(capsys, "session", "d") == ["default"]


def test_tapes_without_a_session_and_jobs_that_exist(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert values(capsys, "tape", "bubbot/s") == ["bubbot/schedule"]
    assert values(capsys, "tape", "t") == ["telegram:42"]
    assert values(capsys, "job", "") == ["Tea time", "abc123", "def456"]


def test_an_archive_is_a_tape_and_no_session(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tape", "archive", "default"]) == 0
    name = next(tape.name for tape in list_tape_names(home.database) if tape.is_archive)
    capsys.readouterr()
    assert name in values(capsys, "tape", "")
    assert name not in values(capsys, "session", "")


def test_the_home_that_the_line_names_counts(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_HOME", str(tmp_path / "none"))
    assert values(capsys, "job", "") == []
    assert values(capsys, "job", "d", "--home", str(home.path), "schedule", "show", "d") == ["def456"]
    assert values(capsys, "job", "d", f"--home={home.path}", "schedule", "show", "d") == ["def456"]


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_what_cannot_be_read_offers_nothing(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUBBOT_HOME", str(tmp_path))
    if content is not None:
        (tmp_path / "bubbot.db").write_bytes(content)
    for kind in ("session", "tape", "job", "nonsense", ""):
        assert values(capsys, kind, "") == []
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["bubbot.db"])


def test_neither_the_bot_nor_a_package_is_loaded_for_it(home: Home) -> None:
    code = (
        "import sys; sys.argv = ['bubbot', '__complete', 'session', '']\n"
        "from bubbot.__main__ import main; main(); print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "telegram:42" in done.stdout
    loaded = set(done.stderr.split())
    ours = {name for name in loaded if name.startswith("bubbot") and not name.startswith("bubbot.cli.completion")}
    assert ours <= {
        "bubbot", "bubbot.__main__", "bubbot.cli", "bubbot.cli.interrupt", "bubbot.cli.output", "bubbot.errors", "bubbot.ports", "bubbot.ports.text", "bubbot.settings",
        "bubbot.settings.environment", "bubbot.stores", "bubbot.stores.sqlite", "bubbot.stores.sqlite.lookup",
    }  # fmt: skip
    assert not loaded & {"pydantic", "argparse", "asyncio", "logging", "aiosqlite", "dataclasses"} - _loaded_at_start()


@pytest.mark.parametrize("shell", SHELLS)
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
    assert "@TABLE@" not in script


def test_a_folder_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert main(["completion", "bash", "--install"]) == 2
    assert "bubbot completion bash > FILE" in capsys.readouterr().err


def _loaded_at_start() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


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
    (tmp_path / "bubbot").write_text(f"#!/bin/sh\ncat <<'END'\n{name}\nEvening\nEND\n")
    (tmp_path / "bubbot").chmod(0o755)
    (tmp_path / "script").write_bytes(bash_script)
    word = f"{quote}Ev"
    typed = shlex.quote(word)
    program = (
        f"source ./script; COMP_WORDS=(./bubbot schedule show {typed}); COMP_CWORD=3; "
        f"COMP_LINE='./bubbot schedule show '{typed}; _bubbot_complete 2>/dev/null; printf '%s\\n' \"${{COMPREPLY[@]}}\""
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


def test_the_tape_of_jobs_is_that_of_the_feature() -> None:
    assert SCHEDULE_TAPE == changes.SCHEDULE_TAPE
