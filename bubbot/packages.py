"""Commands that change the packages of the running environment: through its pip, else through uv or pipx.

Environments of uv have no pip. Those of pipx have one by a link, unless pipx works with a uv of its own.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which


def package_command(action: str, *arguments: str) -> tuple[str, ...]:
    """Build a command such as `pip install …` for the running environment; pip's if no tool is found."""
    if find_spec("pip") is None:
        if which("uv") is not None:
            return ("uv", "pip", action, "--python", sys.executable, *arguments)
        if Path(sys.prefix, "pipx_metadata.json").exists() and which("pipx") is not None:
            return ("pipx", "runpip", Path(sys.prefix).name, action, *arguments)
    unasked = ("--yes",) if action == "uninstall" else ()
    return (sys.executable, "-m", "pip", action, *unasked, *arguments)


def requirements_command(module: str) -> str:
    """Write the command that installs the locked packages of an extra, the `requirements.txt` beside its module."""
    file = Path(module).with_name("requirements.txt")
    return shlex.join(package_command("install", "--no-deps", "--require-hashes", "-r", str(file)))


def can_change_packages() -> bool:
    """Return true if the tool of `package_command` is there."""
    return find_spec("pip") is not None or package_command("install")[0] != sys.executable


def list_missing(lock: str) -> list[str]:
    """List the pins of a lock file, such as `name==1.0`, that are not installed in exactly this version."""
    # Imported here: `bubbot status` uses this module for its findings, and never asks this.
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    def is_installed(pin: Requirement) -> bool:
        if pin.marker is not None and not pin.marker.evaluate():
            return True
        try:
            return pin.specifier.contains(version(pin.name), prereleases=True)
        except PackageNotFoundError:
            return False

    lines = [line for line in lock.replace("\\\n", " ").splitlines() if line and not line.startswith(("#", "-"))]
    pins = [Requirement(line.partition(" --hash")[0]) for line in lines]
    return [str(pin) for pin in pins if not is_installed(pin)]
