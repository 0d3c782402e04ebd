"""Secrets: unreadable files, missing and misshapen ones. No finding shows a value."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.app.models import keyless_models
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.models.unconfigured import missing_key_sentence
from bubbot.ops.doctor.credentials import ServiceCredentials
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.ports.settings import Keys
from bubbot.settings.environment import ENVIRONMENT_PREFIX, read_variables
from bubbot.settings.loader import Settings
from bubbot.settings.sources import MAX_SECRET_BYTES, find_written_secrets, iter_texts, read_text, read_toml

MOUNTED_SECRETS_PATH = Path("/run/secrets")
"""The folder for secrets in containers: readable for all, as there are no other users."""
_SECRET = re.compile(r"(^|_)(token|secret|password|key)$")
_TELEGRAM = re.compile(r"[0-9]{3,17}:[A-Za-z0-9_-]{35}")


def read_secret_files(home: Home, config: Path | None) -> tuple[list[Finding], list[str]]:
    """Check the files of `*_file` keys and the folder of credentials: readable, and by the bot alone.

    Return the findings, and the names of the unusable ones.
    """
    files = list(dict.fromkeys(_secret_files(config or home.config)))
    named_findings = [(str(file), finding) for file in files for finding in _check_file(file)]
    folder = read_variables().get("CREDENTIALS_DIRECTORY")
    if folder and not os.access(folder, os.R_OK | os.X_OK):
        cause = f"CREDENTIALS_DIRECTORY is {folder}, which uid {os.geteuid()} cannot read."
        problem = Finding("secret.credentials", "problem", cause, "unset CREDENTIALS_DIRECTORY")
        named_findings.append(("CREDENTIALS_DIRECTORY", problem))
    findings = [finding for _, finding in named_findings]
    if files and not findings:
        cause = f"{len(files)} secret files, each with something in it, for its owner alone."
        findings = [Finding("secret.ok", "ok", cause)]
    return findings, [name for name, finding in named_findings if finding.level == "problem"]


def command_to_set(setting: Keys, config: Path) -> str:
    """Return the command that replaces this secret in its strongest source that has one."""
    variable = f"{ENVIRONMENT_PREFIX}{'__'.join(setting)}".upper().replace("-", "_")
    names = {name.upper(): name for name, value in read_variables().items() if value}
    if variable in names:
        return f"read -r {names[variable]} && export {names[variable]}"
    if f"{variable}_FILE" in names:
        return _fill_command(_resolve(Path(), read_variables()[names[f"{variable}_FILE"]]))
    name = ".".join(setting)
    if (folder := read_variables().get("CREDENTIALS_DIRECTORY")) and os.access(Path(folder, name), os.F_OK):
        return f"sudo install -m 600 /dev/stdin /etc/credstore/bubbot.{name} && sudo systemctl restart bubbot"
    with suppress(ConfigError):
        for path, value in iter_texts(read_toml(config, is_required=False)):
            if path == (*setting[:-1], f"{setting[-1]}_file") and value:
                return _fill_command(_resolve(config.parent, value))
    return edit_command(config)


def _fill_command(file: Path) -> str:
    """Return the command that copies a secret from the terminal into a file."""
    return f"install -m 600 /dev/stdin {shell_quote(file)}"


def _check_file(file: Path) -> Iterator[Finding]:
    fill = _fill_command(file)
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        cause = f"There is no {file}, which the settings name for a secret; the command takes it from the terminal."
        yield Finding("secret.file_missing", "problem", cause, fill)
        return
    except OSError:
        status = None
    if status is None or not os.access(file, os.R_OK):
        cause = f"{file} holds a secret, and uid {os.geteuid()} cannot read it."
        yield Finding("secret.file_unreadable", "problem", cause, f'sudo chown "$(id -un)" {shell_quote(file)}')
    elif not stat.S_ISREG(status.st_mode):
        cause = f"{file} should be a file with a secret, and is a folder or a device; the command takes the secret from the terminal."
        yield Finding(
            "secret.file_odd", "problem", cause, f"mv {shell_quote(file)} {shell_quote(f'{file}.old')} && {fill}"
        )
    elif reason := _find_fault(file):
        yield Finding("secret.file_odd", "problem", f"{reason} The command takes the secret from the terminal.", fill)
    elif not _read(file).strip():
        cause = f"{file} is empty and should hold a secret; the command takes it from the terminal."
        yield Finding("secret.file_empty", "problem", cause, fill)
    elif status.st_mode & 0o077 and not file.is_relative_to(MOUNTED_SECRETS_PATH):
        cause = f"{file} holds a secret and can be read by other users of this machine (mode {status.st_mode & 0o7777:04o})."
        yield Finding("secret.file_open", "warning", cause, f"chmod 600 {shell_quote(file)}")


def _find_fault(file: Path) -> str:
    """Return why the content of a file cannot be a secret; empty if it can, or if there is none."""
    try:
        read_text(file, MAX_SECRET_BYTES, "A secret")
    except ConfigError as error:
        return str(error)
    return ""


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(64_001).decode("utf-8-sig", errors="replace")


def _secret_files(config: Path) -> Iterator[Path]:
    """Yield the files that hold secrets by the settings; an unreadable configuration names none."""
    with suppress(ConfigError):
        for path, value in iter_texts(read_toml(config, is_required=False)):
            if path[-1].endswith("_file") and _SECRET.search(path[-1].removesuffix("_file")) and value:
                yield _resolve(config.parent, value)
    for name, value in read_variables().items():
        key = name.lower()
        if name.upper().startswith(ENVIRONMENT_PREFIX) and key.endswith("_file") and _SECRET.search(key.removesuffix("_file")) and value:  # fmt: skip
            yield _resolve(Path(), value)


def _resolve(folder: Path, value: str) -> Path:
    with suppress(RuntimeError):  # unknown user
        return (folder / Path(value).expanduser()).absolute()
    return (folder / value).absolute()


def check_secrets(
    settings: Settings, home: Home, config: Path | None, credentials: ServiceCredentials | None = None
) -> Iterator[Finding]:
    """Report missing secrets, secrets in the configuration itself, and a misshapen token."""
    file = config or home.config
    with suppress(ConfigError):
        if names := find_written_secrets(file):
            yield Finding(
                "secret.in_config", "ok",
                f"{file} has secrets in it ({', '.join(names)}) and must not be shared; a key that ends in "
                "_file keeps each secret in its own file.",
            )  # fmt: skip
    if credentials is None or not credentials.is_there("model.api_key"):
        yield from _check_keys(settings, file)
    for name, table in settings.channels.items():
        token = table.get("token")
        # The check of the channels reports tokens that the adapter itself refuses.
        if table.get("kind", name) == "telegram" and isinstance(token, str) and re.fullmatch(r"\d+:[\w-]+", token) and not _TELEGRAM.fullmatch(token):  # fmt: skip
            cause = (
                f"[channels.{name}] token does not have the form of Telegram's (a number, a colon, 35 letters): it "
                f"seems to be cut or mistyped. Copy it whole from @BotFather."
            )
            yield Finding("secret.odd_token", "warning", cause, command_to_set(("channels", name, "token"), file))


def _check_keys(settings: Settings, file: Path) -> Iterator[Finding]:
    """Find the configured models without a key."""
    if settings.missing_secret("model", "api_key"):
        return
    for name, key_variables in keyless_models(settings, read_variables()).items():
        is_configured = name.partition("/")[0] == settings.model.provider
        yield Finding(
            "secret.no_key",
            "problem",
            missing_key_sentence(name, key_variables, is_configured=is_configured),
            edit_command(file),
        )
