"""The command `bubbot` itself: options, exit codes, sentences, and how little it loads."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bubbot import __version__, errors, log
from bubbot.app.command_table import COMMANDS, CommandRow
from bubbot.cli.main import EXIT_CODES, main

EXIT_INTERRUPTED = 130


ROOT = Path(__file__).parents[3]
CANARY = "sk-canary-7f3a91"
STUB = """
import asyncio
import sys
from typing import Annotated, Literal

from bubbot import errors
from bubbot.cli.local_command import LocalCommand
from bubbot.arguments.fields import Args
from bubbot.shell_command import Argument, CommandGroup


async def fail_together(*failures):
    async def fail(error):
        raise error

    async with asyncio.TaskGroup() as group:
        for failure in failures:
            group.create_task(fail(failure))


class StubArgs(Args, frozen=True):
    inner: Annotated[Literal["list"] | None, Argument("what to list")] = None
    do: str = ""
    long: bool = False


def run(args, typed):
    exec(typed.do)
    print("stub", args.home, args.config, typed.inner)
    return 0


STUB_COMMANDS = CommandGroup(
    "stub", (LocalCommand(name="stub", run=run, args=StubArgs, form="[inner]", description="What the stub is for."),)
)
"""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, CommandRow]]:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "stub_command.py").write_text(STUB)
    monkeypatch.syspath_prepend(folder)
    yield {"stub": CommandRow("Stubs", "a stub", "stub_command"), "other": CommandRow("Stubs", "o", "stub_not_there")}
    sys.modules.pop("stub_command", None)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in os.environ:
        if name.startswith("BUBBOT_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, log.StderrHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
    for name in ("bubbot", "channels"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def process(*argv: str, stub: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """`bubbot` as a process of its own; with `stub`, that folder's command `stub`."""
    command = [sys.executable, "-m", "bubbot", *argv]
    if stub:
        (stub / "stub_command.py").write_text(STUB)
        code = (
            "import sys; from bubbot.app.command_table import CommandRow; from bubbot.cli.main import main; "
            f"sys.path.insert(0, {str(stub)!r}); "
            "sys.exit(main(rows={'stub': CommandRow('Stubs', 'a stub', 'stub_command')}))"
        )
        command = [sys.executable, "-c", code, *argv]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BUBBOT_")}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_secret_that_nobody_types_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = process("--home", str(home), "config", "set", "model.api_key", "-")
    assert (done.returncode, done.stderr) == (2, "bubbot: the input ended before model.api_key: nothing was changed\n")
    assert not (home / "config.toml").exists()


class TestOptions:
    def test_alone_it_helps(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "120")
        assert main([]) == 0
        out, err = capsys.readouterr()
        for name, command in COMMANDS.items():
            assert re.search(rf"^  {name} +{re.escape(command.help)}$", out, re.MULTILINE)
        assert err == ""

    def test_help_and_version(self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]) -> None:
        assert main(["--help"], rows=rows) == 0
        assert "usage: bubbot" in capsys.readouterr().out
        assert main(["--version"], rows=rows) == 0
        assert main(["stub", "--version"], rows=rows) == 0
        assert capsys.readouterr().out == f"bubbot {__version__}\n" * 2

    def test_help_of_one_command(self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]) -> None:
        assert main(["stub", "--help"], rows=rows) == 0
        out = capsys.readouterr().out
        assert out.startswith("usage: bubbot stub")
        assert "What the stub is for." in out
        assert "--home PATH" in out

    @pytest.mark.parametrize(
        "argv",
        [
            ["--home", "h", "--config", "c", "stub", "list"],
            ["--home", "h", "stub", "--config", "c", "list"],
            ["stub", "--home=h", "--config=c", "list"],
            ["stub", "list", "--home", "h", "--config", "c"],
            ["--home", "old", "stub", "list", "--home", "h", "--config", "c", "--long"],
        ],
    )
    def test_of_every_command_stand_anywhere(
        self, argv: list[str], capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        assert main(argv, rows=rows) == 0
        assert capsys.readouterr().out == "stub h c list\n"

    def test_not_given_they_are_none(self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]) -> None:
        assert main(["stub"], rows=rows) == 0
        assert capsys.readouterr().out == "stub None None None\n"

    def test_only_the_module_asked_for_is_loaded(self, rows: Mapping[str, CommandRow]) -> None:
        assert main([], rows=rows) == 0
        assert "stub_command" not in sys.modules
        assert main(["stub"], rows=rows) == 0

    @pytest.mark.parametrize(
        ("argv", "told"),
        [
            (["stbu"], "there is no command 'stbu': did you mean 'stub'?"),
            (["zzz"], "there is no command 'zzz'; see `bubbot --help`"),
            (["--home", "x"], "missing: COMMAND"),
            (["--hoem", "x", "stub"], "unknown option '--hoem': did you mean '--home'?"),
            (["--home", "", "stub"], "--home: the path is empty"),
            (
                ["--home", "~no-such-user/x", "stub"],
                "--home: '~no-such-user/x' is not a path here: there is no user 'no-such-user'",
            ),
            (["stub", "--hom=x"], "unknown option '--hom'"),
            (["stub", "--nothing"], "unknown option '--nothing'"),
            (["stub", "lst"], "inner is 'lst', but must be list"),
        ],
    )
    def test_wrong_usage_is_told_in_one_line_with_the_command_for_help(
        self, argv: list[str], told: str, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        assert main(argv, rows=rows) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("bubbot: ")
        assert told in err
        assert err.count("\n") == 1
        assert err.endswith(
            f" `bubbot{' stub' if 'stub' in argv and '--home' not in argv and '--hoem' not in argv else ''} --help`\n"
        )


class TestExitCodes:
    @pytest.mark.parametrize(
        ("raised", "code"),
        [
            ("errors.ConfigError", 2),
            ("errors.AddressUnavailable", 1),
            ("errors.HomeLocked", 3),
            ("errors.ModelUnavailable", 1),
            ("errors.ModelUnconfigured", 2),
            ("errors.CommandError", 1),
            ("errors.DeliveryFailed", 1),
            ("errors.StoreTooNew", 4),
            ("errors.StoreFull", 4),
            ("errors.TapeCorrupt", 5),
            ("errors.TapeConflict", 1),
        ],
    )
    def test_an_error_has_its_code_and_a_prefix_on_each_line(
        self, raised: str, code: int, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        assert main(["stub", "--do", f"raise {raised}('One.\\nTwo.')"], rows=rows) == code
        assert capsys.readouterr() == ("", "bubbot: One.\nbubbot: Two.\n")

    def test_the_command_chooses_its_own(self, rows: Mapping[str, CommandRow]) -> None:
        assert main(["stub", "--do", "sys.exit(5)"], rows=rows) == 5

    def test_a_fault_is_one_sentence(self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]) -> None:
        assert main(["stub", "--do", "raise KeyError('a\\nb\\x1b[2J')"], rows=rows) == 1
        err = capsys.readouterr().err
        assert err == (
            "bubbot: This should not have happened (KeyError: 'a\\nb\\x1b[2J'); "
            "run with BUBBOT_LOG__LEVEL=debug to see the traceback.\n"
        )

    @pytest.mark.parametrize("raised", ["MemoryError()", 'RuntimeError("can\'t start new thread")'])
    def test_a_limit_of_the_process_is_named(
        self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow], raised: str
    ) -> None:
        assert main(["stub", "--do", f"raise {raised}"], rows=rows) == 1
        assert "This process gets no further memory or thread: raise its limits" in capsys.readouterr().err

    def test_a_command_that_cannot_be_loaded(
        self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        assert main(["other"], rows=rows) == 1
        assert "No module named 'stub_not_there'" in capsys.readouterr().err

    def test_at_debug_level_there_is_a_traceback_without_secrets(
        self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("BUBBOT_LOG__LEVEL", "debug")
        monkeypatch.setenv("BUBBOT_MODEL__API_KEY", CANARY)
        assert main(["stub", "--do", f"raise ValueError('{CANARY}')"], rows=rows) == 1
        err = capsys.readouterr().err
        assert "Traceback (most recent call last)" in err
        assert CANARY not in err.partition("\n")[2]

    def test_secrets_the_log_knows_are_not_told(
        self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        log.setup("info", secrets=[CANARY])
        assert main(["stub", "--do", f"raise errors.ModelRefused('key {CANARY}')"], rows=rows) == 1
        assert main(["stub", "--do", f"raise ValueError('{CANARY}')"], rows=rows) == 1
        err = capsys.readouterr().err
        assert CANARY not in err
        assert err.count("[redacted]") == 2

    def test_several_tasks_that_fail(self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]) -> None:
        two = "asyncio.run(fail_together(errors.HomeLocked('One.'), errors.ConfigError('Two.')))"
        assert main(["stub", "--do", two], rows=rows) == 3
        assert capsys.readouterr().err == "bubbot: One.\nbubbot: Two.\n"
        mixed = "asyncio.run(fail_together(errors.HomeLocked('One.'), ValueError('Two.')))"
        assert main(["stub", "--do", mixed], rows=rows) == 1
        assert "ValueError: Two." in capsys.readouterr().err

    def test_an_interrupted_command_prints_nothing_and_returns_130(
        self, capsys: pytest.CaptureFixture[str], rows: Mapping[str, CommandRow]
    ) -> None:
        assert main(["stub", "--do", "raise KeyboardInterrupt"], rows=rows) == 130
        assert capsys.readouterr() == ("", "")

    def test_every_error_has_one(self) -> None:
        kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
        for kind in kinds:
            if issubclass(kind, errors.BubbotError):
                assert any(parent in EXIT_CODES for parent in kind.__mro__)

    def test_the_reference_agrees(self) -> None:
        text = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
        rows = re.findall(r"^\| (\d+) \|.*\|([^|]*)\|$", text, re.MULTILINE)
        told = {name: int(code) for code, names in rows for name in re.findall(r"`(\w+)`", names)}
        assert told == {kind.__name__: code for kind, code in EXIT_CODES.items()}
        assert [int(code) for code, _ in rows] == [0, 1, 2, 3, 4, 5, 6, 130]


class TestProcess:
    def test_help_loads_nothing_heavy(self) -> None:
        code = "import bubbot.cli.main as m, sys; m.main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
        )
        loaded = {name.partition(".")[0] for name in done.stderr.split()}
        assert "bubbot" in loaded
        assert not loaded & {"asyncio", "pydantic", "aiosqlite", "sqlite3", "rapidfuzz", "tomlkit"}

    def test_the_process_prints_its_version_and_offers_the_closest_command(self) -> None:
        done = process("--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"bubbot {__version__}\n", "")
        done = process("chta")
        assert done.returncode == 2
        assert "did you mean 'chat'?" in done.stderr

    def test_a_real_interruption(self, tmp_path: Path) -> None:
        done = process("stub", "--do", "import os, signal; os.kill(os.getpid(), signal.SIGINT)", stub=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

    @pytest.mark.parametrize("unbuffered", ["", "1"])
    @pytest.mark.parametrize("amount", [1, 100_000])
    def test_a_reader_that_has_enough(self, tmp_path: Path, amount: int, unbuffered: str) -> None:
        read, write = os.pipe()
        os.close(read)
        (tmp_path / "stub_command.py").write_text(STUB)
        do = f"print('x' * {amount}); sys.stdout.flush()" if amount > 1 else "print('x')"
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from bubbot.cli.main import main; "
            "from bubbot.app.command_table import CommandRow; "
            f"sys.exit(main(['stub', '--do', {do!r}], rows={{'stub': CommandRow('', '', 'stub_command')}}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")

    def test_another_broken_pipe_is_a_fault(self, tmp_path: Path) -> None:
        done = process("stub", "--do", "raise BrokenPipeError('a socket')", stub=tmp_path)
        assert done.returncode == 1
        assert "BrokenPipeError: a socket" in done.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
    def test_a_full_disk(self, tmp_path: Path) -> None:
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "bubbot"],
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": ""},
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=30,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr == b"bubbot: The output could not be written: No space left on device.\n"

    def test_without_an_output(self) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", f"{sys.executable} -m bubbot >&-"], cwd=ROOT, capture_output=True, timeout=30, check=False
        )
        assert done.returncode == 0
        assert done.stderr.startswith(b"usage: bubbot")

    def test_help_that_is_lost_is_told(self) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("has no disk that is always full")
        for unbuffered in ("", "1"):
            with Path("/dev/full").open("w") as full:
                done = subprocess.run(
                    [sys.executable, "-m", "bubbot", "tape", "--help"],
                    cwd=ROOT,
                    env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
                    stdout=full,
                    stderr=subprocess.PIPE,
                    timeout=30,
                    check=False,
                )
            assert done.returncode == 1
            assert done.stderr == b"bubbot: The output could not be written: No space left on device.\n"

    def test_closed_descriptors_are_not_given_to_files(self, tmp_path: Path) -> None:
        (tmp_path / "stub_command.py").write_text(STUB)
        do = "import os; assert os.open(os.devnull, os.O_RDONLY) > 2; assert sys.stdin.read() == ''; sys.exit(9)"
        code = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from bubbot.cli.main import main; "
            "from bubbot.app.command_table import CommandRow; "
            f"sys.exit(main(['stub', '--do', {do!r}], rows={{'stub': CommandRow('', '', 'stub_command')}}))"
        )
        done = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code],
            cwd=ROOT,
            timeout=30,
            check=False,
        )
        assert done.returncode == 9

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        "module",
        [
            "logging",
            "click",
            "bubbot.errors",
            "bubbot.cli.main",
            "bubbot.cli.doctor",
            "bubbot.settings.loader",
            "pydantic",
            "bubbot.app.tapes",
            "sqlite3",
            "asyncio",
        ],
    )
    def test_an_interruption_while_modules_load_is_silent(self, tmp_path: Path, module: str) -> None:
        code = (
            "import os, runpy, signal, sys\n"
            "class Interrupt:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Interrupt())\n"
            "sys.argv[1:] = ['doctor', '--offline']\n"
            "runpy.run_module('bubbot', run_name='__main__')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "BUBBOT_HOME": str(tmp_path)},
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")

    def test_an_interruption_while_the_process_ends_is_silent(self, tmp_path: Path) -> None:
        code = (
            "import atexit, os, runpy, signal, sys\n"
            "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
            "sys.argv[1:] = ['--version']\n"
            "runpy.run_module('bubbot', run_name='__main__')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (130, b"")

    def test_an_interruption_that_is_ignored_stays_ignored(self, tmp_path: Path) -> None:
        code = (
            "import os, runpy, signal, sys\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "class Interrupt:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'bubbot.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Interrupt())\n"
            "sys.argv[1:] = ['--version']\n"
            "runpy.run_module('bubbot', run_name='__main__')\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, b"")

    def test_a_wrong_setting_from_end_to_end(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(f'[model]\napi_kye = "{CANARY}"\n')
        do = "from bubbot.settings.loader import load; load(home=args.home)"
        done = process("--home", str(tmp_path), "stub", "--do", do, stub=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        told = "[model] api_kye is not a setting; did you mean 'api_key'?"
        assert done.stderr == f"bubbot: {tmp_path / 'config.toml'}: {told}\n"
