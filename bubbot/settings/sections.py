"""Most sections of the settings, and their base class."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BeforeValidator, Field, model_validator

from bubbot.ports.settings import (
    AdapterSettings,
    Name,
    Names,
    Number,
    OptionalWhole,
    SettingsSection,
    Whole,
    blank_to_none,
    describe_type,
    nested_sections,
    web_address,
)
from bubbot.settings.values import DAY_SECONDS, Address, Level, LogForm, ModelPath, OptionalPath, Secret


class SettingDescription(Struct, frozen=True):
    """One setting as people write it.

    Attributes:
        section: its table, such as `channels.<name>`.
        key: its name in the table.
        type: a phrase.
        default: its value if not set; None if it has none.
        description: a sentence or two.
        example: a value, for the example configuration.
    """

    section: str
    key: str
    type: str
    default: str | int | float | bool | list[str] | dict[str, Any] | None
    description: str
    example: Any


def describe_table(section: str, model: type[SettingsSection]) -> Iterator[SettingDescription]:
    """Yield every setting of a table."""
    nested = nested_sections(model)
    for key, field in model.model_fields.items():
        if key in nested or key == model.table_field:
            continue
        default = None if field.is_required() else field.default
        if default == "" and issubclass(model, AdapterSettings):  # there an empty value means that it is not set
            default = None
        example = field.examples[0] if field.examples else "" if default is None else default
        kind = describe_type(field).removeprefix("a ")
        yield SettingDescription(section, key, kind, default, field.description or "", example)


SQLITE_STORE = "sqlite"
"""The store of bubbot itself."""
POSTGRES_STORE = "postgres"
"""The store on a server."""


class StoreSettings(SettingsSection):
    """`[store]`: where the tapes are, and limits for `bubbot tape gc`."""

    url: Secret = Field(
        default=None,
        description="A database on a PostgreSQL server; unset: SQLite, in the home. It needs the extra `postgres`.",
        examples=["postgresql://bubbot@localhost/bubbot"],
    )
    audit_url: Secret = Field(
        default=None,
        description="The address, on the same server, with which the trace page reads for auditors: `bubbot store add-auditor` "
        "makes it. Unset: with the bot's own rights.",
        examples=["postgresql://bubbot_audit@localhost/bubbot"],
    )
    kind: Name = Field(
        default=SQLITE_STORE, description="`sqlite`, or the name of a store that an installed package offers."
    )
    address: Secret = Field(default=None, description="Where the store of a package is; `sqlite` is in the home.")
    lease: Number = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Seconds of silence after which other processes of a PostgreSQL store take over what one was doing.",
    )
    archive_days: Whole = Field(
        default=365,
        ge=0,
        le=36500,
        description="Days after which `bubbot tape gc` erases a tape that was put aside; 0: never.",
    )

    @model_validator(mode="before")
    @classmethod
    def _take_url(cls, values: Any) -> Any:
        """Let an address say which store it is."""
        if not isinstance(values, Mapping) or not values.get("url"):
            if isinstance(values, Mapping) and values.get("audit_url"):
                raise ValueError(
                    "audit_url is for a PostgreSQL server, and url names none: set url, or leave audit_url out"
                )
            return values
        if values.get("kind", SQLITE_STORE) not in (SQLITE_STORE, POSTGRES_STORE):
            raise ValueError(
                "url is the address of a PostgreSQL server, and kind names another store: leave one of them out"
            )
        return {**values, "kind": POSTGRES_STORE}


DEFAULT_STORE = StoreSettings.model_construct()
"""The store if nothing is set."""


class ModelSettings(SettingsSection):
    """`[model]`: the model that answers, and its limits. `threads` is for the model `local` alone."""

    name: str = Field(
        default="", description="The model, `provider/model`; empty for the demonstration model, if it is installed."
    )
    fallback: Names = Field(
        default=[], description="Models to use, in this order, if the first is unavailable or limits its requests."
    )
    via: ModelPath = Field(
        default="auto",
        description="`auto`: providers that speak the OpenAI chat protocol are called directly, the others through "
        "litellm; `litellm`: all of them through litellm.",
    )
    script: OptionalPath = Field(
        default=None, description="The replies of the model `scripted`.", examples=["script.json"]
    )
    api_base: Address = Field(
        default=None,
        description="The web address of the provider of `name`, if it is not the usual one.",
        examples=["http://localhost:8000/v1"],
    )
    api_key: Secret = Field(
        default=None, description="The key of the provider of `name`; models of other providers are never sent it."
    )
    timeout: Number = Field(
        default=600.0, gt=0, le=DAY_SECONDS, description="Seconds one whole model call may take, with all its retries."
    )
    connect_timeout: Number = Field(
        default=10.0, ge=0.1, le=DAY_SECONDS, description="Seconds a connection to a provider may take."
    )
    first_token_timeout: Number = Field(
        default=300.0,
        ge=0.1,
        le=DAY_SECONDS,
        description="Seconds until a provider sends the first piece of an answer.",
    )
    idle_timeout: Number = Field(
        default=60.0,
        ge=0.1,
        le=DAY_SECONDS,
        description="Seconds of silence within an answer after which it is given up; for `local` also before it.",
    )
    retries: Whole = Field(default=3, ge=0, le=20, description="Retries of a call to a provider if retrying can help.")
    retry_wait: Number = Field(
        default=1.0,
        gt=0,
        le=60,
        description="Seconds before the first repetition, doubled each time; a provider that says how long is obeyed.",
    )
    max_steps: Whole = Field(default=20, ge=1, le=1000, description="Model calls one turn may take.")
    context_tokens: OptionalWhole = Field(
        default=None,
        ge=256,
        le=100_000_000,
        description="Context size of the model in tokens; default: 2048 for `local`, otherwise the known size, or 32768.",
        examples=[2048],
    )
    max_tokens: OptionalWhole = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Tokens of one answer at most; default: 256 for `local`, otherwise the provider's limit.",
        examples=[256],
    )
    threads: Whole = Field(default=1, ge=1, le=512, description="Processor threads of the model `local`.")

    @property
    def provider(self) -> str:
        """The provider of `name`: the only one that `api_key` and `api_base` are for."""
        return self.name.partition("/")[0]

    def has_own_address(self, model: str) -> bool:
        """Return true if calls of this model go to `api_base`, which is for the models of the one provider alone."""
        return bool(self.api_base) and model.partition("/")[0] == self.provider


class ToolSettings(SettingsSection):
    """`[tools]`: limits of every tool."""

    timeout: Number = Field(default=60.0, gt=0, le=DAY_SECONDS, description="Seconds one tool may run.")
    result_limit: Whole = Field(
        default=16000,
        ge=100,
        le=10_000_000,
        description="Characters of a result the model is shown; the rest is kept aside.",
    )
    schema_tokens: Whole = Field(
        default=4000,
        ge=500,
        le=1_000_000,
        description="Estimated tokens of tool schemas in a request at most; the model finds the other tools by words.",
    )


class HttpSettings(SettingsSection):
    """`[http]`: the address at which platforms call channels; without a webhook channel nothing listens."""

    host: Name = Field(default="127.0.0.1", description="The address to listen on.")
    port: Whole = Field(default=8080, ge=0, le=65535, description="The port to listen on; 0 for any that is free.")


class HealthSettings(SettingsSection):
    """`[health]`: the address of the health endpoints; without `port` nothing listens."""

    host: Name = Field(default="127.0.0.1", description="The address to listen on.")
    port: OptionalWhole = Field(
        default=None,
        ge=0,
        le=65535,
        description="The port of `/live`, `/ready` and `/metrics`; 0 for any that is free.",
        examples=[9464],
    )
    hosts: Names = Field(
        default=[], description="Names by which programs reach it, besides `host`, localhost and IP addresses."
    )


class ServerSettings(SettingsSection):
    """`[server]`: the address of the API for other programs of the owner; without `port` nothing listens."""

    host: Name = Field(default="127.0.0.1", description="The address to listen on.")
    port: OptionalWhole = Field(
        default=None, ge=0, le=65535, description="The port to listen on; 0 for any that is free.", examples=[8765]
    )
    token: Secret = Field(
        default=None, description="The token that every request has to carry: whoever has it is the owner."
    )
    hosts: Names = Field(
        default=[], description="Names by which requests reach the bot, besides `host`, localhost and IP addresses."
    )
    openai: bool = Field(
        default=False, description="Answer chat completions of OpenAI's protocol, at `/v1/chat/completions`."
    )
    commands: bool = Field(
        default=False,
        description="A chat completion that begins with a comma is a command with the owner's rights. Leave it off for programs "
        "that pass on texts of other people: it is text for the model then.",
    )


EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - named, not listened on
"""Hosts to listen on that are no address to go to."""


class TraceSettings(SettingsSection):
    """`[trace]`: the page that shows what happened; without `port` the daemon serves none."""

    host: Name = Field(default="127.0.0.1", description="The address to listen on.")
    port: OptionalWhole = Field(
        default=None, ge=0, le=65535, description="The port to listen on; 0 for any that is free.", examples=[8766]
    )
    sandbox: Literal["auto", "bwrap", "landlock", "none"] = Field(
        default="auto",
        description="What the pages of auditors run in, with a database of the granted tapes: `auto` (bubblewrap if it works, "
        "else Landlock, else they are refused), `bwrap`, `landlock`, or `none` for the process of the bot. Not with `audit_url`.",
    )
    hosts: Names = Field(
        default=[], description="Names by which browsers reach the page, besides `host`, localhost and IP addresses."
    )
    url: Annotated[str | None, web_address("http", "https"), BeforeValidator(blank_to_none)] = Field(
        default=None,
        description="The address of the page as people reach it, for links in `,why`; default: `host` and `port`. With "
        "`https` the browser sends its cookie over nothing else.",
        examples=["https://bot.example.org"],
    )

    @property
    def address(self) -> str:
        """The address of the page as people reach it; empty if nobody serves it, or if nobody knows it."""
        if self.port is None:
            return ""
        if self.url:
            return self.url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}" if self.port and self.host not in EVERYWHERE else ""


class LogSettings(SettingsSection):
    """`[log]`: the log on stderr."""

    level: Level = Field(default="info", description="The least level that is logged.")
    format: LogForm = Field(
        default="auto", description="The form of a line; `auto`: `text` on a terminal, else `keyvalue`."
    )
