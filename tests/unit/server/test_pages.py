"""Pages over HTTP on loopback: who gets in, what a page may do, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from msgspec import structs

from bubbot.errors import AccessError, BubbotError, EntryNotFound
from bubbot.ports.pages import LoginForm, PageAnswer, PageRequest
from bubbot.server.pages import PAGE_LIMITS, Admission, PagesAddress, serve_pages
from bubbot.tape.boundary import OWNER

TOKEN = "0123456789abcdef"


class KeptPages:
    """Pages that keep what they are asked."""

    def __init__(self) -> None:
        self.requests: list[PageRequest] = []
        self.forms: list[LoginForm] = []

    def find_asset(self, name: str) -> PageAnswer | None:
        """See `Pages`."""
        return PageAnswer(b"a {}", "text/css") if name == "page.css" else None

    def ask_for_token(self, form: LoginForm) -> PageAnswer:
        """See `Pages`."""
        self.forms.append(form)
        return PageAnswer(b"token?", status=401)

    def show_error(self, error: BubbotError, status: int) -> PageAnswer:
        """See `Pages`."""
        return PageAnswer(str(error).encode(), status=status)

    async def answer(self, request: PageRequest) -> PageAnswer:
        """See `Pages`."""
        self.requests.append(request)
        match request.path:
            case ("hidden",):
                raise AccessError("not yours")
            case ("missing",):
                raise EntryNotFound("not there")
            case ("broken",):
                raise ZeroDivisionError("secret words")
        return PageAnswer(b"page")


@asynccontextmanager
async def served(pages: KeptPages | None = None, *, is_https: bool = False) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser without redirects, at a server that is also called `bot.example`."""

    async def admit(token: str) -> Admission | None:
        return Admission(OWNER, 60) if token == TOKEN else None

    address = PagesAddress("trace", "127.0.0.1", 0, ["bot.example"], is_https)
    async with (
        serve_pages(pages or KeptPages(), address, admit) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", cookie_jar=aiohttp.CookieJar(unsafe=True)) as client,
    ):
        yield client


async def test_nothing_is_shown_without_a_token() -> None:
    pages = KeptPages()
    async with served(pages) as client:
        for path in ("/", "/session/x", "/%2e%2e/etc", "/logout"):
            async with client.get(path, allow_redirects=False) as answer:
                assert answer.status in (401, 405)
                assert b"page" not in await answer.read()
    assert pages.requests == []


async def test_the_token_of_an_address_becomes_a_cookie_that_no_script_reads() -> None:
    pages = KeptPages()
    async with served(pages) as client:
        async with client.get(f"/a%20b?x=1&token={TOKEN}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/a%20b?x=1")
            cookie = answer.headers["Set-Cookie"]
            assert {"HttpOnly", "SameSite=Strict", "Max-Age=60"} <= {part.strip() for part in cookie.split(";")}
            assert "Secure" not in cookie
        async with client.get("/a%20b/c%2Fd?x=1&x=2") as answer:
            assert await answer.read() == b"page"
    assert (pages.requests[0].path, pages.requests[0].query) == (("a b", "c/d"), {"x": "2"})


async def test_a_cookie_behind_https_is_sent_over_nothing_else() -> None:
    async with served(is_https=True) as client, client.get(f"/?token={TOKEN}", allow_redirects=False) as answer:
        assert "Secure" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("token", ["", "0123456789abcdeg", TOKEN[:-1], "ä", "x" * 501])
async def test_a_wrong_token_gets_no_cookie(token: str) -> None:
    pages = KeptPages()
    async with served(pages) as client:
        for answer in (
            await client.get("/", params={"token": token}, allow_redirects=False),
            await client.post("/login", data={"token": token, "next": "/"}, allow_redirects=False),
        ):
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
    assert [form.is_wrong for form in pages.forms] == [True, True]


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/session/a?before=3", "/session/a?before=3"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
    ],
)
async def test_a_login_leads_to_a_page_of_this_server_alone(target: str, location: str) -> None:
    async with (
        served() as client,
        client.post("/login", data={"token": f" {TOKEN} ", "next": target}, allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (303, location)


async def test_logging_out_drops_the_cookie() -> None:
    async with served() as client:
        await client.get("/", params={"token": TOKEN})
        async with client.post("/logout", allow_redirects=False) as answer:
            assert answer.status == 303
        async with client.get("/") as answer:
            assert answer.status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("BOT.example:443", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
async def test_a_foreign_name_is_refused_even_with_the_token(host: str, status: int) -> None:
    async with served() as client:
        await client.get("/", params={"token": TOKEN})
        cookies = {cookie.key: cookie.value for cookie in client.cookie_jar}
        async with client.get("/", headers={"Host": host}, cookies=cookies) as answer:
            assert answer.status == status


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
@pytest.mark.parametrize("path", ["/login", "/logout"])
async def test_pages_of_other_sites_change_nothing(path: str, origin: str) -> None:
    async with served() as client:
        await client.get("/", params={"token": TOKEN})
        data = {"token": TOKEN, "next": "/"}
        async with client.post(path, data=data, headers={"Origin": origin}, allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_a_link_from_another_site_is_asked_again_from_here_once() -> None:
    """A strict cookie does not come along with such a link; the page's own request brings it."""
    pages = KeptPages()
    async with served(pages) as client:
        async with client.get("/turn/3?x=%22", headers={"Sec-Fetch-Site": "cross-site"}) as answer:
            assert answer.headers["Refresh"] == "0; url=/turn/3?x=%22"
            other = answer.url.with_path("//evil.example/")
        async with client.get(other, headers={"Sec-Fetch-Site": "cross-site"}) as answer:
            assert answer.headers["Refresh"] == "0; url=/"
        async with client.get("/turn/3", headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 401


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/", 200, "page"),
        ("/hidden", 403, "not yours"),
        ("/missing", 404, "not there"),
        ("/broken", 500, "ZeroDivisionError"),
        ("/static/page.css", 200, "a {}"),
        ("/static/other", 404, "no such file"),
    ],
)
async def test_every_answer_lets_nothing_run_and_nobody_keep_it(path: str, status: int, words: str) -> None:
    async with served() as client:
        await client.get("/", params={"token": TOKEN})
        async with client.get(path) as answer:
            text = await answer.text()
            assert (answer.status, words in text, "secret words" in text) == (status, True, False)
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            headers = ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "X-Frame-Options")
            assert [answer.headers[name] for name in headers] == ["nosniff", "same-origin", "no-store", "DENY"]


async def test_a_form_comes_with_its_viewer_and_its_last_values_and_files_are_left_out() -> None:
    pages = KeptPages()
    async with served(pages) as client:
        await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        fields = aiohttp.FormData([("score", "1"), ("score", "2")])
        fields.add_field("file", b"x", filename="x.txt")
        async with client.post("/session/x?p.a=b", data=fields) as answer:
            assert answer.status == 200
        client.cookie_jar.clear()
        async with client.post("/session/x", data={"score": "3"}) as answer:
            assert answer.status == 401
    (sent,) = pages.requests
    assert (sent.path, sent.query, sent.form) == (("session", "x"), {"p.a": "b"}, {"score": "2"})


async def test_nothing_but_forms_is_taken_and_none_that_is_long() -> None:
    pages = KeptPages()
    async with served(pages) as client:
        await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        for method in ("PUT", "DELETE", "PATCH"):
            async with client.request(method, "/session/x", data=b"x") as answer:
                assert answer.status == 405
        for path in ("/login", "/session/x"):
            async with client.post(path, data={"token": "x" * 70_000}) as answer:
                assert answer.status == 413
    assert pages.requests == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--b\r\n\r\nx"),
        ("application/x-www-form-urlencoded; charset=nope", b"score=1"),
        ("application/x-www-form-urlencoded; charset=utf-16", b"score=1"),
    ],
)
@pytest.mark.parametrize("path", ["/login", "/session/x"])
async def test_a_form_that_cannot_be_read_is_no_defect_of_ours(path: str, kind: str, body: bytes) -> None:
    pages = KeptPages()
    async with served(pages) as client:
        await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        async with client.post(path, data=body, headers={"Content-Type": kind}) as answer:
            assert (answer.status, await answer.read()) == (400, b"the form cannot be read: send it from this page")


async def test_a_form_may_wait_for_its_command_longer_than_for_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.server.pages.PAGE_LIMITS", structs.replace(PAGE_LIMITS, request_seconds=0.1))
    begun, goes_on = asyncio.Event(), asyncio.Event()

    class SlowPages(KeptPages):
        async def answer(self, request: PageRequest) -> PageAnswer:
            begun.set()
            await goes_on.wait()
            return await super().answer(request)

    async with served(SlowPages()) as client:
        await client.get("/", params={"token": TOKEN}, allow_redirects=False)
        async with client.get("/login") as answer:
            host, port = answer.url.host, answer.url.port
        sent = asyncio.create_task(client.post("/session/x", data={"score": "1"}))
        await begun.wait()
        reader, writer = await asyncio.open_connection(host, port)
        assert await reader.read() == b""  # what began later is past its deadline
        writer.close()
        goes_on.set()
        async with await sent as answer:
            assert answer.status == 200
