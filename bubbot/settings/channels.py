"""Settings common to all channels: the keys of `[channels.<name>]` that are not its adapter's own."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from bubbot.errors import ConfigError
from bubbot.identity import numeric_id
from bubbot.ports.settings import Id, Name, Number, SettingsSection, Whole, format_errors, split_items
from bubbot.settings.values import DAY_SECONDS

KINDS_REQUIRING_TOKEN = frozenset({"telegram", "discord"})
"""Kinds of channel that cannot start without a token."""
LINE_BUFFERED_KINDS = frozenset({"stdin", "terminal"})
"""Kinds of channel on which each line is a complete message: no debounce by default."""

CHANNEL_KINDS = KINDS_REQUIRING_TOKEN | LINE_BUFFERED_KINDS
"""Kinds of channel that are part of bubbot."""


def _parse_ids(value: object) -> object:
    items = [value] if isinstance(value, int) and not isinstance(value, bool) else split_items(value)
    if not isinstance(items, list):
        return items
    try:
        return list(dict.fromkeys(numeric_id(item) for item in items))
    except ConfigError as error:
        raise ValueError(f"numeric ids: {error}") from None


def _check_names(names: list[str]) -> list[str]:
    stripped = [name.strip() for name in names]
    if any(not name or len(name) > 64 or not name.isprintable() for name in stripped):
        raise ValueError("names of one line, 1 to 64 characters each")
    return stripped


def _to_lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


IdList = Annotated[list[Id], BeforeValidator(_parse_ids)]
NameList = Annotated[list[str], AfterValidator(_check_names), BeforeValidator(split_items)]
Busy = Annotated[Literal["queue", "steer", "drop"], BeforeValidator(_to_lower)]


class GuildSettings(SettingsSection):
    """The keys of `[channels.<name>.guilds.<id>]`: the rules of one Discord server."""

    open: bool = Field(default=False, description="Let everybody on this server talk to the bot there, as a member.")
    admins: IdList = Field(default=[], description="People who are admins there, by numeric id.")
    members: IdList = Field(default=[], description="People who may speak there, by numeric id.")
    roles: IdList = Field(default=[], description="Roles of the server whose people may speak there, by numeric id.")
    admin_roles: IdList = Field(default=[], description="Roles of the server whose people are admins there.")
    respond_to_all: IdList = Field(default=[], description="Its chats in which every message is for the bot.")
    record_only: IdList = Field(
        default=[], description="Its chats of which other messages are recorded, without a turn."
    )
    ignored: IdList = Field(default=[], description="Its chats in which the bot hears nothing.")
    trigger_names: NameList = Field(
        default=[], description="Names by which the bot is addressed there, in place of others."
    )


def _parse_guilds(value: object) -> object:
    """Return tables by the id of a server; a list of ids names servers that are open."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("ids with tables, or a list of ids") from None
    tables = value if isinstance(value, Mapping) else {guild: {"open": True} for guild in _parse_guild_list(value)}
    if not all(isinstance(table, Mapping | GuildSettings) for table in tables.values()):
        raise ValueError("a table for each id, such as [channels.discord.guilds.42]")
    try:
        return {numeric_id(guild): dict(table) for guild, table in tables.items()}
    except ConfigError as error:
        raise ValueError(f"numeric ids of servers: {error}") from None


def _parse_guild_list(value: object) -> list[Any]:
    items = _parse_ids(value)
    if not isinstance(items, list):
        raise ValueError("a list of ids, or tables such as [channels.discord.guilds.42]")  # noqa: TRY004 - pydantic's
    return items


Guilds = Annotated[dict[str, GuildSettings], BeforeValidator(_parse_guilds)]


class ChannelSettings(SettingsSection):
    """The keys common to all channels. Lists of ids hold text, each id once."""

    kind: Name = Field(description="The adapter; default: the name of the section.", examples=["telegram"])
    owners: IdList = Field(
        default=[],
        description="People who may do everything, by numeric id; `bubbot access approve` lets people in without these lists.",
    )
    admins: IdList = Field(default=[], description="People who may also let others in, by numeric id.")
    members: IdList = Field(default=[], description="People who may speak with the bot, by numeric id.")
    groups: IdList = Field(default=[], description="Chats whose people may all speak, as members, by numeric id.")
    respond_to_all: IdList = Field(default=[], description="Chats in which every message is for the bot.")
    record_only: IdList = Field(
        default=[], description="Chats of which messages that are not for the bot are recorded, without a turn."
    )
    trigger_names: NameList = Field(default=[], description="Names by which the bot is addressed in a group.")
    pairing: bool = Field(
        default=True,
        description="Give strangers in a direct chat a pairing code for the owner; otherwise ignore them.",
    )
    bots: IdList = Field(default=[], description="Other bots that may speak, by numeric id.")
    debounce: Number = Field(
        default=1.0,
        ge=0,
        le=60,
        description="Seconds to wait for further messages before answering; default for `stdin`: 0.",
    )
    busy: Busy = Field(
        default="queue", description="Treatment of a message during a turn: it waits, joins the turn, or is dropped."
    )
    stale_after: Number = Field(
        default=DAY_SECONDS,
        ge=0,
        le=366 * DAY_SECONDS,
        description="Seconds after which a missed message gets one notice, and no turn.",
    )
    per_chat: Whole = Field(default=2, ge=1, le=100, description="Turns of one chat at once, over its threads.")
    messages_per_minute: Whole = Field(
        default=60, ge=0, le=100_000, description="Messages that one person may send in a minute; 0: as many as come."
    )
    messages_per_hour: Whole = Field(
        default=600, ge=0, le=1_000_000, description="Messages that one person may send in an hour; 0: as many as come."
    )
    bytes_per_day: Whole = Field(
        default=50_000_000,
        ge=0,
        le=10**11,
        description="Bytes of texts and files that one person may send in 24 hours; 0: as many as come.",
    )
    live: bool = Field(default=True, description="Show answers while they are written.")
    guilds: Guilds = Field(
        default={}, description="Discord servers with keys of their own; as a list of ids, servers that are open."
    )

    @property
    def overhears(self) -> bool:
        """True if messages that are not for the bot matter in some chat."""
        return bool(self.respond_to_all or self.record_only) or any(
            guild.respond_to_all or guild.record_only for guild in self.guilds.values()
        )


def split_channel_settings(name: str, table: Mapping[str, Any]) -> tuple[ChannelSettings, dict[str, Any]]:
    """Split `[channels.NAME]` into the common settings and its other keys, unchanged, for the adapter.

    Raise `ConfigError` with one line for each problem.
    """
    common = {key: value for key, value in table.items() if key in ChannelSettings.model_fields}
    common = {"kind": name, **common}
    if common["kind"] in LINE_BUFFERED_KINDS:
        common = {"debounce": 0.0, **common}
    try:
        settings = ChannelSettings(**common)
    except ValidationError as error:
        raise ConfigError("\n".join(format_errors(error, ChannelSettings, common, ("channels", name)))) from None
    return settings, {key: value for key, value in table.items() if key not in common}
