"""Pages for browsers, on their own address: admission, cookies and headers.

A browser sends a token: once in the address or a form, then in a cookie that no script can read. Requests of other sites' pages
are refused, so that a form is sent by somebody who sees it here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct, structs

from bubbot.errors import AccessError, BubbotError, CommandRefused, ConfigError, EntryNotFound
from bubbot.ports.pages import LoginForm, PageAnswer, PageRequest, Pages
from bubbot.server.listener import (
    HttpAddress,
    HttpConnections,
    HttpLimits,
    HttpRefused,
    check_host,
    listen,
    suspend_deadline,
)
from bubbot.tape.boundary import Viewer

log = logging.getLogger(__name__)

PAGE_LIMITS = HttpLimits(connections=64, body_bytes=65_536)
CONTENT_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Server": "bubbot",
}
TOKEN_PARAMETER = "token"  # noqa: S105 - the name of a parameter
MAX_TOKEN_CHARS = 500
HTTP_SEE_OTHER, HTTP_BAD_REQUEST, HTTP_FORBIDDEN, HTTP_NOT_FOUND = 303, 400, 403, 404
HTTP_SERVER_ERROR = 500


class Admission(Struct, frozen=True):
    """A viewer who was admitted.

    Attributes:
        seconds: how long the browser keeps the token; None until it is closed.
    """

    viewer: Viewer
    seconds: int | None = None


AdmitViewer: TypeAlias = Callable[[str], Awaitable[Admission | None]]
"""Return who has a token, which is foreign; None: nobody."""


class PagesAddress(Struct, frozen=True):
    """Where pages are served.

    Attributes:
        section: of the settings, for errors.
        port: the port; 0 for any that is free.
        hosts: further names of this machine in requests.
        is_https: a proxy encrypts; browsers send the cookie only over HTTPS.
    """

    section: str
    host: str
    port: int
    hosts: Sequence[str] = ()
    is_https: bool = False


@asynccontextmanager
async def serve_pages(pages: Pages, address: PagesAddress, admit: AdmitViewer) -> AsyncIterator[int]:
    """Serve pages until the block ends; yield the port.

    Raises:
        ConfigError: the address cannot be used.
    """
    server = PageServer(pages, address, admit)
    at = HttpAddress(address.section, address.host, address.port)
    async with listen(at, server.routes(), HttpConnections(PAGE_LIMITS), [server.guard]) as port:
        server.port = port
        log.info("serving pages", extra={"action": "pages.listening", "host": address.host, "port": port})
        yield port


class PageServer:
    """The HTTP side of pages.

    Attributes:
        port: part of the cookie's name, since browsers send cookies to all ports of a host.
    """

    def __init__(self, pages: Pages, address: PagesAddress, admit: AdmitViewer) -> None:
        self.port = address.port
        self._pages = pages
        self._address = address
        self._admit = admit

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/static/{name}", self._send_asset),
            web.get("/login", self._show_login),
            web.post("/login", self._log_in),
            web.post("/logout", self._log_out),
            web.get("/{path:.*}", self._show),
            web.post("/{path:.*}", self._submit),
        ]

    @property
    def guard(self) -> Middleware:
        """The middleware that refuses foreign names and pages, and turns errors into pages."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.can_read_body:  # with the deadline, which also holds for the body
                return await self._answer(request, handler)
            with suspend_deadline(request):
                return await self._answer(request, handler)

        return guarded

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._check_origin(request)
            return await handler(request)
        except HttpRefused as refused:
            log.warning("request refused: %s", refused, extra={"action": "pages.refused", "status": refused.status})
            response = self._send(self._pages.show_error(ConfigError(refused.reason), refused.status))
            response.force_close()
            return response
        except AccessError as error:
            return self._send(self._pages.show_error(error, HTTP_FORBIDDEN))
        except EntryNotFound as error:
            return self._send(self._pages.show_error(error, HTTP_NOT_FOUND))
        except (ConfigError, CommandRefused) as error:
            return self._send(self._pages.show_error(error, HTTP_BAD_REQUEST))
        except BubbotError as error:
            return self._send(self._pages.show_error(error, HTTP_SERVER_ERROR))
        except web.HTTPClientError as error:  # the library's: no such path or method
            return self._send(self._pages.show_error(EntryNotFound(error.reason), error.status))
        except ConnectionError:
            raise
        except Exception as error:  # a defect of ours must not cost others the bot
            log.exception("page failed", extra={"action": "pages.failed"})
            reason = f"something went wrong here ({type(error).__name__}); see the log"
            return self._send(self._pages.show_error(BubbotError(reason), HTTP_SERVER_ERROR))

    def _check_origin(self, request: web.Request) -> None:
        """Refuse requests with a foreign host, as after DNS rebinding, and requests of other sites' pages."""
        check_host(request, self._address.section, (self._address.host, *self._address.hosts))
        for origin in request.headers.getall("Origin", []):
            if origin.partition("://")[2] != request.host:
                raise HttpRefused(HTTP_FORBIDDEN, "pages of other sites may not use this one")

    @property
    def _cookie(self) -> str:
        """The name of the cookie: browsers send a cookie to all ports of a host."""
        return f"bubbot_{self._address.section}_{self.port}"

    async def _find(self, token: str) -> Admission | None:
        return await self._admit(token) if 0 < len(token) <= MAX_TOKEN_CHARS and token.isascii() else None

    async def _send_asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._pages.find_asset(request.match_info["name"])
        if asset is None:
            raise EntryNotFound("there is no such file")
        return self._send(asset)

    async def _show(self, request: web.Request) -> web.StreamResponse:
        if TOKEN_PARAMETER in request.query:
            rest = [(name, value) for name, value in request.query.items() if name != TOKEN_PARAMETER]
            target = quote(request.path) + (f"?{urlencode(rest)}" if rest else "")
            return await self._enter(request.query[TOKEN_PARAMETER], target)
        admission = await self._find(request.cookies.get(self._cookie, ""))
        if admission is None:
            if request.headers.get("Sec-Fetch-Site") == "cross-site":
                # A link from another site comes without the cookie, which is strict; asked again from here it is sent.
                return self._bounce(request)
            return self._send(self._pages.ask_for_token(LoginForm(request.path_qs)))
        return self._send(await self._pages.answer(_parse_request(request, admission.viewer)))

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        admission = await self._find(request.cookies.get(self._cookie, ""))
        if admission is None:
            return self._send(self._pages.ask_for_token(LoginForm(request.path_qs)))
        form = {name: value for name, value in (await _read_form(request)).items() if isinstance(value, str)}
        with suspend_deadline(request):  # the command may wait for a turn
            return self._send(
                await self._pages.answer(structs.replace(_parse_request(request, admission.viewer), form=form))
            )

    def _bounce(self, request: web.Request) -> web.Response:
        response = self._send(PageAnswer())
        response.headers["Refresh"] = f"0; url={_local_path(str(request.rel_url))}"
        return response

    async def _show_login(self, request: web.Request) -> web.StreamResponse:
        return self._send(self._pages.ask_for_token(LoginForm(_local_path(request.query.get("next", "/")))))

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        form = await _read_form(request)
        token, target = form.get(TOKEN_PARAMETER, ""), form.get("next", "/")
        if not isinstance(token, str) or not isinstance(target, str):
            raise HttpRefused(HTTP_BAD_REQUEST, "the token is a file: type it into the field")
        return await self._enter(token.strip(), target)

    async def _enter(self, token: str, target: str) -> web.StreamResponse:
        """Set the token as a cookie and redirect to the address without it."""
        target = _local_path(target)
        admission = await self._find(token)
        if admission is None:
            log.warning("wrong token", extra={"action": "pages.refused"})
            return self._send(self._pages.ask_for_token(LoginForm(target, is_wrong=True)))
        response = self._send(PageAnswer(status=HTTP_SEE_OTHER, location=target))
        response.set_cookie(
            self._cookie,
            token,
            max_age=admission.seconds,
            httponly=True,
            samesite="Strict",
            secure=self._address.is_https,
        )
        return response

    async def _log_out(self, _request: web.Request) -> web.StreamResponse:
        response = self._send(PageAnswer(status=HTTP_SEE_OTHER, location="/login"))
        response.del_cookie(self._cookie, httponly=True, samesite="Strict")
        return response

    def _send(self, answer: PageAnswer) -> web.Response:
        charset = "utf-8" if answer.content_type.startswith("text/") else None
        response = web.Response(
            body=answer.body, status=answer.status, content_type=answer.content_type, charset=charset, headers=HEADERS
        )
        response.headers["Content-Security-Policy"] = answer.policy or CONTENT_POLICY
        if answer.location:
            response.headers["Location"] = answer.location
        if answer.filename:
            response.headers["Content-Disposition"] = f'attachment; filename="{answer.filename}"'
        return response


async def _read_form(request: web.Request) -> Mapping[str, object]:
    """Read the fields of a form; files are none of text. Raise `HttpRefused` if the body is not what its type says."""
    try:
        return await request.post()
    except (ValueError, LookupError) as error:  # foreign: its type, its encoding and its parts may be anything
        raise HttpRefused(HTTP_BAD_REQUEST, "the form cannot be read: send it from this page") from error


def _parse_request(request: web.Request, viewer: Viewer) -> PageRequest:
    path = tuple(unquote(part) for part in request.raw_path.partition("?")[0].split("/") if part)
    return PageRequest(path, dict(request.query.items()), viewer)  # of each parameter the last value


def _local_path(target: str) -> str:
    """Return a path on this server; the first page if the target leads elsewhere."""
    parts = urlsplit(target)
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local and not parts.scheme and not parts.netloc and target.isascii() else "/"
