"""Every finding of the doctor is planted by a test and has a row in the reference, and the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbot.cli.main import main
from bubbot.doctor.finding import Finding
from tests.docs.pages import ROOT
from tests.planting import found, plants

SOURCES = sorted((ROOT / "bubbot" / "doctor").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_doctor*.py"))
PROMISED: set[str] = set()
"""Commands that are being made; whoever has made one takes it away here."""
FORM = re.compile(r"[a-z]+\.[a-z_]+")


def _calls(path: Path, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _made() -> dict[str, set[str]]:
    """Each id in the source, with the levels it has there; a level that is reckoned stands as `?`."""
    made: dict[str, set[str]] = {}
    for path in SOURCES:
        for call in _calls(path, "Finding"):
            first, second = call.args[:2]
            assert isinstance(first, ast.Constant), f"{path.name}:{call.lineno}: the id has to be written out"
            how = str(second.value) if isinstance(second, ast.Constant) else "?"
            made.setdefault(str(first.value), set()).add(how)
    return made


def _fixes(path: Path) -> Iterator[ast.AST]:
    """What may become the command of a finding."""
    yield from (call.args[3] for call in _calls(path, "Finding") if len(call.args) > 3)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and {"fix", "mend"} & {
            one.id for one in node.targets if isinstance(one, ast.Name)
        }:
            yield node.value


def _planted() -> set[str]:
    return {
        str(one.value)
        for path in TESTS
        for call in _calls(path, "plants")
        for one in call.args
        if isinstance(one, ast.Constant)
    }


def _rows() -> dict[str, set[str]]:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text(encoding="utf-8")
    return {
        name: set(how.split(", ")) for name, how in re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \|", page, re.MULTILINE)
    }


def test_every_finding_is_planted_by_a_test() -> None:
    assert _planted() - {"nobody.finds", "somebody.finds"} == set(_made())


def test_every_finding_has_a_row_with_its_levels() -> None:
    made, rows = _made(), _rows()
    assert set(rows) == set(made)
    for name, levels in made.items():
        assert FORM.fullmatch(name)
        fixed = levels - {"?"}
        assert fixed <= rows[name], name
        assert rows[name] <= {"ok", "warning", "problem"}
        if "?" not in levels:
            assert rows[name] == fixed, name


def test_a_test_that_plants_nothing_fails() -> None:
    """What the tests above lean on."""

    @plants("nobody.finds")
    def claims_too_much() -> None:
        found([Finding("somebody.finds", "ok", "It is.")])

    with pytest.raises(AssertionError, match=r"nobody\.finds"):
        claims_too_much()


def test_every_command_of_bubbot_that_mends_something_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [
        str(one.value)
        for path in SOURCES
        for fix in _fixes(path)
        for one in ast.walk(fix)
        if isinstance(one, ast.Constant)
    ]
    named = {found[1] for text in texts if (found := re.match(r"bubbot ([a-z]+(?: [a-z]+)?)", text))}
    assert {"chat", "run", "tape verify"} <= named
    lost = {words for words in named - PROMISED if main([*words.split(), "--help"]) != 0}
    assert not lost, capsys.readouterr().err


NOT_RUN = {
    "aiohttp.unsafe": "installs a package from the network",
    "backup.old": "that of backup.none",
    "channel.hidden_token": "needs a second user; planted with its command read",
    "clock.behind": "sets the clock of the machine",
    "clock.off": "sets the clock of the machine",
    "clock.unset": "sets the clock of the machine",
    "config.closed": "needs a second user; planted as one, its command is not run",
    "database.altered": "names each entry; only a backup mends what was altered",
    "database.journal": "names the program that reads the database",
    "database.slack": "that of bubbot tape gc, which its own tests run",
    "database.too_new": "installs a package from the network",
    "delivery.late": "ends or starts a bot",
    "delivery.stuck": "ends or starts a bot",
    "disk.files": "names what takes the room, which a person has to choose from",
    "disk.memory": "moves the home to another disk",
    "disk.network": "moves the home to another disk",
    "disk.scarce": "names what takes the room, which a person has to choose from",
    "doctor.failed": "installs a package from the network",
    "home.closed": "needs a second user; planted as one, its command is not run",
    "home.hidden": "needs a second user; planted as one, its command is not run",
    "library.untested": "installs a package from the network",
    "limits.files": "holds for the shell it is typed into",
    "limits.memory": "names what takes the memory, which a person has to choose from",
    "litellm.malicious": "installs a package from the network",
    "litellm.unsafe": "installs a package from the network",
    "model.local_missing": "installs packages from the network",
    "model.missing": "installs packages from the network",
    "model.script": "opens the script in an editor, as config.invalid does the settings",
    "platform.remark": "names what to change on the platform's own pages",
    "platform.silent": "tries the way to the platform",
    "platform.unreachable": "tries the way to the platform",
    "plugin.broken": "installs a package from the network",
    "python.old": "installs another Python",
    "secret.credentials": "holds for the shell it is typed into",
    "secret.file_unreadable": "needs a second user; planted with its command read",
    "secret.no_key": "opens the settings in an editor, as config.invalid does",
    "service.changed": "needs systemd; planted with its command read, and run nowhere",
    "service.differs": "needs systemd; planted with its command read, and run nowhere",
    "service.disabled": "needs systemd; planted with its command read, and run nowhere",
    "service.failed": "needs systemd; planted with its command read, and run nowhere",
    "service.no_linger": "needs systemd and a login of its own",
    "service.other_home": "looks at the other home",
    "service.unwatched": "opens the unit in an editor of systemd's",
    "tape.damaged": "names each fault; only a backup mends what was damaged",
    "turn.stuck": "ends or starts a bot",
}
"""Findings whose command no test runs to see the finding go, with the reason."""


def test_every_command_is_run_by_a_test_or_cannot_be() -> None:
    run = {
        str(one.value)
        for path in TESTS
        for call in _calls(path, "mends")
        for one in call.args
        if isinstance(one, ast.Constant)
    }
    faults = {name for name, levels in _rows().items() if levels != {"ok"}}
    assert run & NOT_RUN.keys() == set()
    assert run | NOT_RUN.keys() == faults
