"""The settings: one frozen object from `config.toml`, the environment, secret files and systemd credentials.

Later sources win: the file, then credentials, then the environment.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean
from bubbot.ports.settings import (
    Keys,
    Name,
    OptionalWhole,
    SettingsSection,
    format_errors,
    format_setting,
    nested_sections,
    quote_value,
)
from bubbot.settings.channels import CHANNEL_KINDS, ChannelSettings, GuildSettings
from bubbot.settings.environment import ENVIRONMENT_PREFIX, SECRET_KEY, read_variables
from bubbot.settings.renamed import RenamedSetting, rename_keys
from bubbot.settings.sections import (
    HealthSettings,
    HttpSettings,
    LogSettings,
    ServerSettings,
    SettingDescription,
    StoreSettings,
    TraceSettings,
    describe_table,
)
from bubbot.settings.sections import ModelSettings as ModelSettings  # noqa: PLC0414 - others import it from here
from bubbot.settings.sections import ToolSettings as ToolSettings  # noqa: PLC0414
from bubbot.settings.sources import (
    MissingSecret,
    SourcedValue,
    describe_unknown_section,
    flatten,
    read_secret,
    read_text,
    read_toml,
)
from bubbot.settings.values import Language, OptionalPath, Zone

FEATURE_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""The names of features and of their sections: variables hold them, in capitals, before two underscores."""
LIBRARY_LOGGER = "pydantic_settings"
MIN_TOKEN_CHARS = 16
"""Characters of the owner's token; a shorter one can be guessed."""
S = TypeVar("S", bound=SettingsSection)
MAX_PERSONA_BYTES = 256_000
"""The largest persona file, in bytes."""


class UnownedSection(Struct, frozen=True):
    """A section of a feature that is not installed: it was uninstalled, or is not yet there.

    Attributes:
        name: of the section.
        origin: the file or the variable that has it.
    """

    name: str
    origin: str

    def __str__(self) -> str:
        return f"{self.origin}: [{self.name}] belongs to no installed feature, and is not read."


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
        default="en", description="The language of the bot's own sentences: `de`, `en` or `zh`, English for any other."
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
        defer_build=True,
        validate_default=False,
        case_sensitive=True,
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        # Each type reads its own text, with its own sentence about a wrong one.
        enable_decoding=False,
    )

    bot: BotSettings = BotSettings.model_construct()
    model: ModelSettings = ModelSettings.model_construct()
    store: StoreSettings = StoreSettings.model_construct()
    tools: ToolSettings = ToolSettings.model_construct()
    http: HttpSettings = HttpSettings.model_construct()
    health: HealthSettings = HealthSettings.model_construct()
    server: ServerSettings = ServerSettings.model_construct()
    trace: TraceSettings = TraceSettings.model_construct()
    log: LogSettings = LogSettings.model_construct()
    # Not parsed here: see `settings.channels`; each adapter knows its own keys. Not in `repr`: it holds tokens.
    channels: dict[str, dict[str, Any]] = Field(default={}, repr=False)
    _missing_secrets: tuple[MissingSecret, ...] = PrivateAttr(default=())
    _renamed_settings: tuple[RenamedSetting, ...] = PrivateAttr(default=())
    _unowned_sections: tuple[UnownedSection, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the port fixes the signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of `load`, the strongest first; without it only the arguments."""
        # With PYDANTIC_SETTINGS_DEBUG in the environment the library would log what each source holds, secrets included.
        logging.getLogger(LIBRARY_LOGGER).setLevel(logging.WARNING)
        make_sources = init_settings().get("_make_sources")
        return make_sources(settings_cls) if make_sources else (init_settings,)

    @field_validator("channels")
    @classmethod
    def name_kinds(cls, channels: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Add the kind of each channel that has its kind's name."""
        return {name: {"kind": name, **table} for name, table in channels.items()}

    @property
    def missing_secrets(self) -> tuple[MissingSecret, ...]:
        """The secrets whose file cannot be used; only `load_with_missing_secrets` leaves any."""
        return self._missing_secrets

    @property
    def renamed_settings(self) -> tuple[RenamedSetting, ...]:
        """The settings that are written under an old name."""
        return self._renamed_settings

    @property
    def unowned_sections(self) -> tuple[UnownedSection, ...]:
        """The sections of features that are not installed, which are not read."""
        return self._unowned_sections

    def section(self, kind: type[S]) -> S:
        """Return the section of a feature by its class; its defaults if these settings were loaded without it."""
        sections = (getattr(self, name) for name in type(self).model_fields)
        for section in (inner for outer in sections for inner in (outer, *_inner_sections(outer))):
            if isinstance(section, kind):
                return section
        return kind()

    def missing_secret(self, *setting: str) -> MissingSecret | None:
        """Find a missing secret by its section and key."""
        return next((secret for secret in self._missing_secrets if secret.setting == setting), None)

    def require_secrets(self) -> None:
        """Raise `ConfigError`, with one line for each, if secrets are missing."""
        if self._missing_secrets:
            raise ConfigError("\n".join(secret.reason for secret in self._missing_secrets))

    def check_server(self) -> None:
        """Raise `ConfigError` if `[server]` would answer everybody, or nobody: the bot does not start so."""
        server, token = self.server, self.server.token.get_secret_value() if self.server.token else ""
        if server.openai and server.port is None:
            raise ConfigError("[server] openai is true, but there is no port: set [server] port and token")
        if server.port is not None and not token and self.missing_secret("server", "token") is None:
            raise ConfigError(
                "[server] port is set, but not token: set [server] token_file, so that only you are answered"
            )
        if token and len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(
                f"[server] token has to have at least {MIN_TOKEN_CHARS} characters, since whoever has it is the owner: "
                "`openssl rand -hex 24` makes one"
            )

    def without_secrets(self, missing: Sequence[MissingSecret]) -> Self:
        """Return a copy of these settings that lists the secrets it lacks."""
        settings = self.model_copy()
        settings._missing_secrets = tuple(missing)  # noqa: SLF001 - its own
        return settings

    def secrets(self) -> tuple[str, ...]:
        """Return every secret value, for the redaction of logs: keys, tokens and passwords, also those of channels."""
        secrets = list(_secrets_of(self))
        if self.model.api_base and (password := urlsplit(self.model.api_base).password):
            secrets.append(password)
        return (*secrets, *_secrets_in(self.channels))


def _inner_sections(section: object) -> Iterator[SettingsSection]:
    """Yield the sections within a section."""
    if isinstance(section, SettingsSection):
        yield from (getattr(section, name) for name in nested_sections(type(section)))


class SettingProblem(Struct, frozen=True):
    """A value that a feature cannot use.

    Attributes:
        path: the setting.
        predicate: what is wrong, after the name of the setting.
    """

    path: Keys
    predicate: str


M = TypeVar("M", bound=BaseModel)


def _add_fields(model: type[M], sections: Mapping[str, type[SettingsSection]]) -> type[M]:
    """Return a subclass of a model with sections as further fields."""
    fields: dict[str, Any] = {name: (section, section.model_construct()) for name, section in sections.items()}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields) if fields else model


class SettingsSchema(Struct, frozen=True):
    """The sections of the settings and the types of their keys.

    Attributes:
        model: validates them.
        ignored: sections that are not read.
    """

    model: type[Settings]
    ignored: frozenset[str] = frozenset()

    def extend(self, sections: Mapping[str, type[SettingsSection] | None]) -> Self:
        """Return a schema with further sections, each with defaults for all its keys; None: ignored."""
        known = {name: model for name, model in sections.items() if model is not None}
        outer: dict[str, type[SettingsSection]] = {name: model for name, model in known.items() if "." not in name}
        for path, model in known.items():
            name, _, key = path.partition(".")
            if key:
                outer[name] = _add_fields(outer.get(name) or self.sections[name], {key: model})
        return type(self)(_add_fields(self.model, outer), self.ignored | (sections.keys() - known.keys()))

    @property
    def sections(self) -> Mapping[str, type[SettingsSection]]:
        """The sections with a fixed set of keys; those within a section after it, such as `tools.web`."""
        return {
            name: model
            for section, outer in nested_sections(self.model).items()
            for name, model in {
                section: outer,
                **{f"{section}.{key}": inner for key, inner in nested_sections(outer).items()},
            }.items()
        }

    def has_table(self, path: Keys) -> bool:
        """Return true if a path is that of a section, or of a table that people name directly in one."""
        outer = self.sections.get(".".join(path[:-1]))
        return ".".join(path) in self.sections or (outer is not None and bool(outer.table_field))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all sections."""
        return (*self.sections, "channels")

    @property
    def renamed_keys(self) -> Mapping[str, Mapping[str, str]]:
        """The new key of each old one, by section."""
        return {name: model.renamed_keys for name, model in self.sections.items()}

    def type_of(self, path: Keys) -> object:
        """Return the type of a setting; None if there is no such setting."""
        section = self.sections.get(".".join(path[:-1]))
        if section is None or path[-1] not in section.model_fields:
            return None
        annotation = section.model_fields[path[-1]].annotation
        return next((kind for kind in get_args(annotation) if isinstance(kind, type)), annotation)

    def is_secret(self, path: Keys) -> bool:
        """Return true if a setting is a secret."""
        if len(path) == 3 and path[0] == "channels":
            return SECRET_KEY.search(path[2]) is not None
        return self.type_of(path) is SecretStr

    def suggest_variable(self, name: str) -> str | None:
        """Return the variable for a name with one underscore instead of two, a common mistake; None for other names."""
        if name in self.tables:
            return f"{ENVIRONMENT_PREFIX}{name}__<KEY>".upper()
        for section, model in self.sections.items():
            key = name.removeprefix(f"{section.replace('.', '_')}_")
            if key != name and key in model.model_fields:
                return f"{ENVIRONMENT_PREFIX}{section.replace('.', '__')}__{key}".upper()
        return None


CORE_SCHEMA = SettingsSchema(Settings)
"""The settings of bubbot itself."""


class SettingsExtensions(Struct, frozen=True):
    """What features add to the settings.

    Attributes:
        schema: the sections of bubbot with those of its features.
        find_sections: returns the sections of installed features by name; None for one whose package is broken: what is
            written there is not read. Called only if the settings name a section that bubbot lacks.
        find_problems: returns values that no type shows to be wrong, such as a strategy that nobody installed.
    """

    schema: SettingsSchema = CORE_SCHEMA
    find_sections: Callable[[], Mapping[str, type[SettingsSection] | None]] = dict
    find_problems: Callable[[Settings], Iterable[SettingProblem]] = lambda _: ()


def describe_settings(schema: SettingsSchema) -> Iterator[SettingDescription]:
    """Yield every setting in the order of the reference; the tables of channels appear as `channels.<name>`."""
    tables: dict[str, type[SettingsSection]] = {}
    for section, model in schema.sections.items():
        tables |= {section: model, **{f"{section}.{name}": inner for name, inner in model.named_tables.items()}}
    tables |= {"channels.<name>": ChannelSettings, "channels.<name>.guilds.<id>": GuildSettings}
    for section, model in tables.items():
        yield from describe_table(section, model)


def load(
    *,
    home: Path,
    config: Path | None = None,
    extensions: SettingsExtensions = SettingsExtensions(),
) -> Settings:
    """Load the settings of the home folder `home`, or of the file `config`, which must then exist.

    Raise `ConfigError` with one line for each problem. Read files; write nothing.
    """
    return _load(home, config, None, extensions, needs_secrets=True)


def load_with_missing_secrets(
    *,
    home: Path,
    config: Path | None = None,
    credentials: Path | None = None,
    extensions: SettingsExtensions = SettingsExtensions(),
) -> Settings:
    """Load the same settings without the secrets whose files cannot be used, for work that needs no secret.

    `Settings.missing_secrets` names them. `credentials`: systemd's folder, if the environment names none. Raise
    `ConfigError` for every other problem.
    """
    return _load(home, config, credentials, extensions, needs_secrets=False)


def _load(
    home: Path, config: Path | None, credentials: Path | None, extensions: SettingsExtensions, *, needs_secrets: bool
) -> Settings:
    path = config or home / "config.toml"
    tables = read_toml(path, is_required=config is not None)
    schema = extensions.schema
    if not {*tables, *_variable_sections()} <= {*schema.tables}:
        schema = schema.extend(extensions.find_sections())
    unowned = tuple(_find_unowned(schema, tables, path))
    if unowned:
        schema = schema.extend({section.name: None for section in unowned})
    reading = _SourceReader(schema)
    _check_variables(schema, reading.problems)
    folder = read_variables().get("CREDENTIALS_DIRECTORY") or str(credentials or "")
    secrets = _read_credentials(schema, reading.problems, folder)
    names = [*written] if isinstance(written := tables.get("channels"), Mapping) else []

    def make_sources(model: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
        return (  # the strongest first
            InitSettingsSource(model, reading.take(_Variables(model, names)(), _variable, Path())),
            InitSettingsSource(model, reading.take(secrets, _credential, Path())),
            InitSettingsSource(model, reading.take(tables, lambda _: str(path), path.parent)),
        )

    arguments: dict[str, Any] = {"_make_sources": make_sources}
    settings: Settings | None = None
    try:
        settings = schema.model(**arguments)
    except ValidationError as error:
        # The cause is dropped: it holds the values, and among them the secrets.
        reading.problems += format_errors(error, schema.model, _nest(reading.values), origin=reading.origin)
    except Exception as error:  # noqa: BLE001 - a validator of an installed feature
        told = f"The settings of an installed feature cannot be checked: {type(error).__name__}: {error}."
        reading.problems.append(told)
    else:
        reading.problems += [
            f"{reading.origin(problem.path)}{format_setting(problem.path)} {problem.predicate}."
            for problem in extensions.find_problems(settings)
        ]
    if needs_secrets:
        reading.problems += [secret.reason for secret in reading.missing]
    if settings is None or reading.problems:
        raise ConfigError("\n".join(reading.problems))
    settings._missing_secrets = tuple(reading.missing)  # noqa: SLF001 - its own
    settings._renamed_settings = tuple(reading.renamed)  # noqa: SLF001
    settings._unowned_sections = unowned  # noqa: SLF001
    return settings


def _find_unowned(schema: SettingsSchema, tables: Mapping[str, Any], path: Path) -> Iterator[UnownedSection]:
    """Yield the sections that nobody reads: not those whose names look like mistakes, which are problems."""
    written = {name: str(path) for name, table in tables.items() if isinstance(table, Mapping)}
    named = {name: f"environment variable {variable}" for name, variable in _variable_sections().items()}
    known = {*schema.tables, *schema.ignored}
    for name, origin in {**named, **written}.items():
        if name in known or name in CHANNEL_KINDS or did_you_mean(name, known):
            continue
        if FEATURE_NAME.fullmatch(name):
            yield UnownedSection(name, origin)


def _variable_sections() -> Mapping[str, str]:
    """Return the sections that environment variables name, each with one of its variables."""
    return {
        name.upper().removeprefix(ENVIRONMENT_PREFIX).partition("__")[0].lower(): name
        for name in read_variables()
        if name.upper().startswith(ENVIRONMENT_PREFIX) and "__" in name
    }


def _variable(path: Keys) -> str:
    return "environment variable " + ENVIRONMENT_PREFIX + "__".join(path).upper().replace("-", "_")


def _credential(path: Keys) -> str:
    return "credential " + ".".join(path)


def _check_variables(schema: SettingsSchema, problems: list[str]) -> None:
    """Report the variables that only look like settings."""
    for name in sorted(read_variables()):
        if not name.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        section, *keys = name.upper().removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        variable = f"environment variable {name}"
        if any("\ud800" <= char <= "\udfff" for char in read_variables()[name]):
            problems.append(f"{variable} is not UTF-8 text.")
        if section in schema.ignored:
            continue
        if keys and section not in schema.tables:
            problems.append(f"{variable}: {describe_unknown_section(section, schema.tables)}")
        elif (section == "channels" and not all(keys)) or (
            section in schema.sections and not schema.has_table((section, *keys[:-1]))
        ):
            problems.append(f"{variable} names no setting: write {ENVIRONMENT_PREFIX}<SECTION>__<KEY>.")
        elif not keys and (meant := schema.suggest_variable(section)):
            # Other names without `__` may be anything: Kubernetes sets BUBBOT_PORT for a service called bubbot.
            problems.append(f"{variable} names no setting: write {meant}.")


def _read_credentials(schema: SettingsSchema, problems: list[str], folder: str) -> dict[str, Any]:
    """Read the secrets among systemd's credentials, files called `model.api_key` or `channels.<name>.<key>`."""
    found: dict[Keys, object] = {}
    try:
        for file in sorted(Path(folder).iterdir()) if folder else ():
            if schema.is_secret(path := tuple(file.name.split("."))):
                found[path] = read_secret(file, _credential(path))
    except OSError as error:
        problems.append(f"CREDENTIALS_DIRECTORY: {folder} cannot be read ({error.strerror}).")
    except ConfigError as error:
        problems.append(str(error))
    return _nest(found)


class _SourceReader:
    """One reading of all sources.

    Attributes:
        schema: the types of the settings.
        values: what the sources say, by path.
        problems: a sentence for each.
        missing: the secrets whose file cannot be used.
        renamed: the settings under old names.
    """

    def __init__(self, schema: SettingsSchema) -> None:
        self.schema = schema
        self.values: dict[Keys, object] = {}
        self.problems: list[str] = []
        self.missing: list[MissingSecret] = []
        self.renamed: list[RenamedSetting] = []
        self._origins: dict[Keys, str] = {}

    def origin(self, path: Keys) -> str:
        """Return the beginning of a sentence about a setting, or about the table that holds it; empty if no source has it."""
        parts = (path[:end] for end in range(len(path), 1, -1))
        return next((f"{self._origins[part]}: " for part in parts if part in self._origins), "")

    def take(self, tables: Mapping[str, Any], origin: Callable[[Keys], str], folder: Path) -> dict[str, Any]:
        """Return what the next weaker source adds, under today's names, with absolute paths and the secrets in files.

        A secret file that a stronger source overrides is not opened; one that cannot be used is not replaced by a weaker source.
        Relative paths begin at `folder`.
        """
        known = {name: table for name, table in tables.items() if name not in self.schema.ignored}
        leaves = flatten(known, origin, sections=self.schema.tables, problems=self.problems)
        leaves, renamed = rename_keys(leaves, self.schema.renamed_keys, self.problems)
        self.renamed += renamed
        added: dict[Keys, object] = {}
        for path, leaf in leaves.items():
            secret = (*path[:-1], path[-1].removesuffix("_file"))
            is_file = secret != path and self.schema.is_secret(secret)
            target, setting = secret if is_file else path, f"{leaf.origin}: {format_setting(path)}"
            if is_file and not isinstance(leaf.value, str):
                self.problems.append(f"{setting} is {quote_value(leaf.value)}, but must be a path.")
            elif is_file and leaf.value and secret in leaves:
                self.problems.append(f"{setting} and {secret[-1]} are both set: keep one of them.")
            elif target not in self._origins and (leaf.value or not is_file):
                self._origins[target] = leaf.origin
                try:
                    added[target] = self._complete(path, leaf, folder, setting, is_file=is_file)
                except ConfigError as error:
                    if is_file:
                        self.missing.append(MissingSecret(secret, _display_path(str(leaf.value), folder), str(error)))
                    else:
                        self.problems.append(str(error))
        self.values |= added
        return _nest(added)

    def _complete(self, path: Keys, leaf: SourcedValue, folder: Path, setting: str, *, is_file: bool) -> object:
        """Return the secret in a file, an absolute path, or any other value as it is. Raise `ConfigError`."""
        if is_file:
            return read_secret(_resolve_path(leaf, folder, setting), setting)
        if self.schema.type_of(path) is Path and leaf.value and isinstance(leaf.value, str):
            return str(_resolve_path(leaf, folder, setting))
        return leaf.value


def _nest(values: Mapping[Keys, object]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for path, value in sorted(values.items(), key=lambda item: len(item[0])):  # a channel's table before its keys
        node = tables
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tables


class _Variables(EnvSettingsSource):
    """The variables `BUBBOT_<SECTION>__<KEY>`. A channel, or a value inside of its keys, may be JSON; other values stay text."""

    def __init__(self, settings: type[BaseSettings], channels: Iterable[str]) -> None:
        super().__init__(settings, case_sensitive=False)
        self._channels = {name.replace("-", "_"): name for name in channels}
        nested = (name for name in self.env_vars if name.startswith(ENVIRONMENT_PREFIX.lower()) and "__" in name)
        # The shorter names first, whatever the order of the environment: a key adds to the JSON of its channel.
        self.env_vars = {name: self.env_vars[name] for name in sorted(nested, key=lambda name: name.count("__"))}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Decode JSON; raise `ValueError` also if it is nested too deep."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except RecursionError as error:
            raise ValueError(str(error)) from None

    def __call__(self) -> dict[str, Any]:
        tables = super().__call__()
        # Under the names of the file: the name of a variable cannot contain `-`.
        if channels := tables.get("channels"):
            tables["channels"] = {self._channels.get(name, name): table for name, table in channels.items()}
        return tables


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


def _secrets_of(section: BaseModel) -> Iterator[str]:
    """Yield the secrets of all sections within one."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, SettingsSection):
            yield from _secrets_of(value)
        elif isinstance(value, SecretStr):
            yield value.get_secret_value()
    if isinstance(section, SettingsSection):
        yield from section.derived_secrets()


def _secrets_in(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif isinstance(value, str) and SECRET_KEY.search(key):
            yield value
