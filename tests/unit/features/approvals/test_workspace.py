"""What was allowed to run in a workspace ends before words of others are written there: nothing of theirs runs unasked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.errors import ConfigError
from bubbot.features.approvals.workspace import WorkspaceGuard
from bubbot.features.files.commands import file_tools
from bubbot.features.files.roots import FileRoots
from bubbot.features.files.service import FileService
from bubbot.features.files.settings import FileSettings
from bubbot.features.shell.commands import shell_tools
from bubbot.features.shell.service import ShellService
from bubbot.features.shell.settings import ShellSettings
from bubbot.gateway.directory import ChannelDirectory
from bubbot.middleware import ToolInvocation
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.turn import ShownEntries
from bubbot.sandbox.sandbox import make_workspace
from bubbot.tool import Tool
from tests.approving import ApprovalBench, approving
from tests.turns import Played, calls, says

PAGE = calls("page_read", address="http://evil.test/page")
GOOD, EVIL = "good", "stolen"
PYTHON_CODE = "print({!r}, file=open('done', 'a'))\n"
SHELL_CODE = "echo {} >> done\n"
FORMS: Mapping[str, tuple[list[str], str, str]] = {
    "module": (["python3", "-m", "tool"], "tool.py", PYTHON_CODE),
    "package": (["python3", "pkg"], "pkg/__main__.py", PYTHON_CODE),
    "make": (["make"], "Makefile", "all:\n\t@" + SHELL_CODE),
    "glob": (["sh", "-c", ". sub/x.s?"], "sub/x.sh", SHELL_CODE),
    "import": (["python3", "-c", "import helper"], "helper.py", PYTHON_CODE),
    "unittest": (["python3", "-m", "unittest", "-q"], "test_a.py", PYTHON_CODE),
    "found": (["find", "parts", "-type", "f", "-exec", "sh", "{}", "+"], "parts/1", SHELL_CODE),
    "sourced": (["sh", "-c", "set -a; . ./.env"], ".env", SHELL_CODE),
    "git": (["git", "status"], ".git/config", "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = echo {} >> done; true\n"),
}  # fmt: skip
"""Programs, a file that each runs without naming it, and its content with a word in it."""


@asynccontextmanager
async def running_programs(home: Path, *steps: Mapping[str, Any]) -> AsyncIterator[tuple[ApprovalBench, Path]]:
    """A bot that runs real programs in no sandbox, and the workspace of its first chat."""
    shell = ShellService(ShellSettings(enabled=True, sandbox="none"), home, lambda: 0.0)
    files = FileSettings(enabled=True)
    tools = [*shell_tools(shell, shell.settings), *file_tools(FileService(FileRoots(home, files), files))]
    workspace = shell.find_workspace("stdin:default")
    make_workspace(workspace)
    model: ScriptedModel = Played(*steps)
    async with approving(home, model, tools=tools) as bench:
        yield bench, workspace


def ran(workspace: Path) -> set[str]:
    """The words that programs have left."""
    return set((workspace / "done").read_text().split()) if (workspace / "done").exists() else set()


def write(path: str, content: str, before: str = "") -> dict[str, Any]:
    return calls("file_write", path=path, content=content, digest=sha256(before.encode()).hexdigest() if before else "")


def plant(workspace: Path, path: str, content: str) -> None:
    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    if path.startswith(".git/"):
        (file.parent / "HEAD").write_text("ref: refs/heads/main\n")
        for name in ("objects", "refs"):
            (file.parent / name).mkdir()


ALWAYS_TRIED = {("module", "always"), ("make", "chat")}
"""The rest is tried in the proof: a program takes a while."""


@pytest.mark.parametrize(
    ("form", "scope"),
    [
        pytest.param(form, scope, marks=() if (form, scope) in ALWAYS_TRIED else pytest.mark.proof)
        for form in FORMS
        for scope in ("always", "chat")
    ],
)
async def test_a_program_asks_again_once_a_page_had_a_file_written(tmp_path: Path, form: str, scope: str) -> None:
    argv, path, code = FORMS[form]
    good, evil = code.format(GOOD), code.format(EVIL)
    run = calls("shell_run", argv=argv)
    steps = [run, says("I asked."), says("It ran."), run, says("And again."), PAGE, write(path, evil, good), run]
    async with running_programs(tmp_path, *steps, says("I asked again.")) as (bench, workspace):
        plant(workspace, path, good)
        await bench.say("run it")
        await bench.say(f",approve {bench.card} {scope}")
        await bench.say("run it again")
        assert (len(bench.cards), ran(workspace) >= {GOOD}) == (1, True), "the control: it runs unasked"
        await bench.say("read the page")
        assert (workspace / path).read_text() == evil, "the control: writing asks nobody"
        assert (len(bench.cards), EVIL in ran(workspace)) == (2, False)
        (revoked,) = await bench.facts("approval.revoked", "bubbot/access")
        assert (revoked["because"], revoked["by"]) == ("file.write", "1")
        (line,) = [text for text in bench.channel.texts if "not an owner" in text]
        assert f"`{argv[0]} " in line or f"`{argv[0]}`" in line


async def test_it_ends_also_if_the_chat_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload has removed its channel in the meantime."""
    send = ChannelDirectory.send

    async def cannot_tell(self: ChannelDirectory, session: str, key: str, *rest: Any) -> None:
        if key.startswith("grants_ended"):
            raise ConfigError("no channel runs here")
        await send(self, session, key, *rest)

    monkeypatch.setattr(ChannelDirectory, "send", cannot_tell)
    argv, path, code = FORMS["make"]
    run = calls("shell_run", argv=argv)
    steps = [run, says("I asked."), says("It ran."), PAGE, write(path, code.format(EVIL), code.format(GOOD)), run]
    async with running_programs(tmp_path, *steps, says("I asked again.")) as (bench, workspace):
        plant(workspace, path, code.format(GOOD))
        await bench.say("run it")
        await bench.say(f",approve {bench.card} always")
        await bench.say("read the page")
        assert (len(bench.cards), EVIL in ran(workspace)) == (2, False)
        assert len(await bench.facts("approval.revoked", "bubbot/access")) == 1


@pytest.mark.parametrize(
    "change", ["undo", *(pytest.param(one, marks=pytest.mark.proof) for one in ("remove", "edit", "new"))]
)
async def test_every_change_of_a_file_counts(tmp_path: Path, change: str) -> None:
    good = SHELL_CODE.format(GOOD)
    run = calls("shell_run", argv=["sh", "-c", "cat parts/* > all; sh all"])
    first = [
        write("parts/1", SHELL_CODE.format(EVIL)),
        write("parts/1", good, SHELL_CODE.format(EVIL)),
        says("written"),
    ]
    changes = {
        "undo": calls("file_undo", path="parts/1"),
        "remove": calls("file_undo", path="parts/1", entry=0),
        "edit": calls("file_edit", path="parts/1", digest=sha256(good.encode()).hexdigest(), old=GOOD, new=EVIL),
        "new": write("parts/2", SHELL_CODE.format(EVIL)),
    }
    if change == "remove":
        first, changes["remove"] = [write("parts/1", good), says("written")], calls("file_undo", path="parts/1")
    steps = [*first, run, says("I asked."), says("It ran."), PAGE, changes[change], run, says("I asked again.")]
    async with running_programs(tmp_path, *steps) as (bench, workspace):
        await bench.say("write it")
        await bench.say("run it")
        await bench.say(f",approve {bench.card} always")
        assert ran(workspace) == {GOOD}
        await bench.say("read the page")
        assert (workspace / "parts" / "1").exists() is (change != "remove")
        assert (len(bench.cards), ran(workspace)) == (2, {GOOD})
        assert len(await bench.facts("approval.revoked", "bubbot/access")) == 1


async def test_what_the_owner_has_written_ends_nothing(tmp_path: Path) -> None:
    """Nothing of others was shown, or the owner typed it."""
    run = calls("shell_run", argv=["sh", "-c", "sh parts/*"])
    steps = [write("x", "1"), run, says("I asked."), says("It ran."), run, says("It ran.")]
    async with running_programs(tmp_path, *steps) as (bench, workspace):
        plant(workspace, "parts/1", SHELL_CODE.format(GOOD))
        await bench.say("write and run")
        await bench.say(f",approve {bench.card} always")
        typed = await bench.say(',file.write parts/1 digest=wrong "echo x"')
        assert "digest" in typed.text
        await bench.say(",file.write parts/2 good")
        await bench.say("run it again")
        assert (len(bench.cards), await bench.facts("approval.revoked", "bubbot/access")) == (1, [])
        assert (workspace / "done").read_text().split() == [GOOD] * 2


async def test_a_program_that_was_allowed_once_among_words_of_others_ends_grants_and_a_granted_one_none(
    tmp_path: Path,
) -> None:
    run, other = calls("shell_run", argv=["sh", "-c", "sh parts/*"]), calls("shell_run", argv=["sh", "-c", "ls p*"])
    copy = calls("shell_run", script="cp download parts/1")
    asked = [says("I asked."), says("It ran.")]
    steps = [
        run,
        *asked,
        other,
        *asked,
        run,
        other,
        says("Both."),
        PAGE,
        copy,
        *asked,
        run,
        says("I asked."),
        says("?"),
    ]
    async with running_programs(tmp_path, *steps) as (bench, workspace):
        plant(workspace, "parts/1", SHELL_CODE.format(GOOD))
        plant(workspace, "download", SHELL_CODE.format(EVIL))
        for text in ("run it", "list it"):
            await bench.say(text)
            await bench.say(f",approve {bench.card} always")
        await bench.say("both")
        assert (len(bench.cards), await bench.facts("approval.revoked", "bubbot/access")) == (2, [])
        await bench.say("read the page")
        assert await bench.facts("approval.revoked", "bubbot/access") == []
        await bench.say(f",approve {bench.card}")
        assert [fact["because"] for fact in await bench.facts("approval.revoked", "bubbot/access")] == ["shell.run"] * 2
        await bench.say("run it")
        assert (len(bench.cards), ran(workspace)) == (4, {GOOD})


async def test_a_program_is_allowed_in_the_workspace_of_its_chat_alone(tmp_path: Path) -> None:
    """The same words run other files in another chat."""
    run = calls("shell_run", argv=["sh", "-c", "sh parts/*"])
    async with running_programs(tmp_path, run, says("I asked."), says("It ran."), run, says("I asked.")) as (bench, _):
        await bench.say("run it")
        await bench.say(f",approve {bench.card} always")
        await bench.say("run it", session="other")
        assert len(bench.cards) == 2


async def test_what_others_write_in_another_chat_ends_nothing_here(tmp_path: Path) -> None:
    run = calls("shell_run", argv=["sh", "-c", "sh parts/*"])
    steps = [
        run,
        says("I asked."),
        says("It ran."),
        PAGE,
        write("parts/1", EVIL),
        says("Written."),
        run,
        says("It ran."),
    ]
    async with running_programs(tmp_path, *steps) as (bench, workspace):
        plant(workspace, "parts/1", SHELL_CODE.format(GOOD))
        await bench.say("run it")
        await bench.say(f",approve {bench.card} always")
        await bench.say("read the page", session="other")
        await bench.say("run it again")
        assert (len(bench.cards), await bench.facts("approval.revoked", "bubbot/access")) == (1, [])
        assert (workspace / "done").read_text().split() == [GOOD] * 2


async def test_grants_of_other_things_stay(tmp_path: Path) -> None:
    send = calls("post_send", to="bob")
    steps = [send, says("I asked."), says("Sent."), PAGE, write("x", EVIL), send, says("Sent.")]
    async with running_programs(tmp_path, *steps) as (bench, _):
        await bench.say("send it")
        await bench.say(f",approve {bench.card} always")
        await bench.say("read the page, send it")
        assert [name for name, _ in bench.done] == ["post.send", "page.read", "post.send"]
        assert (
            len(await bench.facts("approval.granted", "bubbot/access")),
            await bench.facts("approval.revoked", "bubbot/access"),
        ) == (1, [])


@pytest.mark.parametrize(
    ("role", "world", "people", "ends"),
    [
        (Role.OWNER, (), (), False),
        (Role.OWNER, (), ((("t", 1), Role.OWNER),), False),
        (Role.OWNER, (("t", 1),), (), True),
        (Role.OWNER, (), ((("t", 1), Role.MEMBER),), True),
        (Role.ADMIN, (), (), True),
        (Role.MEMBER, (), (), True),
    ],
)
@pytest.mark.parametrize("tool", ["file.write", "file.read", "shell.run", "shell.read"])
async def test_whose_words_end_what_was_allowed(
    tmp_path: Path, role: Role, world: Any, people: Any, ends: bool, tool: str
) -> None:
    """Also of what a member types, which no gate decides about; reading changes nothing."""
    shell = ShellService(ShellSettings(enabled=True, sandbox="none"), tmp_path, lambda: 0.0)
    files = FileSettings(enabled=True)
    tools = {
        each.name: each
        for each in (
            *shell_tools(shell, shell.settings),
            *file_tools(FileService(FileRoots(tmp_path, files), files)),
        )
    }
    ended: list[Any] = []

    class Service:
        """Keeps what would end."""

        async def end_workspace_grants(self, _turn: Any, programs: Any, because: str) -> None:
            ended.append((programs, because))

    service: Any = Service()
    guard = WorkspaceGuard(service, lambda: [*tools.values()])
    turn: Any = SimpleNamespace(role=role, shown=ShownEntries(world, people))

    async def run(_call: ToolInvocation) -> str:
        return "ran"

    called: Tool = tools[tool]
    assert await guard.around_tool(ToolInvocation(turn, called, args=None), run) == "ran"  # type: ignore[arg-type]
    expected = [({"shell.run"}, tool)] if ends and tool in ("file.write", "shell.run") else []
    assert ended == expected
