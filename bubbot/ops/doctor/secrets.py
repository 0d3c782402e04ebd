"""Secrets: the files they are in, those that are missing, and one that cannot be right. No value is shown."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.models.unconfigured import key_missing
from bubbot.ops.doctor.credentials import ServiceCredentials
from bubbot.ops.doctor.finding import Finding, edit, quoted
from bubbot.settings.environment import ENVIRONMENT_PREFIX, variables
from bubbot.settings.loader import Settings
from bubbot.settings.sources import SECRET_LIMIT, Keys, read_text, read_toml, text_values, written_secrets
from bubbot.wiring.models import keyless_models

MOUNTED = Path("/run/secrets")
"""Where containers are given secrets: readable for all, and nobody else is inside."""
_SECRET = re.compile(r"(^|_)(token|secret|password|key)$")
_TELEGRAM = re.compile(r"[0-9]{3,17}:[A-Za-z0-9_-]{35}")


def read_secret_files(home: Home, config: Path | None) -> tuple[list[Finding], list[str]]:
    """Whether the files that `*_file` keys name, and the folder of credentials, can be read, and by the bot alone; and
    the names of those that cannot be used."""
    files = list(dict.fromkeys(_files(config or home.config)))
    found = [(str(file), finding) for file in files for finding in _of_file(file)]
    folder = variables().get("CREDENTIALS_DIRECTORY")
    if folder and not os.access(folder, os.R_OK | os.X_OK):
        cause = f"CREDENTIALS_DIRECTORY is {folder}, which uid {os.geteuid()} cannot read."
        wrong = Finding("secret.credentials", "problem", cause, "unset CREDENTIALS_DIRECTORY")
        found.append(("CREDENTIALS_DIRECTORY", wrong))
    findings = [finding for _, finding in found]
    if files and not findings:
        cause = f"{len(files)} secret files, each with something in it, for its owner alone."
        findings = [Finding("secret.ok", "ok", cause)]
    return findings, [name for name, finding in found if finding.level == "problem"]


def command_to_set(setting: Keys, config: Path) -> str:
    """Return the command that puts another secret where this one is taken from: the strongest source that has one."""
    variable = f"{ENVIRONMENT_PREFIX}{'__'.join(setting)}".upper().replace("-", "_")
    given = {name.upper(): name for name, value in variables().items() if value}
    if variable in given:
        return f"read -r {given[variable]} && export {given[variable]}"
    if f"{variable}_FILE" in given:
        return _fill(_placed(Path(), variables()[given[f"{variable}_FILE"]]))
    name = ".".join(setting)
    if (folder := variables().get("CREDENTIALS_DIRECTORY")) and os.access(Path(folder, name), os.F_OK):
        return f"sudo install -m 600 /dev/stdin /etc/credstore/bubbot.{name} && sudo systemctl restart bubbot"
    with suppress(ConfigError):
        for path, value in text_values(read_toml(config, needed=False)):
            if path == (*setting[:-1], f"{setting[-1]}_file") and value:
                return _fill(_placed(config.parent, value))
    return edit(config)


def _fill(file: Path) -> str:
    """The command that takes a secret from the terminal into a file."""
    return f"install -m 600 /dev/stdin {quoted(file)}"


def _of_file(file: Path) -> Iterator[Finding]:
    fill = _fill(file)
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        cause = f"There is no {file}, which the settings name for a secret; the command takes it from the terminal."
        yield Finding("secret.file_missing", "problem", cause, fill)
        return
    except OSError:
        found = None
    if found is None or not os.access(file, os.R_OK):
        cause = f"{file} holds a secret, and uid {os.geteuid()} cannot read it."
        yield Finding("secret.file_unreadable", "problem", cause, f'sudo chown "$(id -un)" {quoted(file)}')
    elif not stat.S_ISREG(found.st_mode):
        cause = f"{file} should be a file with a secret, and is a folder or a device; the command takes the secret from the terminal."
        yield Finding("secret.file_odd", "problem", cause, f"mv {quoted(file)} {quoted(f'{file}.old')} && {fill}")
    elif reason := _unusable(file):
        yield Finding("secret.file_odd", "problem", f"{reason} The command takes the secret from the terminal.", fill)
    elif not _text(file).strip():
        cause = f"{file} is empty and should hold a secret; the command takes it from the terminal."
        yield Finding("secret.file_empty", "problem", cause, fill)
    elif found.st_mode & 0o077 and not file.is_relative_to(MOUNTED):
        cause = f"{file} holds a secret and is open to other users of this machine (mode {found.st_mode & 0o7777:04o})."
        yield Finding("secret.file_open", "warning", cause, f"chmod 600 {quoted(file)}")


def _unusable(file: Path) -> str:
    """Why what is in a file cannot be a secret, if there is anything in it; empty if it can."""
    try:
        read_text(file, SECRET_LIMIT, "A secret")
    except ConfigError as error:
        return str(error)
    return ""


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(64_001).decode("utf-8-sig", errors="replace")


def _files(config: Path) -> Iterator[Path]:
    """The files that hold secrets, by the settings; a file of settings that cannot be read names none."""
    with suppress(ConfigError):
        for path, value in text_values(read_toml(config, needed=False)):
            if path[-1].endswith("_file") and _SECRET.search(path[-1].removesuffix("_file")) and value:
                yield _placed(config.parent, value)
    for name, value in variables().items():
        key = name.lower()
        if name.upper().startswith(ENVIRONMENT_PREFIX) and key.endswith("_file") and _SECRET.search(key.removesuffix("_file")) and value:  # fmt: skip
            yield _placed(Path(), value)


def _placed(folder: Path, value: str) -> Path:
    with suppress(RuntimeError):  # there is no such user
        return (folder / Path(value).expanduser()).absolute()
    return (folder / value).absolute()


def check_secrets(
    settings: Settings, home: Home, config: Path | None, handed_over: ServiceCredentials | None = None
) -> Iterator[Finding]:
    """Whether the secrets that are needed are there, where they are written, and whether one is misshapen."""
    file = config or home.config
    with suppress(ConfigError):
        if clear := written_secrets(file):
            yield Finding(
                "secret.in_config", "ok",
                f"{file} has secrets in it ({', '.join(clear)}) and must not be shown around; with a key that ends in "
                f"_file they are in files of their own.",
            )  # fmt: skip
    if handed_over is None or not handed_over.is_there("model.api_key"):
        yield from _keys(settings, file)
    for name, table in settings.channels.items():
        token = table.get("token")
        # What the adapter itself refuses is told as a fault of the channel.
        if table.get("kind", name) == "telegram" and isinstance(token, str) and re.fullmatch(r"\d+:[\w-]+", token) and not _TELEGRAM.fullmatch(token):  # fmt: skip
            cause = (
                f"[channels.{name}] token does not have the form of Telegram's (a number, a colon, 35 letters): it "
                f"seems to be cut or mistyped. Copy it whole from @BotFather."
            )
            yield Finding("secret.odd_token", "warning", cause, command_to_set(("channels", name, "token"), file))


def _keys(settings: Settings, file: Path) -> Iterator[Finding]:
    """Find the models that are asked and have no key."""
    if settings.missing_secret("model", "api_key"):
        return
    for name, wanted in keyless_models(settings, variables()).items():
        is_configured = name.partition("/")[0] == settings.model.provider
        yield Finding("secret.no_key", "problem", key_missing(name, wanted, is_configured=is_configured), edit(file))
