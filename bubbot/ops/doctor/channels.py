"""The channels: whether their settings hold, and what their platforms say when they are asked who the bot is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bubbot import plugins
from bubbot.access import ACCESS_TAPE
from bubbot.errors import ChannelError, ChannelRefused, ConfigError, StoreError
from bubbot.home import Home
from bubbot.ops.doctor.credentials import ServiceCredentials
from bubbot.ops.doctor.finding import Finding, edit, quoted
from bubbot.ops.doctor.guard import failed
from bubbot.ops.doctor.secrets import command_to_set
from bubbot.ops.doctor.stuck import never
from bubbot.ports.channel import Channel, ChannelOptions, SupportsClose, VerifiesCredentials
from bubbot.settings.channels import TOKENED, UNHURRIED, ChannelSettings, channel_settings
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.service import TapeService
from bubbot.views.access import AccessView

TOGETHER = 5.0
"""Seconds all platforms have to answer; they are asked at once."""
PROBE_CLOSE_SECONDS = 1.0
APART = 60.0
"""Seconds by which clocks may differ; an answer is some seconds old, and dates of HTTP are whole seconds."""
SERVERS = {"telegram": ("base_url", "https://api.telegram.org"), "discord": ("rest_url", "https://discord.com/api/v10")}
"""The key with the address of a platform, and its usual value."""


@dataclass(frozen=True, slots=True)
class ChannelProbe:
    """What is needed to ask: the home, the file that is to be edited, and what adapters are given."""

    home: Home
    file: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    online: bool = True
    seconds: float = TOGETHER
    handed_over: ServiceCredentials = field(default_factory=ServiceCredentials)


def check_channels(settings: Settings, asking: ChannelProbe) -> list[Finding]:
    """A finding or more for each channel; without `online` nobody is asked over a network."""
    return asyncio.run(ask(settings, asking))


async def ask(settings: Settings, asking: ChannelProbe) -> list[Finding]:
    """The same inside a loop."""
    tokens: dict[object, str] = {}
    found: list[Finding] = []
    ready: list[tuple[str, ChannelSettings, Mapping[str, Any]]] = []
    for name, table in settings.channels.items():
        try:
            common, own = channel_settings(name, table)
        except ConfigError as error:
            found += [_invalid(name, line, asking) for line in str(error).splitlines()]
            continue
        if common.kind in UNHURRIED or name in UNHURRIED:
            continue
        found += await _listeners(name, common, asking)
        token = own.get("token")
        if not token:
            if settings.missing_secret("channels", name, "token") is None:  # which is a finding about its file
                found += _without(name, common.kind, asking)
        elif (first := tokens.setdefault((common.kind, token), name)) != name:
            cause = f"[channels.{name}] token is that of [channels.{first}]: a bot can be on one channel only."
            fix = command_to_set(("channels", name, "token"), asking.file)
            found.append(Finding("channel.same_token", "problem", cause, fix))
        else:
            ready.append((name, common, own))
    drift: dict[str, float] = {}
    answers = await asyncio.gather(*(_one(name, common, own, asking, drift) for name, common, own in ready))
    return [*found, *(one for answer in answers for one in answer), *_clock(drift)]


def _clock(drift: Mapping[str, float]) -> Iterator[Finding]:
    """Whether this machine and the platforms agree on the time; `drift`: how far it is ahead of each, in seconds."""
    off = {kind: seconds for kind, seconds in drift.items() if abs(seconds) > APART}
    if off:
        kind, seconds = max(off.items(), key=lambda item: abs(item[1]))
        how = "ahead of" if seconds > 0 else "behind"
        cause = f"The clock of this machine is {abs(seconds):.0f} s {how} that of {kind}; schedules follow it."
        yield Finding("clock.off", "warning", cause, "sudo timedatectl set-ntp true")


def _invalid(name: str, sentence: str, asking: ChannelProbe) -> Finding:
    about_token = sentence.startswith(f"[channels.{name}] token ")
    fix = command_to_set(("channels", name, "token"), asking.file) if about_token else edit(asking.file)
    return Finding("channel.invalid", "problem", sentence, fix)


async def _listeners(name: str, common: ChannelSettings, asking: ChannelProbe) -> Iterator[Finding]:
    """Whether anybody can ever speak there: by the settings, by a code, or by a grant."""
    some = common.pairing or common.owners or common.admins or common.members or common.groups or common.bots
    servers = any(
        one.open or one.admins or one.members or one.roles or one.admin_roles for one in common.guilds.values()
    )
    if some or servers or await _has_grant(name, asking.home):
        return iter(())
    cause = (
        f"[channels.{name}] lets nobody speak, and pairing = false keeps strangers from getting a code: name the owners by "
        "numeric id, or set pairing = true."
    )
    return iter((Finding("channel.nobody", "warning", cause, edit(asking.file)),))


async def _has_grant(name: str, home: Home) -> bool:
    """Return true if somebody was given a role on this channel; also if that cannot be read, which is told elsewhere."""
    if not home.database.exists():
        return False
    try:
        store = await open_readonly(home.database)
    except StoreError:
        return True
    try:
        tape = TapeService(store, ACCESS_TAPE, now=never, new_id=str, session="")
        state = await tape.read(AccessView(since=datetime.max.replace(tzinfo=UTC)))
        return any(channel == name for channel, _ in state.grants)
    except StoreError:
        return True
    finally:
        await store.aclose()


def _without(name: str, kind: str, asking: ChannelProbe) -> Iterator[Finding]:
    credential = f"channels.{name}.token"
    if kind in TOKENED and asking.handed_over.is_there(credential):
        cause = f"[channels.{name}] gets its token from systemd, which this command may not read; {kind} was not asked."
        yield Finding("channel.credential", "ok", cause)
    elif kind in TOKENED and asking.handed_over.is_hidden(credential):
        cause = f"[channels.{name}] has no token here; whether systemd hands one to the service only root can see."
        yield Finding("channel.hidden_token", "warning", cause, f"sudo bubbot doctor --home {quoted(asking.home.path)}")
    elif kind in TOKENED:
        cause = f"[channels.{name}] has no token and is not started."
        own = asking.file.parent != asking.home.path
        where = f" --config {quoted(asking.file)}" if own else ""
        yield Finding("channel.no_token", "warning", cause, f"bubbot init --home {quoted(asking.home.path)}{where}")


async def _one(
    name: str, common: ChannelSettings, own: Mapping[str, Any], asking: ChannelProbe, drift: dict[str, float]
) -> list[Finding]:
    try:
        async with asyncio.timeout(asking.seconds), _made(name, common, own, asking) as channel:
            if not asking.online or not isinstance(channel, VerifiesCredentials):
                return [Finding("channel.ok", "ok", f"[channels.{name}] is set up; {common.kind} was not asked.")]
            me = await channel.introduce()
    except ConfigError as error:
        return [_invalid(name, str(error), asking)]
    except ChannelRefused as error:
        fix = command_to_set(("channels", name, "token"), asking.file)
        return [Finding("platform.refused", "problem", str(error), fix)]
    except ChannelError as error:
        cause = f"{error} A running bot tries again by itself."
        return [Finding("platform.unreachable", "warning", cause, _reach(common.kind, own))]
    except TimeoutError:
        cause = (
            f"[channels.{name}] {common.kind} did not answer within {asking.seconds:g} s; a running bot tries again."
        )
        return [Finding("platform.silent", "warning", cause, _reach(common.kind, own))]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an adapter of others; the other channels are asked all the same
        return [failed(f"[channels.{name}]", error)]
    with suppress(TypeError, ValueError):  # it does not tell
        here, there = datetime.fromisoformat(asking.now()), datetime.fromisoformat(me.date)
        drift[common.kind] = (here - there).total_seconds()
    who = f"[channels.{name}] is {me.name} ({me.id}) on {common.kind}"
    if me.remarks:
        return [Finding("platform.remark", "warning", f"{who}. {one}", edit(asking.file)) for one in me.remarks]
    return [Finding("platform.ok", "ok", f"{who}, which took the token.")]


@asynccontextmanager
async def _made(
    name: str, common: ChannelSettings, own: Mapping[str, Any], asking: ChannelProbe
) -> AsyncIterator[Channel]:
    """The channel, never run, and closed at the end. Raises `ConfigError`."""
    options = ChannelOptions(name, asking.home.path, asking.now, asking.new_id, own, overhears=common.overhears)
    channel: Channel = plugins.load("bubbot.channels", common.kind)(options)
    try:
        yield channel
    finally:
        if isinstance(channel, SupportsClose):
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_CLOSE_SECONDS):
                    await channel.aclose()


def _reach(kind: str, own: Mapping[str, Any]) -> str:
    """The command that tries the way to the platform, without what an address may have of secrets in it."""
    key, usual = SERVERS.get(kind, ("base_url", ""))
    with suppress(ValueError):
        parts = urlsplit(str(own.get(key) or usual))
        if parts.hostname:
            port = f":{parts.port}" if parts.port else ""
            return f"curl -sSI {quoted(f'{parts.scheme}://{parts.hostname}{port}/')}"
    return "bubbot doctor"
