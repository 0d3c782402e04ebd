"""Which sandboxes this machine can have, found without bubbot's own code: one that is broken must fail, not skip."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec

import pytest

LANDLOCK_PACKAGE = "landlockpy"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LANDLOCK_CREATE_RULESET, WITH_VERSION = 444, 1


def require(name: str, request: pytest.FixtureRequest) -> None:
    """Skip if this machine cannot have the sandbox; fail under --proof."""
    if reason := find_obstacle(name):
        if request.config.getoption("--proof"):
            pytest.fail(f"the proof needs the sandbox {name}: {reason}")
        pytest.skip(f"no sandbox {name} here: {reason}")


@cache
def find_obstacle(name: str) -> str:
    """Why this machine cannot have the sandbox; empty if it can."""
    if name == "none":
        return ""
    if name == "bwrap":
        return _find_obstacle_to_namespaces()
    if find_spec(LANDLOCK_PACKAGE) is None:
        return f"the package {LANDLOCK_PACKAGE} is missing"
    version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), WITH_VERSION)
    return "" if version >= 6 else f"Landlock has version {version}"


def _find_obstacle_to_namespaces() -> str:
    program = shutil.which("bwrap", path=SEARCH_PATH)
    if program is None:
        return "bubblewrap is not installed"
    options = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    done = subprocess.run([program, *options, "true"], capture_output=True, check=False)
    return done.stderr.decode(errors="replace").strip() if done.returncode else ""
