"""The settings: one frozen object from `config.toml`, the environment, secret files and systemd credentials.

Later sources win: the file, then credentials, then the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from bubbot.errors import ConfigError
from bubbot.ports.settings import Keys, SettingsSection, format_errors, format_setting, quote_value
from bubbot.ports.text import did_you_mean
from bubbot.settings.budget import BUDGET_TABLES, BudgetSettings
from bubbot.settings.channels import ChannelSettings, GuildSettings
from bubbot.settings.environment import ENVIRONMENT_PREFIX, SECRET_KEY, read_variables
from bubbot.settings.renamed import RenamedSetting, rename_keys
from bubbot.settings.sections import (
    AttachmentSettings,
    ContextSettings,
    HealthSettings,
    HttpSettings,
    LogSettings,
    MemorySettings,
    ScheduleSettings,
    SearchSettings,
    ServerSettings,
    SettingDescription,
    StoreSettings,
    describe_table,
)
from bubbot.settings.sections import ModelSettings as ModelSettings  # noqa: PLC0414 - others import it from here
from bubbot.settings.sections import ToolSettings as ToolSettings  # noqa: PLC0414
from bubbot.settings.sources import (
    MissingSecret,
    SourcedValue,
    flatten,
    read_secret,
    read_text,
    read_toml,
)
from bubbot.settings.values import Language, Name, OptionalPath, OptionalWhole, Zone

MAX_PERSONA_BYTES = 256_000
"""The largest persona file, in bytes."""


class BotSettings(SettingsSection):
    """`[bot]`: the identity of the bot."""

    name: Name = Field(default="bubbot", description="The name of the bot.")
    persona: str = Field(default="", description="Who the bot is, in a few sentences; part of the system prompt.")
    persona_file: OptionalPath = Field(
        default=None, description="A file with the persona, instead of `persona`.", examples=["persona.md"]
    )
    timezone: Zone = Field(
        default="UTC", description="The IANA name of the time zone in which the bot reads and writes times."
    )
    language: Language = Field(
        default="en", description="The language of the bot's own sentences: `en` or `zh`, English for any other."
    )
    turns_at_once: OptionalWhole = Field(
        default=None,
        ge=1,
        le=1000,
        description="Sessions answered at once; default: 64, or 8 for `local`, which answers one after another. A turn "
        "mostly waits for its provider; the others wait on disk until there is room.",
        examples=[64],
    )

    def read_persona(self) -> str:
        """Return the persona: the text of `persona_file` if that is set, else `persona`.

        Raise `ConfigError` if the file cannot be read, is too large or is not UTF-8, or if both are set.
        """
        if self.persona_file is None:
            return self.persona
        if self.persona:
            raise ConfigError("[bot] persona and [bot] persona_file are both set: keep one of them.")
        return read_text(self.persona_file, MAX_PERSONA_BYTES, "[bot] persona_file").strip()


class Settings(BaseSettings):
    """All settings. `load` builds them from their sources; the constructor reads nothing and uses the defaults."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,
    )

    bot: BotSettings = BotSettings()
    model: ModelSettings = ModelSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    store: StoreSettings = StoreSettings()
    tools: ToolSettings = ToolSettings()
    attachments: AttachmentSettings = AttachmentSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    budget: BudgetSettings = BudgetSettings()
    search: SearchSettings = SearchSettings()
    http: HttpSettings = HttpSettings()
    health: HealthSettings = HealthSettings()
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    # Not parsed here: see `settings.channels`; each adapter knows its own keys. Not in `repr`: it holds tokens.
    channels: dict[str, dict[str, Any]] = Field(default={}, repr=False)
    _missing_secrets: tuple[MissingSecret, ...] = PrivateAttr(default=())
    _renamed_settings: tuple[RenamedSetting, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the arguments: `load` reads the sources itself, to name the origin of a wrong value."""
        # pydantic-settings merges the values of its sources and keeps no origin, so `load` merges them. Variables are read
        # by its `EnvSettingsSource`. `TomlConfigSettingsSource` has no way in but its private `_read_file`, and reads a
        # file of any size or kind, without the line and the fix of an error; `NestedSecretsSettingsSource` reads every
        # credential of the service, also those of others, and fails for one that is not text.
        return (init_settings,)

    @field_validator("channels")
    @classmethod
    def _with_kinds(cls, channels: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {name: {"kind": name, **table} for name, table in channels.items()}

    @property
    def missing_secrets(self) -> tuple[MissingSecret, ...]:
        """The secrets whose file cannot be used; only `load_with_missing_secrets` leaves any."""
        return self._missing_secrets

    @property
    def renamed_settings(self) -> tuple[RenamedSetting, ...]:
        """The settings that are written under an old name."""
        return self._renamed_settings

    def missing_secret(self, *setting: str) -> MissingSecret | None:
        """Find a missing secret by its section and key."""
        return next((secret for secret in self._missing_secrets if secret.setting == setting), None)

    def require_secrets(self) -> None:
        """Raise `ConfigError`, with one line for each, if secrets are missing."""
        if self._missing_secrets:
            raise ConfigError("\n".join(secret.reason for secret in self._missing_secrets))

    def without_secrets(self, missing: Sequence[MissingSecret]) -> Settings:
        """Return a copy of these settings that lists the secrets it lacks."""
        settings = self.model_copy()
        settings._missing_secrets = tuple(missing)  # noqa: SLF001 - its own
        return settings

    def secrets(self) -> tuple[str, ...]:
        """Return every secret value, for the redaction of logs: keys, tokens and passwords, also those of channels."""
        secrets = [secret.get_secret_value() for secret in (self.model.api_key, self.server.token) if secret]
        if self.model.api_base and (password := urlsplit(self.model.api_base).password):
            secrets.append(password)
        return (*secrets, *_secrets_in(self.channels))


def describe_settings() -> Iterator[SettingDescription]:
    """Yield every setting in the order of the reference; the tables of channels appear as `channels.<name>`."""
    nested = {"budget": BUDGET_TABLES}
    tables = {
        name: kind
        for section in _SECTIONS
        for name, kind in {section: _SECTIONS[section], **nested.get(section, {})}.items()
    }
    tables |= {"channels.<name>": ChannelSettings, "channels.<name>.guilds.<id>": GuildSettings}
    for section, model in tables.items():
        yield from describe_table(section, model)


def load(*, home: Path, config: Path | None = None) -> Settings:
    """Load the settings of the home folder `home`, or of the file `config`, which must then exist.

    Raise `ConfigError` with one line for each problem. Read files; write nothing.
    """
    settings, problems, missing = _load(home, config, None)
    return _require_valid(settings, [*problems, *(secret.reason for secret in missing)])


def load_with_missing_secrets(*, home: Path, config: Path | None = None, credentials: Path | None = None) -> Settings:
    """Load the same settings without the secrets whose files cannot be used, for work that needs no secret.

    `Settings.missing_secrets` names them. `credentials`: systemd's folder, if the environment names none. Raise
    `ConfigError` for every other problem.
    """
    settings, problems, missing = _load(home, config, credentials)
    return _require_valid(settings, problems).without_secrets(missing)


def _require_valid(settings: Settings | None, problems: Sequence[str]) -> Settings:
    if settings is None or problems:
        raise ConfigError("\n".join(problems))
    return settings


def _load(
    home: Path, config: Path | None, credentials: Path | None
) -> tuple[Settings | None, list[str], list[MissingSecret]]:
    """Read every source. The settings are None if a value is invalid, which is then one of the problems."""
    path = config or home / "config.toml"
    problems: list[str] = []
    missing: list[MissingSecret] = []
    renamed: list[RenamedSetting] = []

    def read(tables: Mapping[str, Any], origin: Callable[[Keys], str]) -> dict[Keys, SourcedValue]:
        leaves, found = rename_keys(flatten(tables, origin, sections=_TABLES, problems=problems), problems)
        renamed.extend(found)
        return leaves

    written = read(read_toml(path, is_required=config is not None), lambda _: str(path))
    environment = _restore_channel_names(read(_read_environment(problems), _variable), written)
    # The strongest first: a secret file that a stronger source overrides is not even opened.
    leaves = _merge(environment, Path(), {}, problems, missing)
    secrets = _read_credentials(problems, read_variables().get("CREDENTIALS_DIRECTORY") or str(credentials or ""))
    leaves = _merge(read(secrets, _credential), Path(), leaves, problems, missing)
    leaves = _merge(written, path.parent, leaves, problems, missing)
    for secret in missing:  # a weaker source does not replace a file that is named and cannot be used
        leaves.pop(secret.setting, None)
    data: dict[str, Any] = {section: {} for section in _TABLES}
    for parts, leaf in sorted(leaves.items(), key=lambda item: len(item[0])):  # a channel's table before its keys
        node = data
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        node[parts[-1]] = leaf.value
    try:
        settings = Settings(**data)
    except ValidationError as error:
        # The cause is dropped: it holds the values, and among them the secrets.
        problems += format_errors(error, Settings, data, origin=lambda path: f"{leaves[path].origin}: ")
        return None, problems, missing
    settings._renamed_settings = tuple(renamed)  # noqa: SLF001 - its own
    return settings, problems, missing


_SECTIONS: Mapping[str, type[SettingsSection]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsSection)
}
_TABLES = (*_SECTIONS, "channels")
# Names with one underscore instead of two, a common mistake: they would be ignored silently.
_SINGLE_UNDERSCORE = {section: f"{ENVIRONMENT_PREFIX}{section}__<KEY>".upper() for section in _TABLES} | {
    f"{section}_{key}": f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
    for section, model in _SECTIONS.items()
    for key in model.model_fields
}


def _variable(path: Keys) -> str:
    return "environment variable " + ENVIRONMENT_PREFIX + "__".join(path).upper()


def _credential(path: Keys) -> str:
    return "credential " + ".".join(path)


def _read_environment(problems: list[str]) -> dict[str, Any]:
    """Read the variables, nested by `__`; report names that only look like settings as problems."""
    for name in sorted(read_variables()):
        if not name.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        section, *keys = name.upper().removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        variable = f"environment variable {name}"
        if any("\ud800" <= char <= "\udfff" for char in read_variables()[name]):
            problems.append(f"{variable} is not UTF-8 text.")
        if keys and section not in _TABLES:
            problems.append(
                f"{variable}: [{section}] is not a section{did_you_mean(section, _TABLES, before='; ', after='')}."
            )
        elif (section == "channels" and not all(keys)) or (section in _SECTIONS and len(keys) > 1):
            problems.append(f"{variable} names no setting: write {ENVIRONMENT_PREFIX}<SECTION>__<KEY>.")
        elif not keys and section in _SINGLE_UNDERSCORE:
            # Other names without `__` may be anything: Kubernetes sets BUBBOT_PORT for a service called bubbot.
            problems.append(f"{variable} names no setting: write {_SINGLE_UNDERSCORE[section]}.")
    return {name: table for name, table in EnvSettingsSource(Settings)().items() if isinstance(table, dict)}


def _read_credentials(problems: list[str], folder: str) -> dict[str, Any]:
    """Read the secrets among systemd's credentials, files called `model.api_key` or `channels.<name>.<key>`."""
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


def _restore_channel_names(
    leaves: dict[Keys, SourcedValue], written: dict[Keys, SourcedValue]
) -> dict[Keys, SourcedValue]:
    """Restore the names of channels as the file writes them: the name of a variable cannot contain `-`."""
    names = {path[1].replace("-", "_"): path[1] for path in written if path[0] == "channels"}
    return {
        (path[0], names.get(path[1], path[1]), *path[2:]) if path[0] == "channels" else path: leaf
        for path, leaf in leaves.items()
    }


def _merge(
    leaves: dict[Keys, SourcedValue],
    folder: Path,
    stronger: dict[Keys, SourcedValue],
    problems: list[str],
    missing: list[MissingSecret],
) -> dict[Keys, SourcedValue]:
    """Add the leaves that `stronger` does not set to `stronger`.

    Args:
        leaves: the values of this source.
        folder: the folder to which its relative paths refer.
        stronger: the merged values of all stronger sources.
        problems: receives a sentence for each problem.
        missing: receives each secret whose `<secret>_file` cannot be read.
    """
    merged: dict[Keys, SourcedValue] = {}
    for path, leaf in leaves.items():
        secret = (*path[:-1], path[-1].removesuffix("_file"))
        is_file = secret != path and _is_secret(secret)
        setting = f"{leaf.origin}: {format_setting(path)}"
        if is_file and not isinstance(leaf.value, str):
            problems.append(f"{setting} is {quote_value(leaf.value)}, but must be a path.")
        elif is_file and leaf.value and secret in leaves:
            problems.append(f"{setting} and {secret[-1]} are both set: keep one of them.")
        elif is_file and isinstance(leaf.value, str) and leaf.value and _is_unset(secret, stronger, missing):
            try:
                file = _resolve_path(leaf, folder, setting)
                merged[secret] = SourcedValue(read_secret(file, setting), leaf.origin)
            except ConfigError as error:
                missing.append(MissingSecret(secret, _display_path(leaf.value, folder), str(error)))
        elif not is_file and _type_of(path) is Path and leaf.value and isinstance(leaf.value, str):
            try:
                merged[path] = SourcedValue(str(_resolve_path(leaf, folder, setting)), leaf.origin)
            except ConfigError as error:
                problems.append(str(error))
                merged[path] = SourcedValue("", leaf.origin)
        elif not is_file:
            merged[path] = leaf
    return merged | stronger


def _is_unset(secret: Keys, stronger: Mapping[Keys, SourcedValue], missing: Sequence[MissingSecret]) -> bool:
    """Return true if no stronger source sets this secret, not even to a file that cannot be used."""
    return secret not in stronger and all(entry.setting != secret for entry in missing)


def _resolve_path(leaf: SourcedValue, folder: Path, setting: str) -> Path:
    """Return the absolute path that a leaf names. Raise `ConfigError`, in a sentence that begins with `setting`."""
    try:
        return (folder / Path(str(leaf.value)).expanduser()).absolute()
    except (OSError, RuntimeError) as error:  # ~nobody, or the working directory is gone
        raise ConfigError(f"{setting} is {quote_value(leaf.value)}, which cannot be found ({error}).") from None


def _display_path(value: str, folder: Path) -> str:
    """Return the path of a file for people: absolute if that can be determined."""
    try:
        return str((folder / Path(value).expanduser()).absolute())
    except (OSError, RuntimeError):
        return value


def _secrets_in(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, str) and SECRET_KEY.search(key):
            yield value


def _type_of(path: Keys) -> object:
    """Return the type of a setting; None if there is no such setting."""
    if len(path) != 2 or path[0] not in _SECTIONS or path[1] not in _SECTIONS[path[0]].model_fields:
        return None
    annotation = _SECTIONS[path[0]].model_fields[path[1]].annotation
    return next((kind for kind in get_args(annotation) if isinstance(kind, type)), annotation)


def _is_secret(path: Keys) -> bool:
    if len(path) == 3 and path[0] == "channels":
        return SECRET_KEY.search(path[2]) is not None
    return _type_of(path) is SecretStr
