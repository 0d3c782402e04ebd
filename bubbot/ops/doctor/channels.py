"""The channels: their settings, and the answers of their platforms to a request for the bot's identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from bubbot import plugins
from bubbot.app.offline import has_grant
from bubbot.errors import ChannelError, ChannelRefused, ConfigError
from bubbot.home import Home
from bubbot.ops.doctor.credentials import ServiceCredentials
from bubbot.ops.doctor.finding import failure_finding, sudo_bubbot
from bubbot.ops.doctor.secrets import command_to_set
from bubbot.ports.channel import Channel, ChannelAdapter, ChannelOptions, SupportsClose, VerifiesCredentials
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.settings.channels import KINDS_REQUIRING_TOKEN, LINE_BUFFERED_KINDS, ChannelSettings, split_channel_settings
from bubbot.settings.loader import Settings
from bubbot.settings.sections import StoreSettings

PROBE_TIMEOUT_SECONDS = 5.0
"""The time for the answers of all platforms, which are asked concurrently."""
PROBE_CLOSE_SECONDS = 1.0
MAX_CLOCK_DRIFT_SECONDS = 60.0
"""The tolerated difference of clocks; an answer is some seconds old, and HTTP dates have whole seconds."""
ADDRESS_KEYS = ("base_url", "rest_url")
"""Keys of adapters that hold the address of the platform."""


class ChannelProbe(Struct, frozen=True):
    """The inputs of the check.

    Attributes:
        online: send requests to platforms.
        credentials: credentials that systemd passes to the service.
    """

    home: Home
    file: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    online: bool = True
    credentials: ServiceCredentials = field(default_factory=ServiceCredentials)


def check_channels(settings: Settings, probe: ChannelProbe) -> list[Finding]:
    """Return one or more findings for each channel; unless `probe.online`, send no request."""
    return asyncio.run(probe_channels(settings, probe))


async def probe_channels(settings: Settings, probe: ChannelProbe) -> list[Finding]:
    """Check the channels inside an event loop."""
    tokens: dict[tuple[str, str], str] = {}
    findings: list[Finding] = []
    ready: list[tuple[str, ChannelSettings, Mapping[str, Any]]] = []
    for name, table in settings.channels.items():
        try:
            common, options = split_channel_settings(name, table)
        except ConfigError as error:
            findings += [_invalid_setting(name, line, probe) for line in str(error).splitlines()]
            continue
        if common.kind in LINE_BUFFERED_KINDS or name in LINE_BUFFERED_KINDS:
            continue
        findings += [*await _check_audience(name, common, settings.store, probe), *_report_groups(name, common, probe)]
        token = options.get("token")
        if not token and common.kind in KINDS_REQUIRING_TOKEN:
            # A missing secret has a finding about its file already.
            if settings.missing_secret("channels", name, "token") is None:
                findings += _report_missing_token(name, common.kind, probe)
        elif token and (first := tokens.setdefault((common.kind, str(token)), name)) != name:  # of any type as yet
            cause = f"[channels.{name}] token is that of [channels.{first}]: a bot can be on one channel only."
            fix = command_to_set(("channels", name, "token"), probe.file)
            findings.append(Finding("channel.same_token", "problem", cause, fix))
        else:
            ready.append((name, common, options))
    drift: dict[str, float] = {}
    answers = await asyncio.gather(
        *(_check_platform(name, common, options, probe, drift) for name, common, options in ready)
    )
    return [*findings, *(finding for answer in answers for finding in answer), *_check_clock(drift)]


def _check_clock(drift: Mapping[str, float]) -> Iterator[Finding]:
    """Compare the clock with those of platforms; `drift`: seconds by which it is ahead of each."""
    off = {kind: seconds for kind, seconds in drift.items() if abs(seconds) > MAX_CLOCK_DRIFT_SECONDS}
    if off:
        kind, seconds = max(off.items(), key=lambda item: abs(item[1]))
        how = "ahead of" if seconds > 0 else "behind"
        cause = f"The clock of this machine is {abs(seconds):.0f} s {how} that of {kind}; schedules follow it."
        yield Finding("clock.off", "warning", cause, "sudo timedatectl set-ntp true")


def _invalid_setting(name: str, sentence: str, probe: ChannelProbe) -> Finding:
    about_token = sentence.startswith(f"[channels.{name}] token ")
    fix = command_to_set(("channels", name, "token"), probe.file) if about_token else edit_command(probe.file)
    return Finding("channel.invalid", "problem", sentence, fix)


async def _check_audience(
    name: str, common: ChannelSettings, store: StoreSettings, probe: ChannelProbe
) -> Iterator[Finding]:
    """Check that the settings, a code or a grant let somebody use the channel."""
    allowed = common.pairing or common.owners or common.admins or common.members or common.groups or common.bots
    servers = any(
        guild.open or guild.admins or guild.members or guild.roles or guild.admin_roles
        for guild in common.guilds.values()
    )
    if allowed or servers or await has_grant(name, probe.home, store):
        return iter(())
    cause = (
        f"[channels.{name}] lets nobody talk to the bot, and pairing = false gives strangers no code: name the owners by "
        "numeric id, or set pairing = true."
    )
    return iter((Finding("channel.nobody", "warning", cause, edit_command(probe.file)),))


def _report_groups(name: str, common: ChannelSettings, probe: ChannelProbe) -> Iterator[Finding]:
    """Report group ids in lists of people, where they have no effect: ids of people are never negative."""
    for key in ("owners", "admins", "members"):
        for number in (number for number in getattr(common, key) if number.startswith("-")):
            cause = f"[channels.{name}] {key} has {number}, which is a group and no person, and lets nobody in: put it into groups."
            yield Finding("channel.group_as_person", "warning", cause, edit_command(probe.file))


def _report_missing_token(name: str, kind: str, probe: ChannelProbe) -> Iterator[Finding]:
    credential = f"channels.{name}.token"
    if probe.credentials.is_there(credential):
        cause = f"[channels.{name}] gets its token from systemd, which this command may not read; {kind} was not asked."
        yield Finding("channel.credential", "ok", cause)
    elif probe.credentials.is_hidden(credential):
        cause = f"[channels.{name}] has no token here; whether systemd hands one to the service only root can see."
        fix = sudo_bubbot(f"doctor --home {shell_quote(probe.home.path)}")
        yield Finding("channel.hidden_token", "warning", cause, fix)
    else:
        cause = f"[channels.{name}] has no token and is not started."
        is_elsewhere = probe.file.parent != probe.home.path
        option = f" --config {shell_quote(probe.file)}" if is_elsewhere else ""
        yield Finding(
            "channel.no_token", "warning", cause, f"bubbot init --home {shell_quote(probe.home.path)}{option}"
        )


async def _check_platform(
    name: str, common: ChannelSettings, options: Mapping[str, Any], probe: ChannelProbe, drift: dict[str, float]
) -> list[Finding]:
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS), _open_channel(name, common, options, probe) as channel:
            if not probe.online or not isinstance(channel, VerifiesCredentials):
                return [Finding("channel.ok", "ok", f"[channels.{name}] is set up; {common.kind} was not asked.")]
            identity = await channel.verify_token()
    except ConfigError as error:
        return [_invalid_setting(name, line, probe) for line in str(error).splitlines()]
    except ChannelRefused as error:
        fix = command_to_set(("channels", name, "token"), probe.file)
        return [Finding("platform.refused", "problem", str(error), fix)]
    except ChannelError as error:
        cause = f"{error} A running bot tries again by itself."
        return [Finding("platform.unreachable", "warning", cause, _connection_command(common.kind, options))]
    except TimeoutError:
        cause = f"[channels.{name}] {common.kind} did not answer within {PROBE_TIMEOUT_SECONDS:g} s; a running bot tries again."
        return [Finding("platform.silent", "warning", cause, _connection_command(common.kind, options))]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party adapter; check the other channels anyway
        return [failure_finding(f"[channels.{name}]", error)]
    with suppress(TypeError, ValueError):  # the platform sent no date
        here, there = datetime.fromisoformat(probe.now()), datetime.fromisoformat(identity.server_date)
        drift[common.kind] = (here - there).total_seconds()
    introduction = f"[channels.{name}] is {identity.name} ({identity.id}) on {common.kind}"
    if identity.warnings:
        return [
            Finding("platform.remark", "warning", f"{introduction}. {remark}", edit_command(probe.file))
            for remark in identity.warnings
        ]
    return [Finding("platform.ok", "ok", f"{introduction}, which accepted the token.")]


@asynccontextmanager
async def _open_channel(
    name: str, common: ChannelSettings, channel_options: Mapping[str, Any], probe: ChannelProbe
) -> AsyncIterator[Channel]:
    """Open the channel without running it, and close it at the end. Raises `ConfigError`."""
    options = ChannelOptions(
        name, probe.home.path, probe.now, probe.new_id, channel_options, overhears=common.overhears
    )
    try:
        make = plugins.load("bubbot.channels", common.kind)
    except ConfigError as error:
        raise ConfigError(f"[channels.{name}] kind: {error}") from error
    channel: Channel = make(options)
    try:
        yield channel
    finally:
        if isinstance(channel, SupportsClose):
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_CLOSE_SECONDS):
                    await channel.aclose()


def _connection_command(kind: str, options: Mapping[str, Any]) -> str:
    """Return the command that tests the connection to the platform, without secrets in its address."""
    adapter = plugins.load("bubbot.channels", kind)
    fields = adapter.settings.model_fields if isinstance(adapter, ChannelAdapter) else {}
    defaults = {key: fields[key].default if key in fields else "" for key in ADDRESS_KEYS}
    address = next((value for key, default in defaults.items() if (value := options.get(key) or default)), "")
    with suppress(ValueError):
        parts = urlsplit(str(address))
        if parts.hostname:
            port = f":{parts.port}" if parts.port else ""
            return f"curl -sSI {shell_quote(f'{parts.scheme}://{parts.hostname}{port}/')}"
    return "bubbot doctor"
