"""`--json` of every command: what is printed fits the schema in the reference, on empty, used and damaged homes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import jsonschema
import pytest

from tests.command_line import json_commands
from tests.docs.json_pages import FOLDER, file_name, results
from tests.e2e import bot, inside
from tests.e2e.test_control import daemon, sockets
from tests.mcp.benches import LIGHT, READABLE
from tests.raw import tamper
from tests.skills import write_skill
from tests.tasks import write_task

__all__ = ["sockets"]
CONFIG = """
[channels.telegram]
token = "1:abcdefghijklmnopqrstuvwxyzABCDEFGHI"
owners = ["7"]

[skills]
enabled = true
"""
BRANCHES = ',branch.ask prompts="brief|" tea?'
RUNS: dict[str, tuple[str, ...]] = {
    "ask": ("ask", "hello"),
    "status": ("status",),
    "usage": ("usage", "all"),
    "why": ("why", "default"),
    "agent branches": ("agent", "branches", "default"),
    "explain": ("explain", "default", "why tea?"),
    "replay": ("replay", "default"),
    "eval run": ("eval", "run", "everyday"),
    "eval report": ("eval", "report", "everyday"),
    "eval compare": ("eval", "compare", "everyday", "everyday"),
    "eval list": ("eval", "list"),
    "agent list": ("agent", "list"),
    "context compare": ("context", "compare", "default"),
    "doctor": ("doctor", "--offline"),
    "tape list": ("tape", "list"),
    "tape show": ("tape", "show", "default"),
    "tape anchors": ("tape", "anchors", "default", "--zones"),
    "tape graph": ("tape", "graph", "default"),
    "tape verify": ("tape", "verify", "--head", f"1:{'0' * 64}"),
    "tape size": ("tape", "size"),
    "tape search": ("tape", "search", "default", "tea"),
    "tape gc": ("tape", "gc", "--older", "0"),
    "tape index": ("tape", "index", "--rebuild"),
    "tape repair": ("tape", "repair"),
    "tape archive": ("tape", "archive", "gone"),
    "tape import": ("tape", "import", "talk.jsonl", "--session", "copy", "--repair"),
    "memory show": ("memory", "show", "default"),
    "memory why": ("memory", "why", "default"),
    "memory save": ("memory", "save", "default", "Likes 茶."),
    "memory forget": ("memory", "forget", "default", "茶"),
    "memory restore": ("memory", "restore", "default", "1"),
    "memory import": ("memory", "import", "other", "page.md"),
    "memory erase": ("memory", "erase", "--workspace", "--yes"),
    "config list": ("config", "list", "--all"),
    "config get": ("config", "get", "model.name"),
    "schedule list": ("schedule", "list"),
    "schedule show": ("schedule", "show", "tea"),
    "schedule history": ("schedule", "history", "tea"),
    "schedule next": ("schedule", "next", "every weekday at 8", "--zone", "Asia/Shanghai"),
    "schedule add": ("schedule", "add", "stdin:default", "every day at 9", "--text", "x"),
    "schedule edit": ("schedule", "edit", "tea", "--when", "every 2h"),
    "schedule pause": ("schedule", "pause", "tea"),
    "schedule resume": ("schedule", "resume", "tea"),
    "schedule run": ("schedule", "run", "tea"),
    "schedule remove": ("schedule", "remove", "tea"),
    "schedule chat": ("schedule", "chat", "telegram:42", "--quiet", "22:00-07:00"),
    "approvals list": ("approvals", "list"),
    "approvals show": ("approvals", "show", "7KQ2M"),
    "approvals approve": ("approvals", "approve", "7KQ2M"),
    "approvals deny": ("approvals", "deny", "7KQ2M", "no"),
    "approvals grants": ("approvals", "grants"),
    "approvals revoke": ("approvals", "revoke", "1"),
    "access list": ("access", "list"),
    "access pending": ("access", "pending"),
    "access approve": ("access", "approve", "7KQ2M9XB"),
    "access grant": ("access", "grant", "telegram", "42", "member"),
    "access group": ("access", "group", "telegram", "-1001", "everybody"),
    "access grant-reading": ("access", "grant-reading", "telegram:42", "default"),
    "access readings": ("access", "readings"),
    "task new": ("task", "new", "notes"),
    "task check": ("task", "check", "notes"),
    "task list": ("task", "list"),
    "task run": ("task", "run", "tea"),
    "task status": ("task", "status"),
    "task graph": ("task", "graph", "7KQ2M"),
    "task resume": ("task", "resume", "7KQ2M"),
    "task cancel": ("task", "cancel", "7KQ2M"),
    "task rerun": ("task", "rerun", "7KQ2M", "--from", "a"),
    "export": ("export", "openai-chat", "default", "--out", "turns.jsonl"),
    "judge label": ("judge", "label", "default", "1", "quality", "4"),
    "judge list": ("judge", "list", "default"),
    "judge show": ("judge", "show", "default", "1"),
    "learn offer": ("learn", "offer", "openai/second", "--weights", f"sha256:{'0' * 64}"),
    "learn accept": ("learn", "accept"),
    "learn status": ("learn", "status"),
    "learn back": ("learn", "back"),
    "skills add": ("skills", "add", "pdf-forms"),
    "skills list": ("skills", "list"),
    "skills show": ("skills", "show", "pdf-forms"),
    "skills check": ("skills", "check", "pdf-forms"),
    "skills accept": ("skills", "accept", "pdf-forms", "--mine"),
    "skills remove": ("skills", "remove", "pdf-forms"),
    "mcp add": ("mcp", "add", "light", " ".join(LIGHT), *(word for each in READABLE for word in ("--read", each))),
    "mcp list": ("mcp", "list"),
    "mcp check": ("mcp", "check", "light"),
    "mcp tools": ("mcp", "tools", "light"),
    "mcp pin": ("mcp", "pin", "light", "hello"),
    "mcp unpin": ("mcp", "unpin", "light", "hello"),
    "mcp login": ("mcp", "login", "light"),
    "mcp remove": ("mcp", "remove", "light"),
    "view add": ("view", "add", "default", "telegram:42"),
    "view list": ("view", "list"),
    "view remove": ("view", "remove", "default", "telegram:42"),
    "mcp client-add": ("mcp", "client-add", "editor", "telegram:42"),
    "mcp client-list": ("mcp", "client-list"),
    "mcp client-send": ("mcp", "client-send", "editor", "telegram:42", "one", "hello"),
    "mcp client-token": ("mcp", "client-token", "editor"),
    "mcp client-remove": ("mcp", "client-remove", "editor"),
    "access revoke-reading": ("access", "revoke-reading", "telegram:42", "default"),
    "access grant-audit": ("access", "grant-audit", "anna", "default"),
    "access audits": ("access", "audits"),
    "access matrix": ("access", "matrix"),
    "access revoke-audit": ("access", "revoke-audit", "anna", "default"),
    "access history": ("access", "history"),
    "access consents": ("access", "consents"),
    "access export": ("access", "export", "stdin:0", "about-the-owner"),
    "access role": ("access", "role", "telegram", "42"),
    "access revoke": ("access", "revoke", "telegram", "42"),
    "access forget": ("access", "forget", "telegram:42", "--yes"),
    "access forgotten": ("access", "forgotten"),
    "model install": ("model", "install", "--dry-run"),
    "reload": ("reload",),
    "workers": ("workers",),
    "store add-tenant": ("store", "add-tenant", "acme"),
    "store add-auditor": ("store", "add-auditor"),
    "service status": ("service", "status"),
    "backup": ("backup", "copy"),
    "tape copy": ("tape", "copy", "copy/bubbot.db", "moved"),
    "restore": ("--home", "restored", "restore", "copy"),
    "restore release": ("--home", "restored", "restore", "--release"),
    "restore empty": ("--home", "restored", "restore", "--empty"),
    "restore accept-loss": ("--home", "restored", "restore", "--accept-loss"),
}
"""Each command that has a schema, in an order in which each finds what it needs in a used home."""
REFUSED = {"access approve", "mcp client-send", "mcp login", "mcp unpin", "reload", "workers", "store add-tenant", "store add-auditor", "approvals show", "approvals approve", "approvals deny", "approvals revoke",
           "restore empty", "restore accept-loss", "task graph", "task resume", "task cancel", "task rerun"}  # fmt: skip
"""They need a person who wrote, a server with a login, a pinned tool, a running bot, a server of PostgreSQL, a missing or shorter database (tests/e2e/test_backup.py), or a card:
tests/unit/features/approvals/test_turns.py runs those with one; a test below runs those of a run with one."""
WITHOUT_HOME = {"ask", "status", "usage", "doctor", "eval list", "schedule list", "schedule next", "approvals list",
                "approvals grants", "access list", "access pending",
                "access readings", "access audits", "access matrix", "access history", "access consents", "access forgotten",
                "model install", "service status"}  # fmt: skip
"""They have a result in a home where no bot ever ran."""
FORMATS = jsonschema.FormatChecker()


def _has_zone(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


FORMATS.checks("date-time", raises=ValueError)(_has_zone)


def check(command: str, done: CompletedProcess[bytes]) -> list[Any]:
    """What a command printed, which fits its schema; or nothing, and an error as JSON."""
    assert b"Traceback" not in done.stderr
    if not done.stdout:
        error = json.loads(done.stderr.decode().splitlines()[-1])["error"]
        assert error["exit_code"] == done.returncode > 0
        assert error["message"]
        assert error["code"]
        return []
    schema = json.loads((FOLDER / file_name(command)).read_text(encoding="utf-8"))
    values = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(values) == 1 or command == "tape show"
    # Without `jsonschema.validate`, which looks at the schema again each time: tests/docs/test_json_pages.py does.
    validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
    for value in values:
        validator.validate(value)
    return values


def used_home(folder: Path) -> Path:
    """A home with a conversation, memory, a job, an archive to be, and a channel."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)
    (folder / "page.md").write_text("Likes green tea.\n")
    write_skill(folder)
    write_task(home, "tea", '[nodes.a]\nprompt = "tea?"\n')
    told = bot.run(home, "chat", lines=["tea?", ",remind name=tea in 9h: tea", ",handoff topic tea", "茶", BRANCHES])
    assert told.returncode == 0, told.stderr
    assert inside.run(home, "ask", "--session", "gone", "hello").returncode == 0
    done = inside.run(home, "tape", "export", "default", "talk.jsonl")
    assert done.returncode == 0, done.stderr
    with (folder / "talk.jsonl").open("ab") as file:
        file.write(b"{ not json\n")
    return home


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return used_home(tmp_path_factory.mktemp("used"))


@pytest.fixture
def home(used: Path, tmp_path: Path) -> Path:
    """A copy of the used home."""
    shutil.copytree(used.parent, tmp_path / "copy-of-used")
    return tmp_path / "copy-of-used" / "home"


@pytest.fixture
def some(request: pytest.FixtureRequest) -> Mapping[str, tuple[str, ...]]:
    """Every third command and those that a test asks about; in the proof, all."""
    asked = {*list(RUNS)[::3], "tape verify", "tape list", "memory show", "schedule list", "backup"}
    return {name: words for name, words in RUNS.items() if name in asked or request.config.getoption("--proof")}


def test_every_command_with_the_option_has_a_schema_and_is_run_here() -> None:
    assert set(RUNS) == set(results()) == {*json_commands(), "restore release", "restore empty", "restore accept-loss"}


def test_on_a_used_home_every_command_has_a_result(home: Path) -> None:
    for command, words in RUNS.items():
        done = inside.run(home, *words, "--json")
        values = check(command, done)
        assert bool(values) == (command not in REFUSED), (command, done.stderr.decode())


def test_commands_about_a_run_have_results(home: Path) -> None:
    (begun,) = check("task run", inside.run(home, *RUNS["task run"], "--json"))
    run = begun["run"]
    assert begun["status"] == "succeeded"
    for command in ("task status", "task graph", "task resume"):
        (value,) = check(command, inside.run(home, *command.split(), run, "--json"))
        assert run in json.dumps(value), command
    (again,) = check("task rerun", inside.run(home, "task", "rerun", run, "--from", "a", "--json"))
    assert (again["status"], again["run"] == run) == ("succeeded", False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", RUNS)
def test_on_an_empty_home_there_is_a_result_or_an_error(command: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("tea\n")
    done = inside.run(tmp_path / "home", *RUNS[command], "--json")
    values = check(command, done)
    assert bool(values) or command not in WITHOUT_HOME, done.stderr.decode()


def test_on_a_damaged_home_there_is_a_result_or_an_error(home: Path, some: Mapping[str, tuple[str, ...]]) -> None:
    tamper(home / "bubbot.db", "UPDATE entries SET payload = replace(payload, 'tea', 'tee') WHERE kind = 'message'")
    for command, words in some.items():
        values = check(command, inside.run(home, *words, "--json"))
        if command == "tape verify":
            assert not values[0]["intact"]
            assert {finding["problem"] for finding in values[0]["findings"]} == {"altered"}


def test_on_a_home_whose_database_is_none_there_is_a_result_or_an_error(
    home: Path, some: Mapping[str, tuple[str, ...]]
) -> None:
    for name in ("bubbot.db-wal", "bubbot.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "bubbot.db").write_bytes(b"no database at all " * 1000)
    failed = [command for command, words in some.items() if not check(command, inside.run(home, *words, "--json"))]
    assert {"tape list", "memory show", "schedule list", "backup"} <= set(failed)


def test_with_a_bot_that_runs_the_results_are_the_same(home: Path, sockets: Path) -> None:
    (home / "config.toml").write_text("")
    commands = ("memory save", "memory forget", "schedule add", "schedule pause", "tape index", "tape import",
                "tape archive", "tape gc", "status", "reload", "backup")  # fmt: skip
    with daemon(home, sockets):
        for command in commands:
            done = inside.run(home, *RUNS[command], "--json", env={"XDG_RUNTIME_DIR": str(sockets)})
            assert check(command, done), (command, done.stderr.decode())


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("tape", "show", "--json"), "usage", 2),
        (("tape", "show", "work", "--json"), "entry_not_found", 1),
        (("backup", "copy", "--keep", "1", "--json"), "usage", 2),
        (("memory", "forget", "default", " ", "--json"), "config", 2),
    ],
)
def test_an_error_names_its_kind_and_the_exit_code(
    home: Path, words: tuple[str, ...], code: str, exit_code: int
) -> None:
    done = inside.run(home, *words)
    assert (done.returncode, done.stdout) == (exit_code, b"")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["exit_code"]) == (code, exit_code)


def test_a_value_that_looks_like_the_option_is_none(home: Path) -> None:
    done = inside.run(home, "tape", "search", "nowhere", "--", "--json")
    assert done.stderr.decode().startswith("bubbot: ")
