"""OAuth for servers: a login that a person gives once at a terminal, and its tokens in the running bot.

The running bot only uses and refreshes tokens: it discovers nothing, registers nothing and opens no browser. A server that wants more
fails the call with `needs_login`, and what it wanted is kept for the login. Everything else is the provider of the SDK (2.3.0): metadata,
Client ID Metadata Documents, dynamic registration, PKCE, `iss` (RFC 9207), step-up of scopes. In two things we replace it: it forgets
at a restart where and when to refresh, so the file keeps both; and it holds a lock until a request has its response headers, so
`StoredLogin` adds tokens without it, and uses it only to refresh.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
from aiohttp import web
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from bubbot.features.mcp.child.limits import shorten
from bubbot.features.mcp.child.values import McpFailed, ServerPlace
from bubbot.features.mcp.child.web_client import BoundedTransport, read_origin
from bubbot.new_files import replace_file

CLIENT_NAME = "bubbot"
CALLBACK_PATH = "/callback"
LOGIN_SECONDS = 600.0
REQUEST_SECONDS = 30.0
MAX_CHALLENGE_CHARS = 4_000
MAX_ADDRESS_CHARS = 16_000
EARLY_SECONDS = 30.0
"""A token is refreshed so long before it ends: it travels, and clocks differ."""
LOCK_SECONDS = 20.0
"""How long a process waits for another one that refreshes the same login."""
LOOK_SECONDS = 0.02
LOCK_ENDING = ".lock"
"""The suffix of the file that a process locks while it changes the login next to it."""


class LoginContent(BaseModel):
    """What the file of a login holds.

    Attributes:
        server: the address that the tokens are for; they go nowhere else.
        expires_at: when the access token ends, in seconds since 1970; None if nobody said.
        challenge: what the server wanted when a call needed a login, until one is given.
    """

    server: str
    tokens: OAuthToken | None = None
    expires_at: float | None = None
    client: OAuthClientInformationFull | None = None
    issuer_metadata: OAuthMetadata | None = None
    resource_metadata: ProtectedResourceMetadata | None = None
    challenge: Challenge | None = None


class Challenge(BaseModel):
    """The answer of a server that wants a login, or further rights."""

    status: int
    authenticate: str = ""


LoginContent.model_rebuild()


class LoginFile:
    """The file of a server's login, readable by its owner alone, replaced as a whole. It is the `TokenStorage` of the SDK."""

    def __init__(self, path: Path, server: str) -> None:
        self._path = path
        self._server = server
        self._stamp: object = None
        self.content = LoginContent(server=server)
        self.read()

    def read(self) -> bool:
        """Read it again if another process has written it since; return true if so."""
        try:
            status = self._path.stat()
            stamp: object = status.st_ino, status.st_mtime_ns, status.st_size
        except OSError:
            stamp = ()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            content = LoginContent.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):  # a broken file is no login
            content = LoginContent(server=self._server)
        self.content = content if content.server == self._server else LoginContent(server=self._server)
        return True

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Keep other processes from changing it until the block ends. Raise `McpFailed` if one does not let go of it."""
        try:
            number = os.open(self._path.with_suffix(LOCK_ENDING), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise McpFailed(f"{self._path}, the file of its login, cannot be locked: {error.strerror}") from error
        try:
            await _lock(number)
            yield
        finally:
            os.close(number)

    def write(self) -> None:
        """Write it; durable when it returns. Raise `McpFailed`."""
        try:
            replace_file(self._path, self.content.model_dump_json(exclude_none=True).encode())
        except OSError as error:
            raise McpFailed(f"{self._path}, the file of its login, cannot be written: {error.strerror}") from error

    def keep_challenge(self, response: httpx2.Response) -> None:
        """Keep what a server wants, for the login."""
        authenticate = response.headers.get("WWW-Authenticate", "")[:MAX_CHALLENGE_CHARS]
        challenge = Challenge(status=response.status_code, authenticate=authenticate)
        if self.content.challenge != challenge:
            self.content.challenge = challenge
            self.write()

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.content.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep refreshed tokens at once: the one before may be worth nothing any more."""
        self._put(tokens)
        self.write()

    def _put(self, tokens: OAuthToken) -> None:
        self.content.tokens = tokens
        self.content.expires_at = time.time() + tokens.expires_in if tokens.expires_in is not None else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return what the authorization server knows us as."""
        return self.content.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it."""
        self.content.client = client_info


class _UnwrittenLogin(LoginFile):
    """The login that is being given: it is written when it is whole."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._put(tokens)


class StoredLogin(httpx2.Auth):
    """Put the token of a login on requests to its server, and refresh it. Raise `McpFailed` with `needs_login` if that is not enough."""

    def __init__(self, place: ServerPlace) -> None:
        self._origin = read_origin(httpx2.URL(place.url))
        self._file = LoginFile(Path(place.tokens_file), place.url)
        self._provider = OAuthClientProvider(
            place.url, _describe_client("http://127.0.0.1" + CALLBACK_PATH), self._file
        )
        self._refreshing = asyncio.Lock()
        self._is_read = False

    def _take_up(self) -> None:
        """Go on with what the file holds, if another process has written it, or nobody has read it yet."""
        if not self._file.read() and self._is_read:
            return
        self._is_read = True
        context, content = self._provider.context, self._file.content
        context.current_tokens = content.tokens
        context.client_info = content.client
        context.oauth_metadata = content.issuer_metadata
        context.protected_resource_metadata = content.resource_metadata
        context.token_expiry_time = None if content.expires_at is None else content.expires_at - EARLY_SECONDS

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token; once more with a newer one if the server does not take it."""
        if read_origin(request.url) != self._origin:
            yield request
            return
        context, refused = self._provider.context, ""
        response: httpx2.Response | None = None
        for _ in range(2):
            async with self._refreshing:
                self._take_up()
                if self._needs_refresh(refused):
                    async with self._file.changing():
                        self._take_up()  # another process may have been faster
                        if self._needs_refresh(refused):
                            context.token_expiry_time = 1.0  # whatever the server said about its end
                            refreshing = self._provider.async_auth_flow(request)
                            try:
                                outgoing = await anext(refreshing)
                                while outgoing is not request:
                                    outgoing = await refreshing.asend((yield outgoing))
                            finally:
                                await refreshing.aclose()
            access = context.current_tokens.access_token if context.current_tokens is not None else ""
            if response is not None and access in ("", refused):
                break  # there is none newer
            if access:
                request.headers["Authorization"] = f"Bearer {access}"
            response = yield request
            if not _wants_login(response):
                return
            if response.status_code != httpx2.codes.UNAUTHORIZED:
                break
            refused = access
        assert response is not None
        raise await self._keep_challenge(response)

    async def _keep_challenge(self, response: httpx2.Response) -> McpFailed:
        """Keep what the server wants for the login, and return it in words."""
        async with self._file.changing():
            self._file.read()
            self._file.keep_challenge(response)
        if response.status_code == httpx2.codes.FORBIDDEN:
            return McpFailed("it wants a login with further rights", needs_login=True)
        return McpFailed("its login has ended" if self._file.content.tokens else "it wants a login", needs_login=True)

    def _needs_refresh(self, refused: str) -> bool:
        """Return true if the token has ended, or is the one that the server did not take, and another one can be had."""
        context = self._provider.context
        tokens = context.current_tokens
        is_over = not context.is_token_valid() or (tokens is not None and tokens.access_token == refused)
        return is_over and context.can_refresh_token()


async def _lock(number: int) -> None:
    """Lock an open file until it is closed. Raise `McpFailed` if another process does not let go of it."""
    try:
        async with asyncio.timeout(LOCK_SECONDS):
            while True:
                try:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    return
    except TimeoutError:
        raise McpFailed("another process is changing its login") from None
    except OSError as error:
        raise McpFailed(f"the file of its login cannot be locked: {error.strerror}") from error


def use_login(place: ServerPlace) -> httpx2.Auth:
    """Return what puts the login of a server on its requests, and never asks anybody."""
    return StoredLogin(place)


def _wants_login(response: httpx2.Response) -> bool:
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        return True
    is_forbidden = response.status_code == httpx2.codes.FORBIDDEN
    return is_forbidden and "insufficient_scope" in response.headers.get("WWW-Authenticate", "")


def _describe_client(redirect: str, scope: str = "") -> OAuthClientMetadata:
    return OAuthClientMetadata(redirect_uris=[AnyUrl(redirect)], client_name=CLIENT_NAME, scope=scope or None)


def format_client_document(url: str) -> str:
    """Format the Client ID Metadata Document of a bot, which its owner may put on the web at `url` (https) and name at a login."""
    client = _describe_client("http://127.0.0.1" + CALLBACK_PATH).model_dump(mode="json", exclude_none=True)
    return json.dumps({"client_id": url, **client, "token_endpoint_auth_method": "none"}, indent=2)


class ClientIdentity(NamedTuple):
    """What the authorization server shall know us as, if its owner says so.

    Attributes:
        client_id: that of a registration made by hand; empty to be registered.
        client_secret: that of the same one, if it has any.
        document_url: the https address of a Client ID Metadata Document of ours.
    """

    client_id: str = ""
    client_secret: str = ""
    document_url: str = ""


UNKNOWN = ClientIdentity()


async def login(
    place: ServerPlace,
    *,
    show_url: Callable[[str], Awaitable[None]],
    read_address: Callable[[], Awaitable[str]] | None = None,
    identity: ClientIdentity = UNKNOWN,
    port: int = 0,
    timeout: float = LOGIN_SECONDS,
) -> None:
    """Let a person log in to a server, and write `place.tokens_file` when that is done.

    Args:
        show_url: shows the address that the person shall open in a browser.
        read_address: reads the address that the browser ended at, for a browser on another machine; it may wait for ever, and is
            cancelled if the browser reaches us.
        port: that of the listener on 127.0.0.1, if the registration names one; 0 for that of the last login, or a free one.
        timeout: seconds that the person has.

    Raises:
        McpFailed: nothing is changed.
    """
    if not place.tokens_file or not place.url:
        raise McpFailed("only a server with an address has a login")
    file = _UnwrittenLogin(Path(place.tokens_file), place.url)
    async with _RedirectListener(port or _read_port(file.content.client), is_fixed=bool(port)) as listener:
        try:
            async with asyncio.timeout(timeout):
                await _log_in(place, file, listener, identity, _PersonAtBrowser(listener, show_url, read_address))
        except TimeoutError:
            raise McpFailed(f"nobody logged in within {timeout:g} seconds", needs_login=True) from None
        except OAuthFlowError as error:
            raise McpFailed(f"the login failed: {shorten(str(error))}", needs_login=True) from error
        except httpx2.HTTPError as error:
            said = shorten(str(error)) or type(error).__name__
            raise McpFailed(f"the login failed: a server of it cannot be reached: {said}", needs_login=True) from error
        except ValidationError as error:
            raise McpFailed("the login failed: an answer is not as OAuth says", needs_login=True) from error
    file.content.challenge = None
    async with file.changing():
        file.write()


async def _log_in(
    place: ServerPlace,
    file: _UnwrittenLogin,
    listener: _RedirectListener,
    identity: ClientIdentity,
    person: _PersonAtBrowser,
) -> None:
    """Drive the flow of the SDK from what the server wanted, or wants now, to new tokens."""
    content = file.content
    if identity.client_id:
        content.client = OAuthClientInformationFull(
            client_id=identity.client_id,
            client_secret=identity.client_secret or None,
            redirect_uris=[AnyUrl(listener.address)],
            token_endpoint_auth_method="client_secret_basic" if identity.client_secret else "none",
        )
    elif content.client is not None and (
        listener.address not in map(str, content.client.redirect_uris or ())
        or (identity.document_url and identity.document_url != content.client.client_id)
    ):
        content.client = None  # registered with another address, or otherwise
    challenge = content.challenge
    if challenge is None or challenge.status != httpx2.codes.FORBIDDEN:
        content.tokens = None
    try:
        provider = OAuthClientProvider(
            place.url,
            _describe_client(listener.address),
            file,
            redirect_handler=person.send_to,
            callback_handler=person.wait_for_return,
            client_metadata_url=identity.document_url or None,
        )
    except ValueError as error:
        raise McpFailed(f"{identity.document_url} is no https address of a client document with a path") from error
    context = provider.context
    person.on_leave = lambda: _choose_secret_method(context.client_info, context.oauth_metadata)
    request = _build_request(place)
    transport = BoundedTransport(place.url, place.headers)
    async with httpx2.AsyncClient(transport=transport, timeout=REQUEST_SECONDS, follow_redirects=False) as client:
        flow = provider.async_auth_flow(request)
        try:
            await anext(flow)
            response = None
            if challenge is None or challenge.status != httpx2.codes.FORBIDDEN:
                response = await client.send(request, stream=True)
                await response.aclose()
            if response is None or not _wants_login(response):  # it may want one for calls alone
                response = _repeat_challenge(challenge or Challenge(status=httpx2.codes.UNAUTHORIZED), request)
            outgoing = await flow.asend(response)
            while outgoing is not request:
                _check_address(outgoing.url, httpx2.URL(place.url))
                outgoing = await flow.asend(await client.send(outgoing))
        except StopAsyncIteration:
            raise McpFailed("the server wants no login") from None
        finally:
            await flow.aclose()
    content.client = context.client_info
    content.issuer_metadata = context.oauth_metadata
    content.resource_metadata = context.protected_resource_metadata


def _build_request(place: ServerPlace) -> httpx2.Request:
    """Build the first request of a connection: a server that wants logins answers it with what it wants."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST_MODERN_VERSION,
        "Mcp-Method": "server/discover",
    }
    return httpx2.Request("POST", place.url, json=message, headers=headers)


def _repeat_challenge(challenge: Challenge, request: httpx2.Request) -> httpx2.Response:
    headers = {"WWW-Authenticate": challenge.authenticate} if challenge.authenticate else {}
    return httpx2.Response(challenge.status, headers=headers, request=request)


def _check_address(url: httpx2.URL, server: httpx2.URL) -> None:
    """Refuse to send parts of a login unencrypted to another host."""
    if url.scheme != "https" and url.host != server.host:
        raise McpFailed(
            f"the login would go unencrypted to {shorten(url.host)}, which is not its host", needs_login=True
        )


def _choose_secret_method(client: OAuthClientInformationFull | None, metadata: OAuthMetadata | None) -> None:
    """Send the secret of a registration made by hand in the way that the authorization server knows."""
    if client is None or not client.client_secret or metadata is None:
        return
    methods = metadata.token_endpoint_auth_methods_supported
    if methods and client.token_endpoint_auth_method not in methods and "client_secret_post" in methods:
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105 - a method


def _read_port(client: OAuthClientInformationFull | None) -> int:
    for address in (client.redirect_uris or ()) if client is not None else ():
        if address.host == "127.0.0.1" and address.path == CALLBACK_PATH and address.port:
            return address.port
    return 0


class _PersonAtBrowser:
    """Somebody whom an address is shown, and who comes back with a code."""

    def __init__(
        self,
        listener: _RedirectListener,
        show_url: Callable[[str], Awaitable[None]],
        read_address: Callable[[], Awaitable[str]] | None,
    ) -> None:
        self._listener = listener
        self._show_url = show_url
        self._read_address = read_address
        self._state = ""
        self.on_leave: Callable[[], None] = lambda: None

    async def send_to(self, url: str) -> None:
        """Show an address of the authorization server."""
        self.on_leave()
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._listener.expect(self._state)
        await self._show_url(url)

    async def wait_for_return(self) -> AuthorizationCodeResult:
        """Wait until the browser ends at the listener, or somebody pastes where it ended."""
        waiting = [asyncio.ensure_future(self._listener.wait())]
        if self._read_address is not None:
            waiting.append(asyncio.ensure_future(self._read_pasted(self._read_address)))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            query = next(iter(done)).result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if error := query.get("error"):
            said = f"{error}: {query['error_description']}" if query.get("error_description") else error
            raise McpFailed(f"the login was refused: {shorten(said)}", needs_login=True)
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))

    async def _read_pasted(self, read_address: Callable[[], Awaitable[str]]) -> dict[str, str]:
        address = (await read_address()).strip()
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query[:MAX_ADDRESS_CHARS]).items()}
        if query.get("state") != self._state:
            raise McpFailed(
                "this is not the address that the browser ended at: it begins with " + self._listener.address
            )
        return query


class _RedirectListener:
    """The page on this machine that the browser is sent back to. What does not belong to this login is answered and forgotten."""

    def __init__(self, port: int, *, is_fixed: bool) -> None:
        self._port = port
        self._is_fixed = is_fixed
        self._queries: asyncio.Queue[dict[str, str]] = asyncio.Queue(maxsize=100)
        self._state = ""
        self._runner: web.ServerRunner | None = None

    @property
    def address(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._port}{CALLBACK_PATH}"

    async def __aenter__(self) -> _RedirectListener:
        self._runner = web.ServerRunner(web.Server(self._answer))
        await self._runner.setup()
        try:
            await self._listen(self._port)
        except OSError:
            if self._is_fixed:
                raise McpFailed(
                    f"port {self._port} of 127.0.0.1 is in use: the browser cannot come back to it"
                ) from None
            await self._listen(0)
        return self

    async def _listen(self, port: int) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._port = self._runner.addresses[-1][1]

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def expect(self, state: str) -> None:
        """Take the browser with the state of this login, from now on."""
        self._state = state

    async def wait(self) -> dict[str, str]:
        """Wait for the browser; return what the address says."""
        return await self._queries.get()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        query = {name: request.query[name] for name in request.query}
        is_ours = (
            request.method == "GET"
            and request.path == CALLBACK_PATH
            and self._state
            and query.get("state") == self._state
        )
        if not is_ours or self._queries.full():
            return web.Response(status=404, text="This address belongs to no login.\n")
        self._queries.put_nowait(query)
        return web.Response(
            text="The login has reached bubbot. You can close this page.\n", headers={"Cache-Control": "no-store"}
        )
