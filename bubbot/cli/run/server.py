"""The server of `bubbot run`: the API for other commands, health, and calls of platforms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bubbot.app.daemon import Daemon
from bubbot.app.reload import Reloader
from bubbot.app.tapes import new_id, now
from bubbot.cli.chat.service import chat_service
from bubbot.cli.commands import answer_command
from bubbot.home import Home
from bubbot.server.api import Api
from bubbot.server.local import serve_socket
from bubbot.server.protocol import JsonObject, encode
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandContext
from bubbot.tape.boundary import Viewer
from bubbot.texts import Texts
from bubbot.texts.catalogue import SOURCE_LANGUAGE

if TYPE_CHECKING:
    from bubbot.gateway.metrics import Metrics


def _token(settings: Settings) -> str:
    return settings.server.token.get_secret_value() if settings.server.token else ""


@asynccontextmanager
async def serve(daemon: Daemon, reloader: Reloader, settings: Settings, home: Home, path: Path) -> AsyncIterator[Api]:
    """Serve at every configured address, and on the Unix socket at `path`, until the block ends.

    The libraries for HTTP (a third of the start-up) and metrics load only if needed.
    """
    api = _make_api(daemon, reloader)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serve_socket(api, path))
        if daemon.webhook_channels():
            from bubbot.server.webhooks import WebhookSettings, serve_webhooks

            address = WebhookSettings(settings.http.host, settings.http.port)
            await stack.enter_async_context(serve_webhooks(daemon.webhook_channels, address))
            daemon.has_webhook_server = True
        if settings.health.port is not None:
            await stack.enter_async_context(
                _serve_health(daemon, settings.health.host, settings.health.port, settings.health.hosts)
            )
        if settings.server.port is not None and daemon.quarantine is None:
            await stack.enter_async_context(_serve_network(daemon, api, settings, settings.server.port))
        if settings.trace.port is not None and daemon.quarantine is None:
            await stack.enter_async_context(_serve_trace(daemon, reloader, settings, home))
        yield api


@asynccontextmanager
async def _serve_trace(daemon: Daemon, reloader: Reloader, settings: Settings, home: Home) -> AsyncIterator[None]:
    from bubbot.app.trace import admit_people, open_trace, pages_address, trace_tokens
    from bubbot.server.pages import serve_pages

    async def submit(name: str, arguments: Mapping[str, Any], viewer: Viewer) -> None:
        context = structs.replace(_make_context(daemon), account=viewer.account)
        await answer_command(context, reloader.current, {"name": name, "arguments": dict(arguments)})

    async with open_trace(settings, home, submit, serves_auditors=True) as trace:
        admit = admit_people(trace_tokens(home), daemon.access.role, trace.auditors)
        async with serve_pages(trace.pages, pages_address(settings.trace), admit):
            yield


@asynccontextmanager
async def _serve_network(daemon: Daemon, api: Api, settings: Settings, port: int) -> AsyncIterator[None]:
    from bubbot.server.completions import Completions
    from bubbot.server.network import NetworkSettings, serve_network

    server, completions = settings.server, None
    if server.openai:
        completions = Completions(
            api,
            daemon.remote,
            chat_service(daemon.bot, daemon.remote),
            model=settings.bot.name,
            commands=server.commands,
            now=now,
            new_id=new_id,
        )
    address = NetworkSettings(server.host, port, _token(settings), server.hosts)
    async with serve_network(api, address, completions):
        yield


def _make_context(daemon: Daemon) -> CommandContext:
    """Return what a command works on that comes from outside any turn."""
    base = daemon.bot.turn_services.command_context
    return structs.replace(base, exclusive=daemon.bot.runtime.exclusive, services=[*base.services, daemon.access])


def _make_api(daemon: Daemon, reloader: Reloader) -> Api:
    app = daemon.bot

    async def command(body: JsonObject) -> JsonObject:
        return await answer_command(_make_context(daemon), reloader.current, body)

    async def reload(_body: JsonObject) -> JsonObject:
        return structs.asdict(await reloader.reload("command"))

    async def status(body: JsonObject) -> JsonObject:
        texts = Texts(str(body.get("language", SOURCE_LANGUAGE)))
        return {"snapshot": encode(await app.health_collector.snapshot(texts))}

    queries = {"command": command, "reload": reload, "status": status}
    return Api(queries, daemon.remote.handlers(chat_service(daemon.bot, daemon.remote)), daemon.remote.forget_client)


@asynccontextmanager
async def _serve_health(daemon: Daemon, host: str, port: int, hosts: Sequence[str]) -> AsyncIterator[None]:
    from bubbot.gateway.metrics import Metrics
    from bubbot.server.health import HealthProbe, serve_health
    from bubbot.server.listener import HttpAddress

    metrics, watch = Metrics(daemon.bot.features.metrics), daemon.bot.health_collector
    attach_metrics(daemon, metrics)
    probe = HealthProbe(
        watch.channels,
        lambda: watch.quarantine,
        watch.snapshot,
        watch.commit_count,
        watch.readiness,
        watch.disk_problem,
        watch.is_database_replaced,
    )
    async with serve_health(HttpAddress("health", host, port), probe, metrics, hosts):
        yield


def attach_metrics(daemon: Daemon, metrics: Metrics) -> None:
    """Attach the metrics to the bot, and to new channels after each reload; counters keep their values."""
    sources = daemon.bot.health_collector.sources
    budget = sources.features.budget

    def attach() -> None:
        metrics.attach(sources.channel_runtimes.values(), sources.activity, budget.budget if budget else None)

    attach()
    daemon.on_reload.append(attach)
