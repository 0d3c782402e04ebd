"""`bubbot completion`: prints or installs the completion script of a shell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import click

from bubbot.arguments.fields import Args
from bubbot.cli.completion.shells import write_script
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show
from bubbot.errors import ConfigError
from bubbot.settings.environment import user_folder
from bubbot.shell_command import Argument, CommandGroup

HINTS: Mapping[str, str] = {
    "bash": "New shells load it by the package bash-completion. Without that, add to ~/.bashrc: source {file}",
    "zsh": "Add to ~/.zshrc, before compinit: fpath=({folder} $fpath)",
    "fish": "New shells load it.",
}
"""The remaining steps after the installation."""


class CompletionArgs(Args, frozen=True):
    """The arguments of `bubbot completion`."""

    shell: Annotated[Literal["bash", "zsh", "fish"], Argument("the shell")]
    install: Annotated[bool, Argument("write it where the shell looks for it")] = False


@local_command("completion", example="completion bash --install")
def print_completion(args: CompletionArgs) -> int:
    """Complete commands with Tab in your shell.

    Print the script with which a shell completes commands, options, sessions, tapes and jobs when you press Tab.
    """
    script = write_script(args.shell, click.get_current_context().find_root().command)
    if not args.install:
        show(script, end="", wraps=False)
        return 0
    file = find_script_file(args.shell)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written ({error.strerror}): bubbot completion {args.shell} > FILE puts it elsewhere."
        ) from error
    show(f"Wrote {file}. {HINTS[args.shell].format(file=file, folder=file.parent)}")
    return 0


def find_script_file(shell: str) -> Path:
    """Return the file in which a shell looks for the script. Raise `ConfigError` if the user has no folder."""
    if shell == "fish":
        return user_folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "bubbot.fish"
    data = user_folder("XDG_DATA_HOME", ".local/share")
    if shell == "zsh":
        return data / "zsh" / "site-functions" / "_bubbot"
    return data / "bash-completion" / "completions" / "bubbot"


COMPLETION_COMMANDS = CommandGroup("completion", (print_completion,))
