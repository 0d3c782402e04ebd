"""The one HTTP client of the web tools. It reaches public addresses only, and takes no more than its limits allow.

Every connection is made by `socket_factory`, which sees the address itself: names, literals in any notation, redirects and
names that resolve to something else the second time all meet the same check. Nothing is taken from the environment: no
proxy, no password file.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
import threading
import zlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from email.message import Message
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from bubbot.features.web.address import find_site, is_public_text
from bubbot.formatting import format_bytes

if TYPE_CHECKING:
    import ssl

    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver, ResolveResult

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a host. Raises `OSError` if it has none."""

USER_AGENT = "Mozilla/5.0 (compatible; bubbot)"
WEB_PORTS = frozenset((80, 443, 8000, 8080, 8443))
"""Ports on which web servers listen; the others belong to mail, databases and so on."""
MAX_URL_CHARS = 2000
CHUNK_BYTES = 65_536
MAX_SITES = 1000
"""Registrable domains whose requests are counted at the same time."""
RATE_WINDOW_SECONDS = 60.0
HTTP_OK, HTTP_ERROR = 200, 400
_CHARSET = re.compile(
    r"(utf|ascii|iso8859|iso2022|cp|koi8|mac|gb|hz|big5|euc|shift_jis|tis|johab|ptcp|kz)[-_]?[\w-]*", re.ASCII
)
"""The names by which Python knows charsets of texts. It has others, some of which take minutes for a page: punycode."""
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_HOST_LABELS = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")


class WebError(Exception):
    """A request that was refused or that failed; the text says why."""


class AddressRefused(OSError):
    """An address that is not public. An `OSError`, so that the next address of the host is tried."""


class WebResponse(Struct, frozen=True):
    """The answer to a request.

    Attributes:
        address: where it came from, after redirects.
        status: the HTTP status.
        media_type: in small letters; empty if the server says none.
        charset: the charset that the server says; empty if none, or one that is not known.
        body: the whole body, decompressed.
        redirect: an address at another host to which the server points; nothing was asked there, and there is no body.
    """

    address: str
    status: int
    media_type: str
    charset: str
    body: bytes
    redirect: str = ""


class WebAddress(Struct, frozen=True):
    """An address that may be asked, as far as its text can tell.

    Attributes:
        url: the address without its fragment.
        host: in small letters and ASCII, without the dot at its end.
    """

    url: str
    host: str


def parse_address(text: str, ports: Collection[int] = WEB_PORTS) -> WebAddress:
    """Check the text of an address. Raise `WebError` with what to change. Without `ports` each one may be asked."""
    text = text.strip()
    if len(text) > MAX_URL_CHARS:
        raise WebError(f"the address has {len(text)} characters; at most {MAX_URL_CHARS} are sent")
    if not text.isprintable() or " " in text or "\\" in text:
        raise WebError("the address has spaces, backslashes or control characters; write them as %20 and so on")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise WebError(f"the address cannot be read: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise WebError("the address has to begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise WebError("the address holds a user name or a password, which are not sent: leave them out")
    default_port = 443 if parts.scheme == "https" else 80
    if ports and (default_port if port is None else port) not in ports:
        raise WebError(f"port {port} is not one of the web; allowed are {', '.join(map(str, sorted(ports)))}")
    host = _check_host(host)
    netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    return WebAddress(parts._replace(netloc=netloc, fragment="").geturl(), host)


def _check_host(host: str) -> str:
    if ":" in host and "%" not in host and _is_literal(host):
        return host
    try:
        name = host.encode("idna").decode().lower()
    except UnicodeError:
        name = ""
    if not _HOST_LABELS.fullmatch(name) or len(name) > 253:
        raise WebError(f"{host!r} is not the name of a host")
    return name.removesuffix(".")


class WebClient:
    """Sends GET and POST requests to public addresses."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        max_bytes: int = 5_000_000,
        timeout: float = 20.0,
        max_redirects: int = 5,
        requests_per_minute: int = 20,
        ports: Collection[int] = WEB_PORTS,
        is_allowed: Callable[[str], bool] = is_public_text,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Build it.

        Args:
            clock: seconds of a clock that never goes back.
            max_bytes: of a body, as sent and as decompressed.
            timeout: seconds for everything, redirects included.
            max_redirects: within the same registrable domain.
            requests_per_minute: to one registrable domain.
            ports: that may be asked; empty for all.
            is_allowed: returns true for an address that may be reached. Anything but the default is for an address that
                the owner wrote into the settings, and for tests.
            resolve: returns the addresses of a host; None for the resolver of the system.
            tls: the certificates to trust; None for those of `certifi`.
        """
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._max_redirects = max_redirects
        self._requests_per_minute = requests_per_minute
        self._ports = ports
        self._clock = clock
        self._is_allowed = is_allowed
        self._resolve = resolve or _resolve_by_system
        self._tls = tls
        self._requests: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, url: str) -> WebAddress:
        """Check the text of an address, and the address itself if it is one. Raise `WebError`."""
        address = parse_address(url, self._ports)
        if _is_literal(address.host) and not self._is_allowed(address.host):
            raise WebError(_refusal(address.host))
        return address

    async def get(
        self, url: str, *, params: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebResponse:
        """Send a GET request, and follow redirects within the same registrable domain: none with `params` or `headers`.

        Raises:
            WebError: the request was refused or failed; a status above 399 is no failure.
        """
        async with self._session() as session:
            if params or headers:
                return await self._ask(session, "GET", self.check(url), params=params, headers=headers)
            return await self._follow(session, self.check(url))

    async def post(
        self,
        url: str,
        *,
        data: Mapping[str, str] | None = None,
        json: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> WebResponse:
        """Send a POST request with a form or with JSON, and follow no redirect. Raise `WebError` as `get` does."""
        async with self._session() as session:
            return await self._ask(session, "POST", self.check(url), data=data, json=json, headers=headers)

    async def _follow(self, session: ClientSession, address: WebAddress) -> WebResponse:
        for _ in range(self._max_redirects + 1):
            response = await self._ask(session, "GET", address)
            if not response.redirect:
                return response
            following = self.check(response.redirect)
            if find_site(address.host) != find_site(following.host):
                return response
            if address.url.startswith("https:") and not following.url.startswith("https:"):
                raise WebError(f"{address.host} leads from https to http, which anybody on the way can read")
            address = following
        raise WebError(f"more than {self._max_redirects} redirects")

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        """Open a session of one request and its redirects; translate the errors of the library."""
        import aiohttp

        self._tls = self._tls or _trusted_certificates()
        # A connection is never kept: each was checked for the request that opened it.
        connector = aiohttp.TCPConnector(
            resolver=_make_resolver(self._resolve_allowed),
            socket_factory=self._open_socket,
            use_dns_cache=False,
            force_close=True,
            happy_eyeballs_delay=None,
            ssl=self._tls,
        )
        try:
            async with (
                asyncio.timeout(self._timeout),
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    trust_env=False,
                    headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
                ) as session,
            ):
                yield session
        except TimeoutError:
            raise WebError(f"no whole answer within {self._timeout:g} seconds") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WebError(_describe(error)) from error

    async def _ask(self, session: ClientSession, method: str, address: WebAddress, **options: Any) -> WebResponse:
        from yarl import URL

        self._count(find_site(address.host))
        # The library reads the address once more; that it asks another host than was checked must not happen.
        url = URL(address.url)
        if not _is_same_host(url.host or "", address.host):
            raise WebError(f"{address.host!r} is not the name of a host")
        async with session.request(method, url, allow_redirects=False, **options) as response:
            media_type, charset = _parse_content_type(response.headers.get("Content-Type", ""))
            location = response.headers.get("Location", "")
            if response.status in _REDIRECTS and location:
                redirect = urljoin(address.url, location)
                return WebResponse(address.url, response.status, media_type, charset, b"", redirect)
            body = await self._read(response)
            return WebResponse(address.url, response.status, media_type, charset, body)

    async def _read(self, response: ClientResponse) -> bytes:
        limit = self._max_bytes
        too_large = WebError(f"it has more than {format_bytes(limit)}, the most that is read")
        declared = response.content_length
        if declared is not None and declared > limit:
            raise too_large
        decode = make_decoder(response.headers.get("Content-Encoding", ""))
        body, sent = bytearray(), 0
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            sent += len(chunk)
            body += decode(chunk, limit + 1 - len(body))
            if max(sent, len(body)) > limit:
                raise too_large
        return bytes(body)

    def _count(self, site: str) -> None:
        """Count a request. Raise `WebError` if the registrable domain has had too many in the last minute."""
        now = self._clock()
        times = self._requests.pop(site, deque())
        while times and times[0] <= now - RATE_WINDOW_SECONDS:
            times.popleft()
        self._requests[site] = times  # the newest is last
        if len(self._requests) > MAX_SITES:
            self._requests.popitem(last=False)
        if len(times) >= self._requests_per_minute:
            wait = times[0] + RATE_WINDOW_SECONDS - now
            raise WebError(f"{site} was asked {len(times)} times within a minute; ask again in {wait:.0f} seconds")
        times.append(now)

    async def _resolve_allowed(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host that may be reached. Raise `AddressRefused` if it has others only."""
        found = await self._resolve(host, port)
        allowed = [address for address in found if self._is_allowed(address)]
        if not allowed:
            raise AddressRefused(_refusal(host))
        return allowed

    def _open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Make the socket of a connection, once the address that it will be connected to is checked."""
        family, kind, protocol, _, target = info
        if not self._is_allowed(target[0]) or (len(target) == 4 and target[3]):
            raise AddressRefused(_refusal("the host"))
        return socket.socket(family, kind, protocol)


def make_decoder(encoding: str) -> Callable[[bytes, int], bytes]:
    """Return a function that decompresses the next bytes of a body to at most so many. Raise `WebError` if none can.

    Raises:
        WebError: nobody asked for such a body. The function raises it for bytes that cannot be decompressed.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return lambda chunk, _: chunk
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise WebError(f"the body is compressed as {encoding[:40]!r}, which was not asked for")
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # finds out by itself whether gzip or zlib

    def decode(chunk: bytes, limit: int) -> bytes:
        try:
            return decompressor.decompress(chunk, max(limit, 1))
        except zlib.error as error:
            raise WebError(f"the body cannot be decompressed: {error}") from None

    return decode


async def _resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Ask in a thread that nobody waits for: a name server that does not answer holds it for half a minute.

    Those of the loop are few; files need them, and the bot waits for them when it ends.
    """
    loop, answer = asyncio.get_running_loop(), asyncio.Future[Sequence[str]]()

    def deliver(addresses: Sequence[str], error: OSError | None) -> None:
        if answer.done():  # nobody waits any more
            return
        if error is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(error)

    def ask() -> None:
        addresses, error = list[str](), None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        except OSError as raised:
            error = raised
        except UnicodeError:  # the encoding of names finds one that is too long
            error = socket.gaierror("no such host")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(deliver, addresses, error)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    return await answer


def _make_resolver(resolve: Resolve) -> AbstractResolver:
    from aiohttp.abc import AbstractResolver

    class GuardedResolver(AbstractResolver):
        """Resolves hosts to addresses that may be reached."""

        async def resolve(
            self,
            host: str,
            port: int = 0,
            family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - the port's signature
        ) -> list[ResolveResult]:
            """See `AbstractResolver.resolve`."""
            return [
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                    "proto": 0,
                    "flags": socket.AI_NUMERICHOST,
                }
                for address in await resolve(host, port)
            ]

        async def close(self) -> None:
            """Close nothing."""

    return GuardedResolver()


def _trusted_certificates() -> ssl.SSLContext:
    import ssl

    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_same_host(one: str, other: str) -> bool:
    try:
        return ip_address(one) == ip_address(other)  # IPv6 has many spellings
    except ValueError:
        return one == other


def _parse_content_type(text: str) -> tuple[str, str]:
    message = Message()
    message["Content-Type"] = text if text.isprintable() else ""
    charset = message.get_param("charset", "")
    return text.partition(";")[0].strip().lower(), _known_charset(charset if isinstance(charset, str) else "")


def _known_charset(name: str) -> str:
    """Return the name of a charset of texts; empty for any other."""
    try:
        return name if _CHARSET.fullmatch(codecs.lookup(name).name) else ""
    except (LookupError, ValueError):
        return ""


def _refusal(host: str) -> str:
    """Say that a host is refused, and not what its name stands for: that is a fact of this machine's own network."""
    return f"{host} is not a public address, and only those may be asked"


def _describe(error: Exception) -> str:
    """Say why a request failed, without what a server may have put into the words of the library."""
    import aiohttp

    cause = getattr(error, "os_error", error)
    if isinstance(cause, AddressRefused):
        return str(cause)
    match error:
        case aiohttp.InvalidURL():
            return "the address has no host that can be asked"
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return "no such host is known"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "the server has no certificate that is trusted"
        case aiohttp.ClientConnectorError():
            return f"no connection: {getattr(cause, 'strerror', '') or type(cause).__name__}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection"
        case aiohttp.ClientPayloadError():
            return "the answer ended early"
        case aiohttp.ClientResponseError():
            return "the answer is not HTTP, or its headers are too long"
    return type(error).__name__
