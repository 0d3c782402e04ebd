"""The real library as a client of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import telegram
from telegram.request import HTTPXRequest

from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import Bot


@asynccontextmanager
async def library(server: Server, *, bot: Bot | None = None, seconds: float = 5.0) -> AsyncIterator[telegram.Bot]:
    """python-telegram-bot against the server; `seconds` is its time limit for reading."""
    # Without TLS nothing is verified, and reading the certificates takes longer than the requests.
    plain = {"verify": False, "trust_env": False}
    request = HTTPXRequest(connection_pool_size=8, read_timeout=seconds, httpx_kwargs=plain)
    polls = HTTPXRequest(connection_pool_size=8, read_timeout=seconds, httpx_kwargs=plain)
    token = (bot or server.bot).token
    made = telegram.Bot(
        token, base_url=server.base_url, base_file_url=server.base_file_url, request=request, get_updates_request=polls
    )
    async with made:
        server.log.clear()  # its own getMe
        yield made


@asynccontextmanager
async def raw(server: Server, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP; paths are names of methods."""
    address = f"{server.base_url}{token or server.bot.token}/"
    async with httpx.AsyncClient(base_url=address, timeout=5.0, verify=False, trust_env=False) as client:
        yield client
