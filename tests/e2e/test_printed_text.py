"""No command lets the text of people or of a model control the terminal: every command is run over hostile text."""

from __future__ import annotations

import ast
import json
import unicodedata
from pathlib import Path

import click
import pytest

from tests.command_line import walk
from tests.docs.pages import ROOT
from tests.e2e import bot, inside
from tests.e2e.terminal import Terminal
from tests.skills import write_skill
from tests.tasks import write_task

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\x9d0;t\x9c\u202etxt.exe\u2066\u200e\x08\x7f\x00"
"""Writes the clipboard, clears the screen, renames the window (C0 and C1), turns the direction of the text."""
LINE = {"kind": "message", "meta": {"sender": {"id": "7", "name": f"Eve{EVIL}"}}, "date": "2026-11-21T20:21:00+00:00"}
RUNS: dict[str, list[tuple[str, ...]]] = {
    "ask": [("ask", f"tea {EVIL}".replace("\0", "")), ("ask", "--json", f"tea {EVIL}".replace("\0", ""))],
    "chat": [("chat",)],
    "tape list": [("tape", "list")],
    "tape show": [
        ("tape", "show", "evil"),
        ("tape", "show", "evil", "--json"),
        ("tape", "show", "bubbot/inbox/stdin", "--json"),
    ],
    "tape search": [("tape", "search", "evil", "tea"), ("tape", "search", "evil", "nothing\x1b[2J")],
    "tape anchors": [("tape", "anchors", "evil", "--zones"), ("tape", "anchors", "default")],
    "agent list": [("agent", "list"), ("agent", "list", "no\x1b[2Jtape")],
    "context compare": [("context", "compare", "evil"), ("context", "compare", "default", "--json")],
    "tape graph": [
        ("tape", "graph", "evil"),
        ("tape", "graph", "evil", "--format", "mermaid"),
        ("tape", "graph", "evil", "--format", "svg"),
    ],
    "tape verify": [("tape", "verify")],
    "tape size": [("tape", "size"), ("tape", "size", "--json")],
    "tape gc": [("tape", "gc", "--dry-run"), ("tape", "gc", "--older", "0", "--dry-run")],
    "tape repair": [("tape", "repair")],
    "tape copy": [
        ("tape", "copy", "no\x1b[2J.db", "new\x1b[2J"),
        ("tape", "copy", "postgresql://x\x1b[2J@127.0.0.1:9/x", "y"),
    ],
    "store add-tenant": [("store", "add-tenant", "evil\x1b[2J")],
    "store add-auditor": [("store", "add-auditor", "--tenant", "evil\x9b")],
    "tape index": [("tape", "index")],
    "tape archive": [("tape", "archive", "stdin:gone"), ("tape", "archive", "no\x1b[2Jtape")],
    "tape import": [
        ("tape", "import", "bad.jsonl", "--session", "bad"),
        ("tape", "import", "bad.jsonl", "--session", "bad", "--repair"),
    ],
    "memory show": [("memory", "show", "default")],
    "memory why": [("memory", "why", "default")],
    "memory save": [("memory", "save", "default", "tea \x1b[2J\u202e")],
    "memory forget": [("memory", "forget", "default", "tea \x9b2J")],
    "memory restore": [("memory", "restore", "default", "1")],
    "memory import": [("memory", "import", "default", "page.md")],
    "memory erase": [("memory", "erase", "--workspace", "--yes")],
    "config list": [("config", "list"), ("config", "list", "--all")],
    "config get": [("config", "get", "model\x1b[2J.name")],
    "config unset": [("config", "unset", "model.name\x1b[2J")],
    "schedule list": [("schedule", "list"), ("schedule", "list", "--over")],
    "schedule show": [("schedule", "show", "tea")],
    "schedule history": [("schedule", "history", "tea")],
    "schedule chat": [("schedule", "chat", "stdin:evil\x1b[2J")],
    "schedule next": [("schedule", "next", "at\x1b[2J noon")],
    "schedule pause": [("schedule", "pause", "tea")],
    "schedule resume": [("schedule", "resume", "tea\x1b[2J")],
    "access list": [("access", "list")],
    "access pending": [("access", "pending")],
    "access history": [("access", "history")],
    "access consents": [("access", "consents"), ("access", "consents", "telegram\x9b:4\x1b")],
    "access export": [
        ("access", "export", "telegram:42\x1b", "evil\x9b"),
        ("access", "export", "stdin:0", "evil\x9b.html"),
    ],
    "access forget": [("access", "forget", "telegram\x9b:42\x1b", "--yes")],
    "access forgotten": [("access", "forgotten")],
    "access role": [("access", "role", "telegram", "42"), ("access", "role", "telegram\x9b", "42\x1b")],
    "access grant": [("access", "grant", "telegram", "42\x1b", "member")],
    "access group": [("access", "group", "telegram\x9b", "-1\x1b", "known")],
    "access revoke": [("access", "revoke", "telegram\x9b", "42")],
    "access readings": [("access", "readings")],
    "access grant-reading": [("access", "grant-reading", "telegram\x9b:4", "evil\x1b[2J")],
    "export": [
        ("export", "openai-chat", "evil@\x1b[2J", "--out", "a"),
        ("export", "atif", "evil\x9b", "--out", "\x1b[2J"),
        ("export", "areal", "evil", "--out", "turns\x9b.json"),
    ],
    "judge label": [
        ("judge", "label", "evil", "1", "quality", "4", "\x1b[2J", "\x9b:4"),
        ("judge", "label", "evil\x1b[2J", "\x9b1"),
    ],
    "judge list": [("judge", "list", "evil"), ("judge", "list", "evil", "--json")],
    "judge show": [("judge", "show", "evil", "2"), ("judge", "show", "evil", "\x1b[2J")],
    "learn offer": [
        ("learn", "offer", "openai/\x1b[2J", "--weights", "\x9b:4"),
        ("learn", "offer", "evil\x1b[2J\u202e"),
        ("learn", "offer", "scripted", "--weights", f"sha256:{'0' * 64}"),
    ],
    "learn status": [("learn", "status"), ("learn", "status", "--json")],
    "learn accept": [("learn", "accept")],
    "learn back": [("learn", "back")],
    "skills add": [("skills", "add", "\x1b[2J"), ("skills", "add", "evil-skill")],
    "skills list": [("skills", "list"), ("skills", "list", "--json")],
    "skills show": [("skills", "show", "evil-skill"), ("skills", "show", "\x9b2J")],
    "skills check": [("skills", "check", "evil-skill"), ("skills", "check", "\x1b[2J")],
    "skills accept": [
        ("skills", "accept", "evil-skill", "--about", "tea \x1b[2J\u202e"),
        ("skills", "accept", "\x9b2J"),
        ("skills", "accept", "evil-skill", "\x1b[2J"),
        ("skills", "accept", "evil-skill", "0" * 64),
    ],
    "skills remove": [("skills", "remove", "\x1b[2J")],
    "mcp add": [
        ("mcp", "add", "evil\x1b[2J", "\x9b:4"),
        ("mcp", "add", "evil", "/bin/false \x1b[2J\u202e"),
        ("mcp", "add", "far", "http://127.0.0.1:1/\x9b"),
    ],
    "mcp list": [("mcp", "list"), ("mcp", "list", "--json")],
    "mcp check": [("mcp", "check", "evil"), ("mcp", "check", "\x1b[2J")],
    "mcp tools": [("mcp", "tools", "evil"), ("mcp", "tools", "\x9b2J")],
    "mcp pin": [("mcp", "pin", "evil", "\x1b[2J")],
    "mcp unpin": [("mcp", "unpin", "evil", "\x9b2J")],
    "mcp login": [("mcp", "login", "\x1b[2J")],
    "mcp remove": [("mcp", "remove", "\x1b[2J"), ("mcp", "remove", "evil")],
    "mcp client-add": [("mcp", "client-add", "evil\x1b[2J", "evil"), ("mcp", "client-add", "editor", "evil\x9b")],
    "mcp client-send": [("mcp", "client-send", "editor", "evil\x1b", "\x9b1", "tea \x1b[2J\u202e")],
    "mcp client-list": [("mcp", "client-list"), ("mcp", "client-list", "--json")],
    "mcp client-token": [("mcp", "client-token", "\x1b[2J")],
    "mcp client-remove": [("mcp", "client-remove", "editor\x9b")],
    "task new": [("task", "new", "evil\x1b[2J"), ("task", "new", "tea", "\x9b:4")],
    "task check": [("task", "check", "evil"), ("task", "check", "tea\x1b[2J")],
    "task list": [("task", "list"), ("task", "list", "--json")],
    "task run": [
        ("task", "run", "evil"),
        ("task", "run", "tea", "\x1b[2J\u202e", "--chat", "another\x9b"),
        ("task", "run", "tea", "--chat", "telegram:\x9b4"),
        ("task", "run", "tea", "--with", "\x1b[2J=\x9b"),
    ],
    "task status": [("task", "status"), ("task", "status", "\x1b[2J"), ("task", "status", "--json")],
    "task graph": [("task", "graph", "\x1b[2J")],
    "task resume": [("task", "resume", "\x9b2J")],
    "task cancel": [("task", "cancel", "\x9b2J")],
    "task rerun": [("task", "rerun", "\x1b[2J", "--from", "\x9b2J")],
    "view add": [("view", "add", "evil\x1b[2J", "telegram\x9b:4")],
    "view list": [("view", "list"), ("view", "list", "evil\x1b[2J")],
    "view remove": [("view", "remove", "evil\x9b", "telegram:4")],
    "access revoke-reading": [("access", "revoke-reading", "telegram:4", "evil\x9b")],
    "access audits": [("access", "audits")],
    "access matrix": [("access", "matrix")],
    "access grant-audit": [("access", "grant-audit", "ann\x9b", "evil\x1b[2J")],
    "access revoke-audit": [("access", "revoke-audit", "ann", "evil\x9b")],
    "access approve": [("access", "approve", "\x1b[2J")],
    "approvals list": [("approvals", "list"), ("approvals", "list", "--json")],
    "approvals show": [("approvals", "show", "\x1b[2J")],
    "approvals approve": [("approvals", "approve", "\x9b2J")],
    "approvals deny": [("approvals", "deny", "ABCDE", "\x1b[2J")],
    "approvals grants": [("approvals", "grants")],
    "approvals revoke": [("approvals", "revoke", "1")],
    "agent branches": [
        ("agent", "branches", "default"),
        ("agent", "branches", "default", "1"),
        ("branch", "list", "evil\x1b[2J"),
    ],
    "why": [("why", "evil"), ("why", "default", "--json"), ("why", "default", "\x1b[2J")],
    "explain": [("explain", "evil", "\x1b[2J"), ("explain", "default", "\x9bwhy?", "--json")],
    "replay": [("replay", "evil"), ("replay", "default", "--json"), ("replay", "\x1b[2J")],
    "eval run": [("eval", "run", "everyday"), ("eval", "run", "\x1b[2J")],
    "eval report": [("eval", "report", "everyday"), ("eval", "report", "\x1b[2J", "--json")],
    "eval compare": [("eval", "compare", "everyday", "everyday:\x1b[2J"), ("eval", "compare", "everyday", "everyday")],
    "eval list": [("eval", "list"), ("eval", "list", "--json")],
    "trace": [("trace", "--token", "\x1b[2J\u202e")],
    "usage": [("usage",), ("usage", "--json"), ("usage", "--chat", "stdin:\x1b[2J")],
    "status": [("status",), ("status", "--json")],
    "doctor": [("doctor", "--offline"), ("doctor", "--offline", "--json")],
    "reload": [("reload",)],
    "workers": [("workers",), ("workers", "--json")],
    "backup": [("backup", "copy"), ("backup", "--json", "copy\x1b[2J")],
    "restore": [("restore", "copy\x1b[2J")],
    "service status": [("service", "status")],
}
TERMINAL_ALONE = {"tape export": ("tape", "export", "evil"), "memory export": ("memory", "export", "default")}
"""Files on standard output: only a terminal is shown them otherwise than as they are."""
ELSEWHERE = {
    "mcp serve": "prints its address alone; tests/e2e/test_mcp_serve.py",
    "config set": "prints the name as config unset does; the value never",
    "config edit": "prints what config unset does",
    "help": "prints the help of a command, and pages of bubbot",
    "completion": "prints scripts of bubbot",
    "model install": "prints the command that it runs",
    "init": "prints what its own person types; tests/unit/test_init_*.py",
    "run": "prints the log alone; tests/unit/test_log.py",
    "service install": "prints files of bubbot",
    "service uninstall": "prints names of files",
    "schedule add": "prints as schedule show does",
    "schedule edit": "prints as schedule show does",
    "schedule remove": "prints as schedule pause does",
    "schedule run": "prints as schedule pause does",
}


def test_every_command_is_run_here_or_has_a_reason() -> None:
    every = {name for name, command in walk() if not isinstance(command, click.Group)}
    assert every == {*RUNS, *TERMINAL_ALONE, *ELSEWHERE}


def test_nothing_prints_but_the_one_place_for_it() -> None:
    """A command of tomorrow, too."""
    printing = {
        path.relative_to(ROOT / "bubbot").as_posix()
        for path in (ROOT / "bubbot").rglob("*.py")
        if "print" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"cli/output.py"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose tapes hold hostile text wherever people, models and platforms put it."""
    path = tmp_path_factory.mktemp("evil") / "home"
    (path.parent / "page.md").write_text(f"tea {EVIL}")
    payloads = [{"role": "user", "content": f"tea {EVIL}"}, {"role": "assistant", "content": f"more tea {EVIL}"}]
    lines = [{"id": number, "payload": one, **LINE} for number, one in enumerate(payloads, 1)]
    anchor = {"name": f"topic/{EVIL}", "state": {"summary": f"tea {EVIL}"}}
    lines.append({**LINE, "id": 3, "kind": "anchor", "payload": anchor})
    for name in ("evil", "gone"):
        file = path.parent / f"{name}.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        done = inside.run(path, "tape", "import", file.name, "--session", name)
        assert done.returncode == 0, done.stderr
    write_task(path, "evil", f"[nodes.a]\nprompt = {json.dumps(EVIL)}\nnodes = {json.dumps(EVIL)}\n")
    write_task(
        path, "tea", f"title = {json.dumps(EVIL)}\n[nodes.a]\ntitle = {json.dumps(EVIL)}\nprompt = {json.dumps(EVIL)}\n"
    )
    write_skill(path.parent, "evil-skill", json.dumps(EVIL), EVIL)
    (path / "config.toml").write_text("[skills]\nenabled = true\n")
    (path / "config.toml").chmod(0o600)
    (path.parent / "bad.jsonl").write_bytes(json.dumps(lines[0]).encode() + b"\n{\x1b[2J\xc2\x9b\n")
    inside.run(path, "memory", "import", "default", "page.md")
    lines_of_chat = [f"tea {EVIL}", f",remind name=tea in 9h: tea {EVIL}", f",handoff evil/{EVIL}"]
    chat = bot.run(path, "chat", lines=[*lines_of_chat, f',branch.ask prompts="{EVIL}|b" tea {EVIL}'])
    assert chat.returncode == 0, chat.stderr
    return path


def obeyed(text: str) -> list[str]:
    """What a terminal would obey in a text."""
    return [
        char for char in text if char not in "\n\t\u200c\u200d" and unicodedata.category(char) in ("Cc", "Cf", "Cs")
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("action", RUNS)
def test_a_command_prints_nothing_that_a_terminal_obeys(home: Path, action: str) -> None:
    for arguments in RUNS[action]:
        if action in ("ask", "chat"):
            done = bot.run(home, *arguments, lines=f"tea {EVIL}\n")
        else:
            done = inside.run(home, *arguments)
        for text in (done.stdout.decode(), done.stderr.decode()):
            assert obeyed(text) == [], (arguments, text)
            assert "Traceback" not in text
        if "--json" in arguments and done.returncode == 0:
            for line in done.stdout.decode().splitlines():
                json.loads(line)


def test_json_says_exactly_what_is_on_the_tape(home: Path) -> None:
    shown = inside.run(home, "tape", "show", "evil", "--json").stdout.decode().splitlines()
    assert json.loads(shown[0])["payload"]["content"] == f"tea {EVIL}"


@pytest.mark.parametrize("action", TERMINAL_ALONE)
def test_an_export_is_exact_in_a_pipe_and_harmless_on_a_terminal(home: Path, action: str) -> None:
    piped = inside.run(home, *TERMINAL_ALONE[action])
    assert piped.returncode == 0
    assert "\x9b2J" in piped.stdout.decode()
    with Terminal(home, *TERMINAL_ALONE[action], first="tea") as terminal:
        terminal.process.wait(30)
        terminal.expect("txt.exe")
        assert obeyed(terminal.sent.replace("\r\n", "\n")) == []
