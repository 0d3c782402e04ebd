"""A server of MCP that wants a login, and its authorization server: both on 127.0.0.1, and the browser of the person."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

VERSION = "2026-07-28"


@dataclass
class LoginServer:
    """What both servers know, and what they were asked.

    Attributes:
        needed: the rights that a call needs.
        open_methods: answered without a login.
        lifetime: of access tokens, in seconds.
        issuer: in metadata and redirects; empty for its address.
        refusal: the error of each redirect; empty for a code.
        does_refresh: refresh tokens are taken.
        knows_documents: Client ID Metadata Documents are taken.
    """

    port: int = 0
    needed: str = "read"
    open_methods: tuple[str, ...] = ()
    lifetime: int = 3600
    issuer: str = ""
    refusal: str = ""
    does_refresh: bool = True
    knows_documents: bool = False
    asked: list[str] = field(default_factory=list)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    rights: dict[str, str] = field(default_factory=dict)
    refreshes: dict[str, str] = field(default_factory=dict)
    token_requests: list[dict[str, str]] = field(default_factory=list)
    authorizations: list[dict[str, str]] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def base(self) -> str:
        """Return the address of both."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Return the address of the server of MCP."""
        return f"{self.base}/mcp"

    def end_tokens(self) -> None:
        """Let all access tokens end."""
        self.rights.clear()

    async def answer_mcp(self, request: web.Request) -> web.Response:
        """Answer as a server of MCP."""
        message = await request.json()
        self.asked.append(message["method"])
        rights = self.rights.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        metadata = f'resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
        if message["method"] not in self.open_methods:
            if rights is None:
                return web.Response(status=401, headers={"WWW-Authenticate": f"Bearer {metadata}"})
            if message["method"] == "tools/call" and self.needed not in rights.split():
                wanted = f'Bearer error="insufficient_scope", scope="{self.needed}", {metadata}'
                return web.Response(status=403, headers={"WWW-Authenticate": wanted})
        results: dict[str, dict[str, Any]] = {
            "server/discover": {"supportedVersions": [VERSION], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"done with {rights}"}]},
        }
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **results[message["method"]]}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def describe_resource(self, _request: web.Request) -> web.Response:
        """Answer with the metadata of the protected resource."""
        self.asked.append("resource")
        return web.json_response({"resource": self.url, "authorization_servers": [f"{self.base}/login"]})

    async def describe_issuer(self, _request: web.Request) -> web.Response:
        """Answer with the metadata of the authorization server."""
        self.asked.append("issuer")
        return web.json_response(
            {
                "issuer": f"{self.base}/login",
                "authorization_endpoint": f"{self.base}/login/authorize",
                "token_endpoint": f"{self.base}/login/tokens",
                "registration_endpoint": f"{self.base}/login/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
                "code_challenge_methods_supported": ["S256"],
                "scopes_supported": ["read", "write"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": self.knows_documents,
            }
        )

    async def register(self, request: web.Request) -> web.Response:
        """Register a client."""
        self.asked.append("register")
        client = {**await request.json(), "client_id": f"client-{next(self.numbers)}"}
        self.clients[client["client_id"]] = client
        return web.json_response(client, status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        """Send the browser back: its person agrees at once."""
        query = dict(request.query)
        self.asked.append("authorize")
        self.authorizations.append(query)
        back = {"state": query["state"], "iss": self.issuer or f"{self.base}/login"}
        if self.refusal:
            back |= {"error": self.refusal, "error_description": "The person said no."}
        else:
            back["code"] = f"code-{next(self.numbers)}"
            self.codes[back["code"]] = query
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(back)}")

    async def give_tokens(self, request: web.Request) -> web.Response:
        """Exchange a code, or a refresh token, which is taken once."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form["grant_type"])
        self.token_requests.append(form)
        if form["grant_type"] == "refresh_token":
            scope = self.refreshes.pop(form["refresh_token"], None) if self.does_refresh else None
        else:
            query = self.codes.pop(form["code"], {})
            digest = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            scope = query.get("scope", "") if query.get("code_challenge") == digest else None
        if scope is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        access, refresh = (f"{kind}-{next(self.numbers)}" for kind in ("access", "refresh"))
        self.rights[access], self.refreshes[refresh] = scope, scope
        tokens = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime, "refresh_token": refresh}
        return web.json_response(tokens | {"scope": scope})


@asynccontextmanager
async def login_server(**options: Any) -> AsyncIterator[LoginServer]:
    """Run both."""
    server = LoginServer(**options)
    app = web.Application()
    app.add_routes(
        [
            web.post("/mcp", server.answer_mcp),
            web.get("/.well-known/oauth-protected-resource/mcp", server.describe_resource),
            web.get("/.well-known/oauth-authorization-server/login", server.describe_issuer),
            web.post("/login/register", server.register),
            web.get("/login/authorize", server.authorize),
            web.post("/login/tokens", server.give_tokens),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


class Person:
    """Somebody at a browser, on this machine or on another one.

    Attributes:
        shown: the addresses that were shown.
        pages: what the browser showed in the end.
    """

    def __init__(self, *, is_elsewhere: bool = False) -> None:
        self.shown: list[str] = []
        self.pages: list[str] = []
        self._is_elsewhere = is_elsewhere
        self._ended_at: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def see(self, url: str) -> None:
        """Open an address that is shown."""
        self.shown.append(url)
        task = asyncio.create_task(self._open(url))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, url: str) -> None:
        async with aiohttp.ClientSession() as browser:
            async with browser.get(url, allow_redirects=False) as response:
                address = response.headers["Location"]
            if self._is_elsewhere:
                self._ended_at.put_nowait(address)
                return
            async with browser.get(address) as response:
                self.pages.append(await response.text())

    async def paste(self) -> str:
        """Paste where the browser ended."""
        return await self._ended_at.get()
