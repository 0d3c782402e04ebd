"""Adds a token to requests of the conformance tool, which sends none: the real server answers nothing without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

HOP_HEADERS = frozenset({"connection", "transfer-encoding", "content-length", "authorization"})


@asynccontextmanager
async def add_token(url: str, token: str) -> AsyncIterator[str]:
    """Pass requests on to an address with a token, and all else of them as it is, until the block ends; yield the new address."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in HOP_HEADERS]
        headers.append(("Authorization", f"Bearer {token}"))
        async with client.request(
            request.method, url, headers=headers, data=await request.read(), allow_redirects=False
        ) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS]
            response = web.StreamResponse(status=answer.status)
            response.headers.extend(kept)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response

    app = web.Application()
    app.router.add_route("*", "/mcp", forward)
    runner = web.AppRunner(app, access_log=None)
    async with aiohttp.ClientSession() as client:
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        finally:
            await runner.cleanup()
