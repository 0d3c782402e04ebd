"""What commands share: settings, home, log, session ids."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bubbot import log
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.settings import Settings, default_home, environment_secrets, load


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings and the home of this run."""

    settings: Settings
    home: Home


def setup(args: argparse.Namespace, *, quiet: bool = True) -> Setup:
    """Loads the settings and sets up the log; `quiet`: a person sees warnings only, unless asked for more."""
    home = Home(getattr(args, "home", None) or default_home())
    settings = load(home=home.path, config=getattr(args, "config", None))
    level = settings.log.level
    log.setup(
        "warning" if quiet and level == "info" else level,
        secrets=(*settings.secrets(), *environment_secrets()),
        form=settings.log.format,
    )
    return Setup(settings, home)


def session_id(text: str) -> str:
    """The session id that a name given on the command line stands for: `work` is `stdin:work`."""
    chat = text.removeprefix("stdin:").strip()
    if not chat:
        raise ConfigError("--session is empty; give the conversation a name, such as work")
    return f"stdin:{chat}"
