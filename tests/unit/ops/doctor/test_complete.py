"""Every finding of the doctor is planted by a test and has a row in the reference, and the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbot.cli.main import main
from bubbot.ports.checks import Finding
from tests.docs.pages import ROOT
from tests.planting import found, plants

SOURCES = [
    *sorted((ROOT / "bubbot" / "ops" / "doctor").glob("*.py")),
    *sorted((ROOT / "bubbot" / "features").rglob("checks.py")),
    ROOT / "bubbot" / "gateway" / "quarantine.py",
]
TESTS = [
    *sorted((ROOT / "tests" / "unit" / "ops" / "doctor").glob("test_*.py")),
    *sorted((ROOT / "tests" / "unit" / "features").glob("*/test_checks.py")),
    *sorted((ROOT / "tests" / "e2e").glob("test_doctor*.py")),
    ROOT / "tests" / "e2e" / "test_disks.py",
    ROOT / "tests" / "e2e" / "test_systemd.py",
]
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
    "channel.down": "shows how the running bot is, which tries again by itself",
    "channel.troubled": "shows how the running bot is; what to change is on the platform's side",
    "clock.behind": "sets the clock of the machine",
    "clock.off": "sets the clock of the machine",
    "clock.unset": "sets the clock of the machine",
    "context.embeddings": "installs packages from the network",
    "database.altered": "names each entry; only a backup mends what was altered",
    "database.journal": "names the program that reads the database",
    "database.replaced": "ends the bot, for a person who does not put the old file back",
    "database.too_new": "installs a bubbot that is newer than this one",
    "delivery.late": "shows how the running bot is, which tries again by itself",
    "disk.files": "names what takes the room, which a person has to choose from",
    "disk.full": "names what takes the room, which a person has to choose from",
    "disk.network": "moves the home to another disk",
    "disk.scarce": "names what takes the room, which a person has to choose from",
    "doctor.failed": "installs a bubbot that is newer than this one",
    "learn.late": "opens the settings; judgements that came too late stay so",
    "learn.unreachable": "opens the settings; what is wrong may be the proxy",
    "otel.refused": "opens the settings; what is wrong may be the receiver",
    "otel.packages_missing": "installs packages from the network",
    "mcp.changed": "shows what an owner looks at before pinning it again",
    "mcp.no_sandbox": "opens the settings, in which the owner chose this",
    "mcp.no_servers": "shows how a server is added, which an owner has to choose",
    "mcp.nothing_pinned": "lists tools, which an owner has to choose from",
    "mcp.sandbox_unusable": "installs packages from the network",
    "mcp.secret_missing": "needs the value, which only its owner has",
    "mcp.secrets_unreadable": "needs the values, which only their owner has",
    "limits.memory": "names what takes the memory, which a person has to choose from",
    "model.local_missing": "installs packages from the network",
    "model.missing": "installs packages from the network",
    "model.unreachable": "shows where the way to the provider ends, and mends nothing itself",
    "platform.remark": "names what to change on the platform's own pages",
    "platform.silent": "shows where the way to the platform ends, and mends nothing itself",
    "platform.unreachable": "shows where the way to the platform ends, and mends nothing itself",
    "plugin.failed": "shows how the running bot is; what to change is in somebody else's package",
    "python.old": "installs another Python",
    "service.no_linger": "needs a systemd with a login of a user",
    "server.clock": "sets the clock of the machine",
    "server.commit": "changes the settings of the server",
    "server.encoding": "makes another database",
    "server.fsync": "changes the settings of the server",
    "server.full": "shows what takes the room on the server, which a person has to choose from",
    "server.lost": "shows whether the server answers, and mends nothing itself",
    "server.old": "upgrades the server",
    "server.pooler": "opens the settings",
    "server.replica": "opens the settings; the primary is elsewhere",
    "server.rights": "needs the owner of the database",
    "server.role": "needs a role that may grant others",
    "server.unusable": "opens the settings",
    "store.unusable": "names the store; the package that offers it is somebody else's",
    "skills.changed": "shows what an owner looks at before accepting it again",
    "skills.new": "shows what an owner looks at before accepting it",
    "skills.unusable": "names what is wrong with the files of the skill",
    "shell.no_sandbox": "opens the settings, in which the owner chose this",
    "shell.root": "installs a service of the system",
    "shell.unusable": "installs packages from the network",
    "tasks.blocked": "resumes a run; why it stood still is for a person to change first",
    "tasks.waiting": "shows a question, which a person answers",
    "web.packages_missing": "installs packages from the network",
    "tape.damaged": "names each fault; only a backup mends what was damaged",
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
