"""The bot does its work under what its unit forbids."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.ops.service.render import read_unit
from tests.e2e import forked
from tests.e2e.bot import environment
from tests.e2e.confined import NO_WRITE_AND_EXECUTE, allowed
from tests.e2e.daemon import configured, running
from tests.e2e.forked import ROOT
from tests.fakes.botapi.server import Server

TARGET = "tests.e2e.confined:main"


def _can_confine() -> bool:
    """Whether the tools are there, and a kernel that can forbid memory that is written and run."""
    if shutil.which("systemd-analyze") is None:
        return False
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return False
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl({NO_WRITE_AND_EXECUTE}, 1, 0, 0, 0))"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not _can_confine(), reason="needs systemd-analyze, libseccomp and Linux 6.3"),
]


@pytest.fixture(params=["bubbot.service", "bubbot-user.service"])
def calls(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of allowed calls of a unit."""
    file = tmp_path / "calls"
    names = allowed(read_unit(request.param))
    assert {"mount", "chown", "reboot", "ptrace", "setpriority"}.isdisjoint(names)
    file.write_text("\n".join(sorted(names)))
    return file


async def test_a_daemon_answers_and_ends_under_what_its_unit_forbids(tmp_path: Path, calls: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, {"default": [{"text": "You said: {text}"}]}, owners=[ada.id])
        async with running(home, target=TARGET, arguments=(str(calls), "run")):
            room.say("hello")
            await server.until(lambda: "You said: hello" in server.transcript(times=False), 60)


def test_what_is_forbidden_is_refused(tmp_path: Path, calls: Path) -> None:
    code = (
        "import mmap, os, sys\n"
        "import bubbot.cli.main\n"
        "def probe(arguments):\n"
        "    for work in (lambda: mmap.mmap(-1, 4096, prot=7), lambda: os.nice(-1), lambda: os.chown('.', 0, 0)):\n"
        "        try:\n"
        "            work()\n"
        "        except OSError:\n"
        "            continue\n"
        "        return 1\n"
        "    return 0\n"
        "bubbot.cli.main.main = probe\n"
        "from tests.e2e.confined import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(calls)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the demonstration model is not installed")
def test_the_demonstration_model_runs_under_what_its_unit_forbids(tmp_path: Path, calls: Path) -> None:
    home = tmp_path / "home"
    env = environment(home, BUBBOT_MODEL__NAME="local")
    done = forked.run(TARGET, [str(calls), "ask", "What is the capital of France?"], b"", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert b"Paris" in done.stdout
