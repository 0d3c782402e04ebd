"""The settings: loading them, and the readers of the secrets in them."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from bubbot.app.settings import load_with_missing_secrets
from bubbot.app.stores import unused_clock
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.doctor.features import check_features
from bubbot.ops.doctor.finding import sudo_bubbot
from bubbot.ops.onboarding.edit import format_toml
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.ports.settings import Keys
from bubbot.settings.environment import ENVIRONMENT_PREFIX, read_variables
from bubbot.settings.loader import Settings
from bubbot.settings.renamed import RenamedSetting
from bubbot.tape.handle import Clock

_VARIABLE = re.compile(r"environment variable (\w+)")


def read_config(
    home: Home, config: Path | None, credentials: Path | None = None, *, now: Clock = unused_clock
) -> tuple[Settings | None, list[Finding]]:
    """Load the settings and report their faults; return None for settings that do not load.

    A missing secret does not prevent other checks.

    Args:
        config: the configuration, if not the one in the home.
    """
    file = config or home.config
    try:
        settings = load_with_missing_secrets(home=home.path, config=config, credentials=credentials)
    except ConfigError as error:
        return None, [_invalid_setting(line, file) for line in str(error).splitlines()]
    missing = [_invalid_setting(secret.reason, file) for secret in settings.missing_secrets]
    renamed = [_renamed_setting(setting, file) for setting in settings.renamed_settings]
    unowned = [
        Finding("config.unowned", "warning", str(section), _fix_setting(section.origin, file))
        for section in settings.unowned_sections
    ]
    return settings, [*missing, *renamed, *unowned, *_check_loaded(settings, home, config, now)]


def _invalid_setting(sentence: str, file: Path) -> Finding:
    return Finding("config.invalid", "problem", sentence, _fix_setting(sentence, file))


def _fix_setting(origin: str, file: Path) -> str:
    """Return the command that changes the variable with which a text begins, or else the file."""
    variable = _VARIABLE.match(origin)
    return f"unset {variable[1]}" if variable else edit_command(file)


def _renamed_setting(setting: RenamedSetting, file: Path) -> Finding:
    new = setting.new[-1]
    if not _VARIABLE.match(setting.origin):
        line = f"{new} = {format_toml(setting.value)}"
        return Finding("config.renamed", "warning", f"{setting} Write: {line}", edit_command(file))
    variable, is_table = _find_variable(setting.old)
    cause = str(structs.replace(setting, origin=f"environment variable {variable}"))
    if is_table:
        cause += f" Write there: {json.dumps(new)}: {json.dumps(setting.value, ensure_ascii=False)}"
    else:
        cause += f" Call the variable {variable[: -len(setting.old[-1])]}{new.upper()}."
    return Finding("config.renamed", "warning", cause, f"unset {variable}")


def _find_variable(path: Keys) -> tuple[str, bool]:
    """Return the variable that sets a setting, and true if it holds the surrounding tables as JSON."""
    variables = {name.upper(): name for name in read_variables()}
    names = [f"{ENVIRONMENT_PREFIX}{'__'.join(path[:end])}".upper() for end in range(len(path), 0, -1)]
    name = next((name for name in names if name in variables), names[0])
    return variables.get(name, name), name != names[0]


def _root_command(home: Home, config: Path | None) -> str:
    """Return the command that repeats the checks as root."""
    option = "" if config is None else f" --config {shell_quote(config)}"
    return sudo_bubbot(f"doctor --home {shell_quote(home.path)}{option}")


def _check_loaded(settings: Settings, home: Home, config: Path | None, now: Clock) -> Iterator[Finding]:
    file = config or home.config
    try:
        settings.bot.read_persona()
    except ConfigError as error:
        yield Finding("config.persona", "problem", str(error), edit_command(file))
    try:
        settings.check_server()
    except ConfigError as error:
        yield Finding("config.server", "problem", str(error), edit_command(file))
    yield from check_features(home, file, settings, now)
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        if not isinstance(error, PermissionError):
            yield Finding("config.ok", "ok", f"There is no {file}; defaults and environment variables apply.")
            return
        cause = f"Whether there is a {file} cannot be seen ({error.strerror}); what follows goes by the environment."
        yield Finding("config.closed", "warning", cause, _root_command(home, config))
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    if mode & 0o077 and any(secret and secret in text for secret in settings.secrets()):
        cause = f"{file} holds a secret and can be read by other users of this machine (mode {mode:04o})."
        yield Finding("config.open", "warning", cause, f"chmod 600 {shell_quote(file)}")
    else:
        yield Finding("config.ok", "ok", f"{file} is valid.")
