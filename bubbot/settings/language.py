"""The language of the command line, before the settings are loaded, or if they cannot be."""

from __future__ import annotations

from pathlib import Path

from bubbot.settings.environment import read_shell_language, read_variables

LANGUAGE_VARIABLE = "BUBBOT_BOT__LANGUAGE"


def read_language(home: Path, config: Path | None) -> str:
    """Return `[bot] language` of a home: English if its file leaves that out, that of the shell if there is no file.

    Args:
        home: the home folder.
        config: the configuration, if not the one in the home.
    """
    if variable := read_variables().get(LANGUAGE_VARIABLE):
        return variable
    try:
        text = (config or home / "config.toml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return read_shell_language()
    if "language" not in text:  # most files, and the parser takes longer than the rest of `--help`
        return "en"
    # Imported here: see above.
    import tomllib

    try:
        section = tomllib.loads(text).get("bot")
    except ValueError:
        return read_shell_language()
    language = section.get("language") if isinstance(section, dict) else None
    return language if isinstance(language, str) else "en"
