"""The settings: one frozen object out of `config.toml`, the environment, secret files and systemd credentials.

The one file that reads the environment. Later sources win: the file, then credentials, then the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from bubbot.errors import ConfigError
from bubbot.settings_budget import BUDGET_TABLES, BudgetSettings
from bubbot.settings_channels import ChannelSettings, GuildSettings
from bubbot.settings_model import (
    AttachmentSettings,
    HttpSettings,
    LogSettings,
    ScheduleSettings,
    SearchSettings,
    Section,
)
from bubbot.settings_model import ModelSettings as ModelSettings  # noqa: PLC0414 - people take it from here
from bubbot.settings_sources import Keys, Leaf, leaves_of, near, quoted, read_secret, read_text, read_toml, shown
from bubbot.settings_values import (
    DAY,
    Language,
    Level,
    Name,
    Number,
    OptionalPath,
    OptionalWhole,
    Whole,
    Zone,
    wanted,
)

PREFIX = "BUBBOT_"
"""What the name of every environment variable of bubbot begins with."""
PERSONA_LIMIT = 256_000
"""The largest persona file, in bytes."""

_SECRET_KEY = re.compile(r"(^|_)(token|secret|password|key)$")


class BotSettings(Section):
    """`[bot]`: who the bot is."""

    name: Name = Field(default="bubbot", description="What the bot is called.")
    persona: str = Field(default="", description="Who the bot is, in a few sentences; part of the system prompt.")
    persona_file: OptionalPath = Field(
        default=None, description="The persona in a file of its own, instead of `persona`."
    )
    timezone: Zone = Field(
        default="UTC", description="The IANA name of the time zone in which the bot reads and writes times."
    )
    language: Language = Field(default="en", description="The language of the bot's own sentences, where translated.")
    turns_at_once: OptionalWhole = Field(
        default=None, ge=1, le=1000, description="Sessions answered at once; where not set, 64, or 8 for `local`."
    )

    def read_persona(self) -> str:
        """The persona: the text of `persona_file` where that is set, else `persona`.

        Raises `ConfigError` where the file cannot be read, is too large or is not UTF-8, or where both are set.
        """
        if self.persona_file is None:
            return self.persona
        if self.persona:
            raise ConfigError("[bot] persona and [bot] persona_file are both set: keep one of them.")
        return read_text(self.persona_file, PERSONA_LIMIT, "[bot] persona_file").strip()


class ContextSettings(Section):
    """`[context]`: what of the tape the model sees."""

    selector: Name = Field(default="auto", description="The strategy that picks the entries the model sees.")


class MemorySettings(Section):
    """`[memory]`: how long remembered things stay."""

    retention_days: Whole = Field(
        default=30, ge=1, le=36500, description="Days after which the notes of a day are dropped."
    )
    recent_days: Whole = Field(default=7, ge=1, le=36500, description="Days before today whose notes count as recent.")


class ToolSettings(Section):
    """`[tools]`: limits of every tool."""

    timeout: Number = Field(default=60.0, gt=0, le=DAY, description="Seconds one tool may run.")
    result_limit: Whole = Field(
        default=16000,
        ge=100,
        le=10_000_000,
        description="Characters of a result the model is shown; the rest is kept aside.",
    )


class Settings(BaseSettings):
    """Every setting. Made by `load`; made directly it holds the defaults and reads nothing."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,
    )

    bot: BotSettings = BotSettings()
    model: ModelSettings = ModelSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    tools: ToolSettings = ToolSettings()
    attachments: AttachmentSettings = AttachmentSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    search: SearchSettings = SearchSettings()
    budget: BudgetSettings = BudgetSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    # Not parsed here: see `settings_channels`; each adapter knows its own keys. Not in `repr`: it holds tokens.
    channels: dict[str, dict[str, Any]] = Field(default={}, repr=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Nothing but the arguments: `load` reads the sources itself, to name the origin of a wrong value."""
        return (init_settings,)

    @field_validator("channels")
    @classmethod
    def _with_kinds(cls, channels: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {name: {"kind": name, **table} for name, table in channels.items()}

    def secrets(self) -> tuple[str, ...]:
        """Every secret value, for the redaction of logs: keys, tokens and passwords, also those of channels."""
        found = [self.model.api_key.get_secret_value()] if self.model.api_key else []
        if self.model.api_base and (password := urlsplit(self.model.api_base).password):
            found.append(password)
        return (*found, *_secrets_in(self.channels))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as people write it. `type` is a phrase; `default` is None where it is not set."""

    section: str
    key: str
    type: str
    default: str | int | float | bool | list[str] | dict[str, Any] | None
    description: str


def describe() -> Iterator[Setting]:
    """Every setting, in the order of the reference; the free tables of channels appear as `channels.<name>`."""
    below = {"budget": BUDGET_TABLES}
    tables = {name: kind for one in _SECTIONS for name, kind in {one: _SECTIONS[one], **below.get(one, {})}.items()}
    tables |= {"channels.<name>": ChannelSettings, "channels.<name>.guilds.<id>": GuildSettings}
    for section, model in tables.items():
        for key, field in model.model_fields.items():
            default = None if field.is_required() else field.default
            yield Setting(section, key, wanted(field).removeprefix("a "), default, field.description or "")


def default_home() -> Path:
    """The home folder: `$BUBBOT_HOME`, else `$XDG_DATA_HOME/bubbot`, else `~/.local/share/bubbot`; absolute.

    Raises `ConfigError` where the folder of the user cannot be found out.
    """
    try:
        if home := _variables().get("BUBBOT_HOME"):
            return Path(home).expanduser().absolute()
        data = Path(_variables().get("XDG_DATA_HOME", ""))
        # The specification says that a relative path there is to be ignored.
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "bubbot"
    except RuntimeError as error:
        raise ConfigError(
            f"The home folder cannot be found out ({error}): name it with --home or BUBBOT_HOME."
        ) from None


def load(*, home: Path, config: Path | None = None) -> Settings:
    """The settings of the home folder `home`, or of the file `config`, which must then exist.

    Raises `ConfigError` with one sentence for each problem, one a line. Reads files; writes nothing.
    """
    path = config or home / "config.toml"
    problems: list[str] = []
    read = partial(leaves_of, known=_TABLES, problems=problems)
    written = read(read_toml(path, needed=config is not None), lambda _: str(path))
    given = _renamed(read(_environment(problems), _variable), written)
    # The strongest first: a secret file that something stronger overrides is not even opened.
    leaves = _settled(given, Path(), {}, problems)
    leaves = _settled(read(_credentials(problems), _credential), Path(), leaves, problems)
    leaves = _settled(written, path.parent, leaves, problems)
    data: dict[str, Any] = {section: {} for section in _TABLES}
    for parts, leaf in sorted(leaves.items(), key=lambda item: len(item[0])):  # a channel's table before its keys
        node = data
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = leaf.value
    try:
        settings = Settings(**data)
    except ValidationError as error:
        # The cause is not kept: it holds the values, and among them the secrets.
        problems += [_sentence(item, leaves) for item in error.errors(include_url=False)]
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def environment_secrets() -> tuple[str, ...]:
    """The values of all variables that are named like a secret: providers' keys are taken from there by litellm."""
    return tuple(value for name, value in _variables().items() if value and _SECRET_KEY.search(name.lower()))


def logging_environment() -> tuple[str, tuple[str, ...]]:
    """The level of `BUBBOT_LOG__LEVEL` ("info" where it is none) and the secrets among the variables of bubbot.

    For the crash that comes before the settings are loaded; raises nothing.
    """
    ours = {name.upper(): value for name, value in _variables().items() if name.upper().startswith(PREFIX)}
    level = ours.get("BUBBOT_LOG__LEVEL", "").lower()
    secrets = tuple(value for name, value in ours.items() if _SECRET_KEY.search(name.lower()))
    return level if level in get_args(get_args(Level)[0]) else "info", secrets


def terminal_style() -> str:
    """What the terminal wants by its environment: `dumb` (lines only), `plain` (no colours) or `colour`."""
    dumb, plain = _variables().get("TERM", "dumb") == "dumb", _variables().get("NO_COLOR")
    return "dumb" if dumb else "plain" if plain else "colour"


def runtime_folder() -> Path | None:
    """The user's own folder for sockets (`XDG_RUNTIME_DIR`); None where the system has none."""
    named = _variables().get("XDG_RUNTIME_DIR")
    return Path(named) if named else None


_SECTIONS: Mapping[str, type[Section]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
_TABLES = (*_SECTIONS, "channels")
# What people write with one underscore for two: it would be ignored without a word.
_SINGLE = {section: f"{PREFIX}{section}__<KEY>".upper() for section in _TABLES} | {
    f"{section}_{key}": f"{PREFIX}{section}__{key}".upper()
    for section, model in _SECTIONS.items()
    for key in model.model_fields
}


def _variables() -> Mapping[str, str]:
    return os.environ  # noqa: TID251 - this is the file that may


def _variable(path: Keys) -> str:
    return "environment variable " + PREFIX + "__".join(path).upper()


def _credential(path: Keys) -> str:
    return "credential " + ".".join(path)


def _environment(problems: list[str]) -> dict[str, Any]:
    """The values of the variables, nested by `__`; names that look like settings and are none are problems."""
    for name in sorted(_variables()):
        if not name.upper().startswith(PREFIX):
            continue
        section, *keys = name.upper().removeprefix(PREFIX).lower().split("__")
        where = f"environment variable {name}"
        if any("\ud800" <= char <= "\udfff" for char in _variables()[name]):
            problems.append(f"{where} is not UTF-8 text.")
        if keys and section not in _TABLES:
            problems.append(f"{where}: [{section}] is no section{near(section, _TABLES)}.")
        elif (section == "channels" and not all(keys)) or (section in _SECTIONS and len(keys) > 1):
            problems.append(f"{where} names no setting: write {PREFIX}<SECTION>__<KEY>.")
        elif not keys and section in _SINGLE:
            # Other names without `__` may be anything: Kubernetes makes BUBBOT_PORT for a service called bubbot.
            problems.append(f"{where} names no setting: write {_SINGLE[section]}.")
    return {name: table for name, table in EnvSettingsSource(Settings)().items() if isinstance(table, dict)}


def _credentials(problems: list[str]) -> dict[str, Any]:
    """The secrets among systemd's credentials, files called `model.api_key` or `channels.<name>.<key>`."""
    folder = _variables().get("CREDENTIALS_DIRECTORY")
    tables: dict[str, Any] = {}
    try:
        for file in sorted(Path(folder).iterdir()) if folder else ():
            if _is_secret(path := tuple(file.name.split("."))):
                table = tables
                for part in path[:-1]:
                    table = table.setdefault(part, {})
                table[path[-1]] = read_secret(file, _credential(path))
    except OSError as error:
        problems.append(f"CREDENTIALS_DIRECTORY: {folder} cannot be read ({error.strerror}).")
    except ConfigError as error:
        problems.append(str(error))
    return tables


def _renamed(given: dict[Keys, Leaf], written: dict[Keys, Leaf]) -> dict[Keys, Leaf]:
    """Names of channels as the file writes them: a variable has no `-` in its name."""
    names = {path[1].replace("-", "_"): path[1] for path in written if path[0] == "channels"}
    return {
        (path[0], names.get(path[1], path[1]), *path[2:]) if path[0] == "channels" else path: leaf
        for path, leaf in given.items()
    }


def _settled(
    leaves: dict[Keys, Leaf], folder: Path, stronger: dict[Keys, Leaf], problems: list[str]
) -> dict[Keys, Leaf]:
    """What `stronger` leaves open, and `stronger`: paths taken from `folder`, `<secret>_file` read."""
    settled: dict[Keys, Leaf] = {}
    for path, leaf in leaves.items():
        secret = (*path[:-1], path[-1].removesuffix("_file"))
        is_file = secret != path and _is_secret(secret)
        where = f"{leaf.origin}: {shown(path)}"
        if is_file and not isinstance(leaf.value, str):
            problems.append(f"{where} is {quoted(leaf.value)}, but must be a path.")
        elif is_file and leaf.value and secret in leaves:
            problems.append(f"{where} and {secret[-1]} are both set: keep one of them.")
        elif is_file and leaf.value and secret not in stronger:
            settled[secret] = _placed(leaf, folder, where, problems, secret=True)
        elif not is_file and _kind(path) is Path and leaf.value and isinstance(leaf.value, str):
            settled[path] = _placed(leaf, folder, where, problems, secret=False)
        elif not is_file:
            settled[path] = leaf
    return settled | stronger


def _placed(leaf: Leaf, folder: Path, where: str, problems: list[str], *, secret: bool) -> Leaf:
    """The absolute path a leaf names, or the secret in that file."""
    try:
        file = (folder / Path(str(leaf.value)).expanduser()).absolute()
        return Leaf(read_secret(file, where) if secret else str(file), leaf.origin)
    except ConfigError as error:
        problems.append(str(error))
    except (OSError, RuntimeError) as error:  # ~nobody, or the working directory is gone
        problems.append(f"{where} is {quoted(leaf.value)}, which cannot be found ({error}).")
    return Leaf("", leaf.origin)


def _sentence(item: ErrorDetails, leaves: Mapping[Keys, Leaf]) -> str:
    section, key = path = tuple(map(str, item["loc"]))[:2]
    leaf, fields = leaves[path], _SECTIONS[section].model_fields
    where = f"{leaf.origin}: {shown(path)}"
    if item["type"] == "extra_forbidden":  # its value is not shown: it may be a secret under a misspelt key
        return f"{where} is no setting{near(key, fields)}."
    reason = str(item["ctx"]["error"]) if item["type"] == "value_error" else ""
    value = "of the wrong type (the value is not shown)" if _is_secret(path) else quoted(leaf.value)
    return f"{where} is {value}, but must be {reason or wanted(fields[key])}."


def _secrets_in(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, str) and _SECRET_KEY.search(key):
            yield value


def _kind(path: Keys) -> object:
    """The type of a setting, or None where there is no setting of that path."""
    if len(path) != 2 or path[0] not in _SECTIONS or path[1] not in _SECTIONS[path[0]].model_fields:
        return None
    annotation = _SECTIONS[path[0]].model_fields[path[1]].annotation
    return next((kind for kind in get_args(annotation) if isinstance(kind, type)), annotation)


def _is_secret(path: Keys) -> bool:
    if len(path) == 3 and path[0] == "channels":
        return _SECRET_KEY.search(path[2]) is not None
    return _kind(path) is SecretStr
