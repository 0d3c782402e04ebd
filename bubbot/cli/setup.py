"""What commands share: settings, home, log, session ids."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from bubbot import log
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.settings.environment import default_home, environment_secrets
from bubbot.settings.loader import Settings, load, load_with_missing_secrets


@dataclass(frozen=True, slots=True)
class CommandSetup:
    """The settings and the home of this run.

    The settings may lack secrets, which reading commands and the terminal do not need; whoever needs them calls
    `Settings.require_secrets`.
    """

    settings: Settings
    home: Home
    config: Path | None = None

    def read(self) -> Settings:
        """The settings as they are written now. Raises `ConfigError`."""
        return load(home=self.home.path, config=self.config)

    def read_without_secrets(self) -> Settings:
        """Read the settings as they are written now; a secret whose file cannot be used is left out."""
        return load_with_missing_secrets(home=self.home.path, config=self.config)


def setup(args: argparse.Namespace, *, quiet: bool = True) -> CommandSetup:
    """Loads the settings and sets up the log; `quiet`: a person sees warnings only, unless asked for more."""
    home = Home(getattr(args, "home", None) or default_home())
    config: Path | None = getattr(args, "config", None)
    made = CommandSetup(load_with_missing_secrets(home=home.path, config=config), home, config)
    level, form = made.settings.log.level, made.settings.log.format
    secrets = (*made.settings.secrets(), *environment_secrets())
    log.setup("warning" if quiet and level == "info" else level, secrets=secrets, form=form)
    return made


def session_id(text: str) -> str:
    """The session id that a name given on the command line stands for: `work` is `stdin:work`."""
    chat = text.removeprefix("stdin:").strip()
    if not chat:
        raise ConfigError("--session is empty; give the conversation a name, such as work")
    return f"stdin:{chat}"
