"""The tools that run programs: real programs, their limits and their end. Ways out of sandboxes are in `test_escapes.py`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.features.shell.commands import shell_tools
from bubbot.features.shell.feature import ShellFeature
from bubbot.features.shell.named_files import digest_named_files
from bubbot.features.shell.runner import ProgramOutput
from bubbot.features.shell.service import ShellService, TooManyJobs
from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.channel import Role, session_folder
from bubbot.sandbox import sandbox as sandboxes
from bubbot.sandbox.sandbox import (
    BubblewrapSandbox,
    ConfinedSandbox,
    SandboxUnusable,
    choose_sandbox,
    make_workspace,
)
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.provenance import Source
from bubbot.texts import Texts
from bubbot.tool import ArgumentsInvalid, EffectKind, GrantKind, Repeat, Tool, plan_call
from tests.approving import approving
from tests.e2e import forked
from tests.made_settings import make_settings
from tests.sandboxes import require
from tests.turns import HOME, Options, Played, calls, running, says

SANDBOXES = ("bwrap", "landlock", "none")
LIMIT_SECONDS = 30.0


def settings(**values: Any) -> ShellSettings:
    return ShellSettings.model_validate({"enabled": True, "sandbox": "none", **values})


def service(home: Path, **values: Any) -> ShellService:
    return ShellService(settings(**values), home, time.monotonic)


def tool(name: str, made: ShellService) -> Tool:
    return next(tool for tool in shell_tools(made, made.settings) if tool.name == name)


async def gone(mark: str) -> bool:
    """Return true once no process has this in its command line."""
    return await until(lambda: not _find_processes(mark))


async def until(condition: Callable[[], object]) -> bool:
    """Return true once the condition holds: of other processes there are no events."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return True


def _find_processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith(b"sleep\0") and mark.encode() in line:
            found.append(int(folder.name))
    return found


def new_mark() -> str:
    """Seconds for `sleep` that no other process has."""
    return f"9{secrets.randbelow(10**9):09}"


async def test_a_program_runs_in_the_folder_of_its_chat(memory_store: InMemoryStore, tmp_path: Path) -> None:
    made = service(tmp_path)
    model = Played(
        calls("shell_run", argv=["sh", "-c", 'echo "$0 $1"; pwd; exit 3', "a b", "*"]),
        calls("shell_run", script="echo one two | wc -w > count; cat count"),
        says("done"),
    )
    async with running(memory_store, model, Options(tools=shell_tools(made, made.settings))) as bench:
        await bench.say("go")
        first, second = [str(one["content"]) for one in bench.requests[-1].messages if one["role"] == "tool"]
    folder = made.find_workspace(HOME)
    assert first.startswith("[exit status 3, ")
    assert first.split("\n")[1:] == ["a b *", str(folder), ""]
    assert second.startswith("[exit status 0, ")
    assert second.split("\n")[1] == "2"
    assert (folder / "count").read_text().strip() == "2"
    assert folder == session_folder(tmp_path, HOME) / "workspace"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"argv": ["ls"], "script": "ls"},
        {"script": "  "},
        {"argv": "rm -r a,b"},
        {"argv": ["a\0b"]},
        {"argv": [""]},
        {"argv": ["-a", "ls", "rm"]},  # some shells take -a for an option of exec, and run rm under the name ls
        {"script": "a\0b"},
        {"script": "ls \r rm -r ."},
        {"argv": ["echo", "\x1b[2K"]},
        {"argv": ["rm", "\u202etxt.exe"]},
        {"script": "x" * 20_001},
    ],
)
def test_a_command_is_a_list_or_a_text_and_not_too_long(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsInvalid):
        tool("shell.run", service(tmp_path)).validate(arguments)


async def test_a_plan_shows_the_command_as_it_runs_and_only_lists_can_be_granted(tmp_path: Path) -> None:
    made = service(tmp_path)
    run = tool("shell.run", made)
    turn: Any = SimpleNamespace(result_texts=Texts(), session=HOME)
    argv = run.validate({"argv": ["rm", "-r", "a b; c"]})
    plan = await plan_call(turn, run, argv)
    first, _, rest = plan.details.partition("\n")
    assert first == "rm -r 'a b; c'"
    assert rest.strip() == f"In {made.find_workspace(HOME)}, in the sandbox none, with the network."
    assert rest.strip() == plan.state  # with another sandbox a yes of before is void
    assert plan.target is not None
    assert plan.target.kind is GrantKind.ARGUMENTS
    other: Any = SimpleNamespace(result_texts=Texts(), session="test:other")
    assert plan.target == (await plan_call(turn, run, argv)).target != (await plan_call(other, run, argv)).target
    plan = await plan_call(turn, run, run.validate({"script": "rm -r a | b"}))
    assert plan.details.startswith("rm -r a | b\n")
    assert plan.target is None


@pytest.mark.parametrize("named", [{"argv": ["sh", "tidy.sh"]}, {"script": "sh ./tidy.sh|cat"}])
@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_yes_is_void_once_a_file_that_the_command_names_has_changed(
    tmp_path: Path, named: dict[str, Any], *, is_changed: bool
) -> None:
    """A page may have the model write another script, which needs no yes, while a person reads this one."""
    made = service(tmp_path)
    folder = made.find_workspace("stdin:default")
    make_workspace(folder)
    (folder / "tidy.sh").write_text("echo tidy > done")
    model = Played(calls("shell_run", **named), says("I asked."), says("?"))
    async with approving(tmp_path / "home", model, tools=shell_tools(made, made.settings)) as bench:
        await bench.say("tidy up")
        assert "A yes, also for the chat or always, holds as these files are now: tidy.sh." in bench.channel.texts[0]
        if is_changed:
            (folder / "tidy.sh").write_text("echo stolen > done")
        await bench.say(f",approve {bench.card}")
        assert ("has changed since" in (await bench.results())[-1]) is is_changed
        assert (folder / "done").exists() is not is_changed


@pytest.mark.parametrize("change", ["other words", "gone", "new", ""])
async def test_a_standing_yes_asks_again_once_a_file_that_the_command_names_has_changed(
    tmp_path: Path, change: str
) -> None:
    """The model may write such a file without a yes, so that the same arguments would run anything."""
    made = service(tmp_path)
    folder = made.find_workspace("stdin:default")
    make_workspace(folder)
    script = folder / "tidy.sh"
    if change != "new":
        script.write_text("echo tidy >> done")
    call = calls("shell_run", argv=["sh", "tidy.sh"])
    model = Played(call, says("I asked."), says("It ran."), call, says("?"), says("?"))
    async with approving(tmp_path / "home", model, tools=shell_tools(made, made.settings)) as bench:
        await bench.say("tidy up")
        await bench.say(f",approve {bench.card} always")
        done = (folder / "done").read_text() if change != "new" else ""
        if change == "gone":
            script.unlink()
        elif change:
            script.write_text("echo stolen >> done")
        await bench.say("tidy up again")
        ran = (folder / "done").read_text() if change != "new" else ""
        asked = "asked" in (await bench.results())[-1]
        assert (ran, asked) == ((done * 2, False) if not change else (done, True))
        assert not change or "stolen" not in ran


def test_only_files_of_the_workspace_are_looked_at(tmp_path: Path) -> None:
    workspace, secret = tmp_path / "workspace", tmp_path / "secret"
    (workspace / "in").mkdir(parents=True)
    secret.write_text("key")
    (workspace / "link").symlink_to(secret)
    (workspace / "in" / "a b").write_text("x")
    os.mkfifo(workspace / "pipe")
    words = [
        "link",
        "../secret",
        str(secret),
        "pipe",
        "in",
        "in/a b",
        "--file=in/../in/a b",
        "no",
        "",
        "\0",
        "x" * 5000,
    ]
    assert list(digest_named_files(workspace, words)) == ["in/a b"]
    assert digest_named_files(tmp_path / "missing", ["a"]) == {}


async def test_a_program_that_is_unknown_is_told(tmp_path: Path) -> None:
    result = await service(tmp_path).run(HOME, ["no-such-program"])
    assert (result.end.status, result.output) == (127, "no-such-program: no such program\n")


async def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    made = service(tmp_path)
    await made.run(HOME, ["touch", "note"])
    result = await made.run(HOME, ["./note", "x"])
    assert (result.end.status, result.output) == (126, "./note: Permission denied\n")


async def test_a_program_is_ended_after_its_time_with_all_it_started(tmp_path: Path) -> None:
    mark = new_mark()
    made = service(tmp_path, timeout=0.5)
    result = await made.run(HOME, ["sh", "-c", f"echo begun; (setsid sleep {mark} &) ; sleep {mark}"])
    assert (result.end.status, result.end.reason) == (128 + signal.SIGTERM, "time")
    assert result.output == "begun\n"
    assert await gone(mark)


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_turn_that_is_stopped_ends_its_program(
    tmp_path: Path, name: str, request: pytest.FixtureRequest, begin: Callable[..., Any]
) -> None:
    require(name, request)
    mark, run = new_mark(), tool("shell.run", service(tmp_path, sandbox=name))
    turn = await begin(role=Role.OWNER)
    task = asyncio.ensure_future(run.run(turn, run.validate({"argv": ["sleep", mark]})))
    await until(lambda: _find_processes(mark))
    task.cancel()
    await asyncio.wait({task}, timeout=LIMIT_SECONDS)
    assert task.cancelled()
    assert await gone(mark)


def test_of_a_long_output_the_beginning_and_the_end_are_kept() -> None:
    output = ProgramOutput(10)
    for piece in (b"abc", b"defg", b"h" * 100, b"vwxyz"):
        output.add(piece)
    assert output.text() == "abcde\n… [102 bytes left out]\nvwxyz"
    short = ProgramOutput(10)
    short.add(b"0123456789")
    assert short.text() == "0123456789"


async def test_a_program_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    result = await service(tmp_path, max_output=1000, timeout=LIMIT_SECONDS).run(HOME, ["yes"])
    assert result.end.reason == "output"
    assert len(result.output) < 1100


async def test_what_a_terminal_would_obey_is_replaced(tmp_path: Path) -> None:
    result = await service(tmp_path).run(HOME, ["printf", r"\033]0;owned\007 \033[2J \377 ok\n"])
    assert result.output == "\ufffd]0;owned\ufffd \ufffd[2J \ufffd ok\n"


async def test_a_program_has_nothing_of_the_bots_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_MODEL__API_KEY", "secret")
    result = await service(tmp_path).run(HOME, ["env"])
    names = {line.partition("=")[0] for line in result.output.splitlines()}
    assert names - {"LC_CTYPE", "PWD", "_", "SHLVL"} == {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PAGER"}


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_process_gets_no_more_memory_than_the_limit(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    require(name, request)
    made = service(tmp_path, sandbox=name, memory=64)
    result = await made.run(HOME, ["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"])
    assert result.end.status != 0
    assert "memory" in result.output.lower()


async def test_a_link_in_place_of_a_workspace_is_refused(tmp_path: Path) -> None:
    made = service(tmp_path)
    folder = made.find_workspace(HOME)
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path)
    with pytest.raises(SandboxUnusable, match="is a link"):
        await made.run(HOME, ["true"])


async def test_a_program_has_a_folder_for_temporary_files_unless_it_put_a_link_there(tmp_path: Path) -> None:
    made = service(tmp_path)
    assert (await made.run(HOME, ["mktemp"])).output.startswith(str(made.find_workspace(HOME) / ".tmp"))
    assert (await made.run(HOME, ["sh", "-c", "rm -r .tmp; ln -s nowhere .tmp"])).end.status == 0
    assert (await made.run(HOME, ["readlink", ".tmp"])).output == "nowhere\n"


# --- in the background ---


async def test_a_program_in_the_background_is_read_and_stopped(memory_store: InMemoryStore, tmp_path: Path) -> None:
    mark, made = new_mark(), service(tmp_path)
    model = Played(
        calls("shell_run", script=f"echo begun; sleep {mark}", background=True),
        calls("shell_stop"),
        calls("shell_read", job="1"),
        calls("shell_read", job="7"),
        says("done"),
    )
    async with running(memory_store, model, Options(tools=shell_tools(made, made.settings))) as bench:
        await bench.say("go")
        results = [str(one["content"]) for one in bench.requests[-1].messages if one["role"] == "tool"]
    assert results[0].startswith("It runs in the background as number 1;")
    assert results[1].startswith("[number 1: stopped]")
    assert results[2].startswith("[number 1: stopped]")
    assert results[3] == "there is no program '7' here; there are: 1"
    assert await gone(mark)


async def test_another_chat_neither_sees_nor_ends_a_program(tmp_path: Path) -> None:
    made = service(tmp_path, max_jobs=1)
    job = await made.start(HOME, ["sleep", new_mark()], "sleep")
    assert made.list_jobs("test:other") == ()
    await made.end_jobs("test:other")
    assert job.end is None
    assert [job.id, (await made.start("test:other", ["true"], "true")).id] == ["1", "2"]
    with pytest.raises(TooManyJobs):
        await made.start(HOME, ["true"], "true")
    await made.close()
    assert job.end is not None


async def test_a_program_in_the_background_ends_after_its_time(tmp_path: Path) -> None:
    made = service(tmp_path, job_timeout=0.2)
    job = await made.start(HOME, ["sleep", new_mark()], "sleep")
    await until(lambda: job.end)
    assert job.end is not None
    assert job.end.reason == "time"


@asynccontextmanager
async def feature_of(home: Path, **values: Any) -> Any:
    feature = ShellFeature(home, make_settings(settings(**values))).feature()
    assert feature.lifecycle.lifespan is not None
    async with feature.lifecycle.lifespan():
        yield feature


async def test_programs_end_with_the_bot_and_with_a_new_beginning(memory_store: InMemoryStore, tmp_path: Path) -> None:
    marks = [new_mark(), new_mark()]
    model = Played(
        calls("shell_run", argv=["sleep", marks[0]], background=True),
        says("one"),
        calls("shell_run", argv=["sleep", marks[1]], background=True),
        says("two"),
    )
    async with feature_of(tmp_path) as feature, running(memory_store, model, Options(features=[feature])) as bench:
        await bench.say("go")
        await until(lambda: _find_processes(marks[0]))
        await bench.say(",reset")
        assert _find_processes(marks[0]), "it was only asked how"
        await bench.say(",reset archive")
        assert await gone(marks[0])
        await bench.say("go")
        await until(lambda: _find_processes(marks[1]))
    assert await gone(marks[1])


@pytest.mark.parametrize("name", SANDBOXES)
async def test_programs_end_with_a_bot_that_is_killed(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    require(name, request)
    mark = new_mark()
    code = (
        "import asyncio, sys, time; from pathlib import Path; from bubbot.features.shell.service import ShellService; "
        "from bubbot.features.shell.settings import ShellSettings\n"
        "async def main():\n"
        f"    made = ShellService(ShellSettings(sandbox={name!r}), Path(sys.argv[1]), time.monotonic)\n"
        f"    await made.start('test:home', ['sh', '-c', 'sleep {mark} & sleep {mark}'], '')\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    bot = forked.start(
        forked.PROGRAM, [code, str(tmp_path)], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, streams=(0, 1, 2)
    )
    await until(lambda: len(_find_processes(mark)) == 2)
    bot.kill()
    await bot.ended()
    assert await gone(mark)


# --- which sandbox ---


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which sandboxes are looked for, in place of those of the system."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sandboxes, "find_bubblewrap", lambda: shutil.which("bwrap", path=str(folder)))
    return folder


def broken_bubblewrap(folder: Path, reason: str = "bwrap: setting up uid map: Permission denied") -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\necho '{reason}' >&2\nexit 1\n")
    program.chmod(0o755)


async def test_a_sandbox_that_was_chosen_is_never_replaced(path: Path) -> None:
    with pytest.raises(SandboxUnusable, match="bubblewrap is not installed"):
        await choose_sandbox(settings(sandbox="bwrap"))
    broken_bubblewrap(path)
    with pytest.raises(SandboxUnusable, match="bwrap does not work here: bwrap: setting up uid map: Permission denied"):
        await choose_sandbox(settings(sandbox="bwrap"))
    broken_bubblewrap(path, "x" * 1_000)
    with pytest.raises(SandboxUnusable, match=r"here: x{300}$"):
        await choose_sandbox(settings(sandbox="bwrap"))


async def test_the_choice_is_bubblewrap_then_landlock_then_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_bubblewrap(path)

    async def works(_: Any) -> None:
        pass

    async def fails(made: Any) -> None:
        raise SandboxUnusable(f"{made.name} does not work here")

    monkeypatch.setattr(sandboxes, "probe", lambda made: (works if made.name == "landlock" else fails)(made))
    assert (await choose_sandbox(settings(sandbox="auto"))).name == "landlock"
    monkeypatch.setattr(sandboxes, "probe", fails)
    for name in ("auto", "landlock", "none"):
        with pytest.raises(SandboxUnusable):
            await choose_sandbox(settings(sandbox=name))
    monkeypatch.setattr(sandboxes, "LANDLOCK_PACKAGE", "no_landlock")
    with pytest.raises(SandboxUnusable, match=r"bwrap does not work here; landlock needs the package no_landlock$"):
        await choose_sandbox(settings(sandbox="auto"))


@pytest.mark.parametrize(
    ("has_rules", "right", "wrong"),
    [
        (False, '"RLIMIT_CPU": 10', '"RLIMIT_CPU": "ten"'),
        (True, '"writing": [', '"writing": [null, '),
        (True, '"library": "', '"library": "/nowhere'),
    ],
)
async def test_nothing_runs_if_a_limit_or_a_rule_cannot_be_set(
    tmp_path: Path, has_rules: bool, right: str, wrong: str
) -> None:
    make_workspace(tmp_path / "work")
    made = ConfinedSandbox(has_network=False, has_rules=has_rules)
    command = made.build_command(["echo", "ran"], tmp_path / "work", sandboxes.ProgramLimits(10, 2**30, 16))
    assert right in command[4]
    command[4] = command[4].replace(right, wrong)
    env = sandboxes.program_environment(tmp_path / "work")
    done = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = await done.communicate()
    assert (done.returncode, output) == (125, b"")
    assert b"the sandbox cannot be made" in errors


async def test_nothing_runs_if_landlock_is_too_old_to_keep_signals_in(tmp_path: Path) -> None:
    make_workspace(tmp_path / "work")
    package = tmp_path / "library" / "landlockpy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def abi_version():\n    return 5\n")
    made = ConfinedSandbox(has_network=False)
    command = made.build_command(["echo", "ran"], tmp_path / "work", sandboxes.ProgramLimits(10, 2**30, 16))
    options = json.loads(command[4])
    options["landlock"]["library"] = str(package.parent)
    command[4] = json.dumps(options)
    env = sandboxes.program_environment(tmp_path / "work")
    done = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = await done.communicate()
    assert (done.returncode, output) == (125, b"")
    assert b"Landlock has version 5 here, and 6 is needed" in errors


def count_own_processes() -> int:
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError):  # it ends meanwhile
            count += folder.stat().st_uid == os.getuid()
    return count


async def limits_of_program(home: Path, processes: int) -> dict[str, str]:
    """The limits that a program finds without a sandbox."""
    made = service(home, timeout=10, memory=512, max_processes=processes)
    result = await made.run(HOME, ["cat", "/proc/self/limits"])
    return {line[:26].strip(): line[26:].split()[0] for line in result.output.splitlines()}


async def test_a_program_without_a_sandbox_has_its_limits(tmp_path: Path) -> None:
    few, many = await limits_of_program(tmp_path, 16), await limits_of_program(tmp_path, 2_016)
    assert (few["Max cpu time"], few["Max address space"], few["Max core file size"]) == ("11", str(2**29), "0")
    assert few["Max file size"] == str(sandboxes.MAX_FILE_BYTES)
    # The threads that the user has already come on top: others come and go meanwhile.
    assert int(few["Max processes"]) > 16 + count_own_processes() // 2
    assert 1_500 < int(many["Max processes"]) - int(few["Max processes"]) < 2_500


def test_bubblewrap_is_given_the_limits_in_the_units_of_a_shell() -> None:
    limits = sandboxes.ProgramLimits(10, 2**30, 16)
    command = BubblewrapSandbox(has_network=False).build_command(["true"], Path("/work"), limits)
    assert command[-5:] == ["16", str(2**20), str(sandboxes.MAX_FILE_BYTES // 512), "10", "true"]


@pytest.mark.parametrize("has_network", [True, False])
def test_what_names_servers_is_readable_only_with_the_network(has_network: bool) -> None:
    limits = sandboxes.ProgramLimits(10, 2**30, 16)
    for made in (BubblewrapSandbox(has_network=has_network), ConfinedSandbox(has_network=has_network)):
        command = " ".join(made.build_command(["true"], Path("/work"), limits))
        assert "/etc/passwd" in command
        assert ("/etc/resolv.conf" in command) is has_network


@pytest.mark.proof
@pytest.mark.parametrize("name", ["bwrap", "landlock"])
async def test_a_sandbox_adds_less_than_a_tenth_of_a_second(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    require(name, request)
    made = await choose_sandbox(settings(sandbox=name))
    make_workspace(tmp_path)
    sandboxed = made.build_command(["true"], tmp_path, sandboxes.ProgramLimits(10, 2**30, 16))
    assert measure_seconds(sandboxed, tmp_path) - measure_seconds(["true"], tmp_path) < 0.1


def measure_seconds(command: list[str], folder: Path) -> float:
    """The least processor time of a command in several runs; a clock would measure what else the machine does."""
    least = 9.0
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, env=sandboxes.program_environment(folder), check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


async def test_without_a_sandbox_that_works_the_tool_says_why(
    memory_store: InMemoryStore, tmp_path: Path, path: Path
) -> None:
    made = service(tmp_path, sandbox="bwrap")
    model = Played(calls("shell_run", argv=["true"]), says("done"))
    async with running(memory_store, model, Options(tools=shell_tools(made, made.settings))) as bench:
        await bench.say("go")
        assert bench.requests[-1].messages[-1]["content"] == "No program can run here: bubblewrap is not installed."
        typed = await bench.say(",shell.run true")
        assert "bubblewrap is not installed" in typed.text


async def test_new_settings_are_followed(tmp_path: Path, path: Path) -> None:
    made = service(tmp_path)
    assert (await made.run(HOME, ["true"])).end.status == 0
    made.apply(settings(sandbox="bwrap"))
    with pytest.raises(SandboxUnusable):
        await made.run(HOME, ["true"])


# --- what the tools declare, and what the doctor says ---


def test_what_a_program_may_do_is_declared(tmp_path: Path) -> None:
    for values, has_network in (({"sandbox": "auto"}, False), ({"sandbox": "none"}, True), ({"sandbox": "auto", "network": True}, True)):  # fmt: skip
        run = tool("shell.run", service(tmp_path, **values))
        assert (run.effect.kind, run.effect.once, run.effect.source) == (EffectKind.OUTSIDE, Repeat.NEVER, Source.WORLD)
        assert run.effect.has_network is has_network
        assert run.role is Role.OWNER
    assert run.timeout is not None


def test_nothing_is_there_or_loaded_unless_it_is_switched_on() -> None:
    assert ShellFeature(Path("/"), make_settings()).feature().tools == ()
    code = (
        "import sys; from bubbot.app.own_features import find_parts, own_events, settings_schema; "
        "list(find_parts('feature', 'create')), list(find_parts('feature', 'create_lasting')), own_events(), settings_schema(); "
        "print(sorted(name for name in sys.modules if name.startswith(('bubbot.features.shell', 'bubbot.features.web'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == str(
        [
            "bubbot.features.shell",
            "bubbot.features.shell.feature",
            "bubbot.features.shell.settings",
            "bubbot.features.web",
            "bubbot.features.web.facts",
            "bubbot.features.web.feature",
            "bubbot.features.web.settings",
        ]
    )


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
async def test_with_the_network_a_program_reaches_it(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    require(name, request)
    python = str(Path(sys.base_prefix, "bin", "python3").resolve())  # noqa: ASYNC240 - the file system of the test
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    code = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('connected')"
    for has_network, reached in ((True, True), (False, False)):
        made = service(tmp_path, sandbox=name, network=has_network, readable=[sys.base_prefix])
        result = await made.run(HOME, [python, "-I", "-c", code])
        # All of the output: a traceback shows the code, and what it would have printed, since Python 3.13.
        assert (result.output == "connected\n") is reached, result.output
    server.close()
