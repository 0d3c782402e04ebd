"""The parts that commands share: settings, home, log, session ids."""

from __future__ import annotations

import logging
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct

from bubbot import log
from bubbot.app.settings import load, load_with_missing_secrets
from bubbot.cli.invocation import Invocation, decode_text
from bubbot.errors import UsageError
from bubbot.home import Home
from bubbot.settings.environment import default_home, environment_secrets, terminal_style
from bubbot.settings.loader import Settings


class CommandSetup(Struct, frozen=True):
    """The settings and the home of a command.

    Attributes:
        settings: may lack secrets, which reading commands and the terminal do not need; others call
            `Settings.require_secrets`.
        config: the configuration, if not the one in the home.
        as_json: print the result as JSON.
        is_plain: print lines without redrawing, for screen readers.
    """

    settings: Settings
    home: Home
    config: Path | None = None
    as_json: bool = False
    is_plain: bool = False

    def read_settings(self) -> Settings:
        """Read the settings again from their sources. Raise `ConfigError`."""
        return load(home=self.home.path, config=self.config)

    def read_settings_without_secrets(self) -> Settings:
        """Read the settings again without secrets whose files are unusable."""
        return load_with_missing_secrets(home=self.home.path, config=self.config)


def load_setup(invocation: Invocation, *, quiet: bool = True) -> CommandSetup:
    """Load the settings and set up the log; if `quiet`, the level `info` shows only warnings."""
    home, config = Home(invocation.home or default_home()), invocation.config
    settings = load_with_missing_secrets(home=home.path, config=config)
    is_plain = invocation.is_plain or terminal_style() == "dumb"
    setup = CommandSetup(settings, home, config, invocation.as_json, is_plain)
    level, log_format = setup.settings.log.level, setup.settings.log.format
    secrets = (*setup.settings.secrets(), *environment_secrets())
    zone = ZoneInfo(settings.bot.timezone)
    shown = "warning" if quiet and level == "info" else level
    log.setup(shown, secrets=secrets, form=log_format, zone=zone, sentences=quiet and level != "debug")
    for renamed in setup.settings.renamed_settings:
        logging.getLogger(__name__).warning("setting renamed: %s", renamed, extra={"action": "config.renamed"})
    for section in settings.unowned_sections:
        logging.getLogger(__name__).warning("section left out: %s", section, extra={"action": "config.unowned"})
    return setup


def session_id(text: str) -> str:
    """Return the session id for a name on the command line: `work` is `stdin:work`."""
    chat = decode_text(text, "--session").removeprefix("stdin:").strip()
    if not chat:
        raise UsageError("--session is empty; give the conversation a name, such as work; see `bubbot ask --help`")
    if not chat.isprintable():
        raise UsageError(
            "--session has a character that cannot be shown; use a name such as work; see `bubbot ask --help`"
        )
    # Imported here: commands without a session need no tapes.
    from bubbot.ports.session_names import check_session_length

    check_session_length(chat)
    return f"stdin:{chat}"
