"""The process that serves tapes to programs: by standard input and output to one, or over HTTP on loopback to all with a token."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from bubbot.errors import AccessError
from bubbot.features.mcp.serve.facts import CLIENTS_TAPE
from bubbot.features.mcp.serve.options import ServeOptions
from bubbot.features.mcp.serve.reading import GrantedTapes
from bubbot.features.mcp.serve.results import AskSendArgs, MessageState, SendMessageArgs
from bubbot.features.mcp.serve.server import TapeServer, open_application
from bubbot.features.mcp.serve.service import digest_token
from bubbot.features.mcp.serve.state import CLIENTS_PROJECTION, ClientsState
from bubbot.features.mcp.serve.stdio import open_lines
from bubbot.ports.asgi import CLIENT_KEY
from bubbot.shell_command import CommandContext
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.projection import read_projection

log = logging.getLogger(__name__)


class Clients:
    """The programs, read anew from the tapes of the home at each request: what is taken back holds at the next one."""

    def __init__(self, context: CommandContext, options: ServeOptions) -> None:
        self._context, self._options = context, options

    async def read(self) -> ClientsState:
        """Read what programs may read now."""
        return await read_projection(CLIENTS_PROJECTION, self._context.open_tape(CLIENTS_TAPE))

    async def find(self, token: str) -> str:
        """Return the program with a token; empty if there is none."""
        return (await self.read()).find_client(digest_token(token))

    async def open(self, client: str) -> GrantedTapes:
        """Return what a program may read now. Raise `AccessError` if it may read nothing."""
        state = await self.read()
        sessions = state.sessions_of(client)
        if not sessions:
            raise AccessError(
                f"the program {client!r} may read no chat: bubbot mcp client-add {client} SESSION lets it read one"
            )
        boundary = TapeBoundary(
            self._context.store,
            Viewer(f"the program {client}", frozenset(sessions)),
            workspace=self._context.workspace,
            references=self._options.references,
        )
        return GrantedTapes(
            boundary, self._options.views, sessions, state.targets_of(client), partial(self._ask_to_send, client)
        )

    async def _ask_to_send(self, client: str, args: SendMessageArgs) -> MessageState:
        assert self._context.home is not None
        asked = AskSendArgs(client, args.session, args.id, args.text)
        return await self._options.ask_to_send(self._context.home, asked)


async def serve_stdio(context: CommandContext, options: ServeOptions, client: str) -> None:
    """Serve one program by standard input and output, until it closes them or this process is asked to end.

    Raises:
        AccessError: the program may read nothing.
    """
    clients = Clients(context, options)
    await clients.open(client)

    async def find_tapes(_context: ServerRequestContext[Any, Any]) -> GrantedTapes:
        return await clients.open(client)

    server = TapeServer(find_tapes).build()

    async def serve() -> None:
        lines: Any
        async with open_lines() as lines, stdio_server(*lines) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    await _run_until_asked(serve)


async def serve_http(
    context: CommandContext, options: ServeOptions, port: int, on_listening: Callable[[int], None]
) -> None:
    """Serve programs with a token on loopback, until this process is asked to end.

    Raises:
        ConfigError: the port cannot be used.
    """
    clients = Clients(context, options)

    async def find_tapes(request: ServerRequestContext[Any, Any]) -> GrantedTapes:
        client = request.request.scope.get(CLIENT_KEY, "") if request.request is not None else ""
        if not client:
            raise AccessError("nobody knows who asks: send a token")
        return await clients.open(client)

    server = TapeServer(find_tapes).build()

    async def serve() -> None:
        async with open_application(server) as app, options.serve_http(app, port, clients.find) as bound:
            on_listening(bound)
            await asyncio.Event().wait()

    await _run_until_asked(serve)


async def _run_until_asked(work: Callable[[], Awaitable[None]]) -> None:
    """Run work until it ends, or until Ctrl-C or SIGTERM."""
    running = asyncio.ensure_future(work())
    with _ending_signals(running.cancel):
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()


@contextmanager
def _ending_signals(end: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
