"""`bubbot completion`: prints or installs the completion script of a shell."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from bubbot.cli.completion.script import SHELLS, write_script
from bubbot.cli.output import show
from bubbot.errors import ConfigError
from bubbot.settings.environment import user_folder

HINTS: Mapping[str, str] = {
    "bash": "New shells load it by the package bash-completion. Without that, add to ~/.bashrc: source {file}",
    "zsh": "Add to ~/.zshrc, before compinit: fpath=({folder} $fpath)",
    "fish": "New shells load it.",
}
"""What is left to do after the installation."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Print the script with which a shell completes commands, options, sessions, tapes and jobs when you press Tab. "
        "Install it again after an update of bubbot."
    )
    parser.epilog = "example: bubbot completion bash --install"
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.add_argument("--install", action="store_true", help="write it where the shell looks for it")


def run(args: argparse.Namespace) -> int:
    """Print or install the script; return the exit code."""
    # Imported here: `bubbot.cli.main` imports commands by name, never the other way round.
    from bubbot.cli.main import describe_commands, load_command

    script = write_script(
        args.shell, {name: (text, load_command(name)[0]) for name, text in describe_commands().items()}
    )
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
