"""The guarded client against real servers on loopback addresses: whom it reaches, and how much it takes."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
import threading
import tracemalloc
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn

import pytest
from aiohttp import web

from bubbot.features.web.address import find_site, is_public, is_public_text
from bubbot.features.web.client import WebClient, WebError, make_decoder, parse_address
from tests.e2e.test_openai_http import certificate
from tests.web_servers import (
    ELSEWHERE,
    HERE,
    FakeClock,
    Names,
    client,
    gzip_bomb,
    raw_server,
    serving,
    zlib_bomb,
)


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello", content_type="text/plain", charset="utf-8")


async def get(url: str, names: Names | None = None, **limits: object) -> str:
    return (await client(names, **limits).get(url)).body.decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://a.example/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("gopher://a.example/", "https://"),
        ("javascript:alert(1)", "https://"),
        ("data:text/plain,x", "https://"),
        ("//a.example/", "https://"),
        ("a.example", "https://"),
        ("", "https://"),
        ("http://", "name of a host"),
        ("http:///x", "name of a host"),
        ("http://user:pw@a.example/", "password"),
        ("http://user@a.example/", "password"),
        ("http://@a.example/", "password"),
        ("http://a.example:22/", "port"),
        ("http://a.example:6379/", "port"),
        ("http://a.example:0/", "port"),
        ("http://a.example:99999/", "cannot be read"),
        ("http://a.example:x/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://a b.example/", "spaces"),
        ("http://a.example/\r\nX: y", "control"),
        ("http://a.example\\@b.example/", "backslashes"),
        ("http://a..example/", "name of a host"),
        ("http://-a.example/", "name of a host"),
        ("http://a%2eexample/", "name of a host"),
        ("http://[fe80::1%25eth0]/", "name of a host"),
        ("http://a.example/" + "x" * 2000, "characters"),
    ],
)
def test_an_address_that_is_not_of_the_web_is_refused_before_anything_is_sent(text: str, reason: str) -> None:
    with pytest.raises(WebError, match=reason):
        parse_address(text)


def test_an_address_is_asked_without_its_fragment_and_with_its_host_in_ascii() -> None:
    address = parse_address("https://Bücher.Example.:443/a?b=1#c")
    assert (address.url, address.host) == ("https://xn--bcher-kva.example:443/a?b=1", "xn--bcher-kva.example")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
        "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]", "[fe80::1]", "[fc00::1]", "[ff02::1]", "10.0.0.1", "192.168.0.1", "169.254.169.254", "168.63.129.16",
        "localhost", "LOCALHOST.", "127.0.0.1.", "①②⑦.0.0.1",
    ],
)  # fmt: skip
async def test_no_form_of_an_address_of_this_machine_is_reached(host: str) -> None:
    """Against a server that listens on every address of this machine, with the rules and the resolver of a real bot."""
    async with serving(hello, host="0.0.0.0") as site:
        real = WebClient(timeout=5.0, ports=(), clock=FakeClock())
        with pytest.raises(WebError):
            await real.get(f"http://{host}:{site.port}/")
        assert site.requests == []


async def test_the_same_server_is_reached_without_the_guard() -> None:
    """The test above is worth something: every request there would arrive if any address were allowed."""
    async with serving(hello, host="0.0.0.0") as site:
        unguarded = WebClient(timeout=5.0, ports=(), clock=FakeClock(), is_allowed=lambda _: True)
        hosts = ("127.0.0.1", "localhost", "127.0.0.1.", "[::ffff:127.0.0.1]", "①②⑦.0.0.1")
        for host in hosts:
            assert (await unguarded.get(f"http://{host}:{site.port}/")).body == b"hello", host


async def test_name_servers_that_do_not_answer_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(*_: object, **__: object) -> NoReturn:
        released.wait(30)
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    real = WebClient(timeout=0.05, clock=FakeClock())
    try:
        asked = [real.get(f"http://a{number}.example/") for number in range(40)]
        assert {str(error) for error in await asyncio.gather(*asked, return_exceptions=True)} == {
            "no whole answer within 0.05 seconds"
        }
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "files, say") == "files, say"
    finally:
        released.set()


async def test_a_name_with_a_private_address_is_not_reached() -> None:
    async with serving(hello, host=ELSEWHERE) as site:
        with pytest.raises(WebError, match="not a public address"):
            await get(site.url(), Names({"site.test": [[ELSEWHERE]]}))
        assert site.requests == []


async def test_of_the_addresses_of_a_name_only_public_ones_are_tried() -> None:
    async with serving(hello) as site:
        assert await get(site.url(), Names({"site.test": [[ELSEWHERE, "::1", HERE]]})) == "hello"


async def test_a_name_that_resolves_to_a_private_address_the_second_time_is_not_reached_then() -> None:
    async def move(request: web.Request) -> web.Response:
        raise web.HTTPFound("/again")

    names = Names({"site.test": [[HERE], [ELSEWHERE]]})
    async with serving(move) as site, serving(hello, host=ELSEWHERE, port=site.port) as private:
        with pytest.raises(WebError, match="not a public address"):
            await get(site.url(), names)
        assert (len(site.requests), private.requests) == (1, [])
    assert names.asked == ["site.test", "site.test"]


async def test_the_socket_refuses_what_the_resolver_let_through() -> None:
    """The last check sees the address itself: a resolver that lies, or answers late, gets no connection."""
    answers = iter([True, False])
    async with serving(hello) as site:
        lying = client(is_allowed=lambda _: next(answers))
        with pytest.raises(WebError, match="not a public address"):
            await lying.get(site.url())
        assert site.requests == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://127.0.0.2:{port}/", "not a public address"),
        ("http://[::1]:{port}/", "not a public address"),
        ("//127.0.0.2:{port}/", "not a public address"),
        ("http://169.254.169.254/latest/meta-data/", "not a public address"),
        ("file:///etc/passwd", "https://"),
        ("gopher://127.0.0.1:6379/_x", "https://"),
        ("http://user:pw@site.test/", "password"),
        ("http://a b/", "spaces"),
    ],
)
async def test_a_redirect_meets_the_same_checks(target: str, reason: str) -> None:
    async def move(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": target.format(port=site.port)})

    async with serving(move) as site, serving(hello, host=ELSEWHERE, port=site.port) as private:
        with pytest.raises(WebError, match=reason):
            await get(site.url())
        assert (len(site.requests), private.requests) == (1, [])


async def test_a_redirect_to_another_host_is_told_and_not_followed() -> None:
    """The yes for an address is one for its host; where that host sends us may carry what the address carried."""

    async def move(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://other.test:{site.port}/there?secret=1")

    async with serving(move) as site:
        response = await client().get(site.url())
        assert (response.status, response.redirect) == (302, f"http://other.test:{site.port}/there?secret=1")
        assert [request.host for request in site.requests] == [f"site.test:{site.port}"]


async def test_redirects_within_a_registrable_domain_are_followed_so_far() -> None:
    async def move(request: web.Request) -> web.Response:
        left = int(request.path.strip("/"))
        if not left:
            return await hello(request)
        raise web.HTTPFound(f"http://r{left % 3}.site.test:{site.port}/{left - 1}")

    async with serving(move) as site:
        response = await client(max_redirects=3).get(site.url("/3"))
        assert (response.body, response.address) == (b"hello", f"http://r1.site.test:{site.port}/0")
        with pytest.raises(WebError, match="more than 3 redirects"):
            await get(site.url("/4"), max_redirects=3)
        site.requests.clear()
        with pytest.raises(WebError, match="more than 3 redirects"):
            await get(site.url("/4000"), max_redirects=3)
        assert len(site.requests) == 4


async def test_a_request_with_a_key_follows_no_redirect() -> None:
    async def move(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/again")

    async with serving(move) as site:
        with_key = await client().get(site.url(), headers={"X-Key": "k"})
        posted = await client().post(site.url(), json={"q": "x"}, headers={"X-Key": "k"})
        assert (with_key.status, posted.status, len(site.requests)) == (307, 307, 2)


async def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(hello) as site, serving(hello) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{HERE}:{proxy.port}")
        assert await get(site.url()) == "hello"
        assert proxy.requests == []
        (request,) = site.requests
        assert not {"Cookie", "Authorization", "Proxy-Authorization", "Referer"} & request.headers.keys()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip_bomb(50_000_000)),
        ("deflate", zlib_bomb(50_000_000)),
        ("", bytes(200_001)),
    ],
    ids=["gzip", "deflate", "plain"],
)
async def test_a_body_that_is_too_large_is_refused_before_it_takes_memory(encoding: str, body: bytes) -> None:
    async def send(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": encoding} if encoding else {})

    async with serving(send) as site:
        with pytest.raises(WebError, match="more than 200 kB"):
            await get(site.url(), max_bytes=200_000)


async def test_a_bomb_takes_no_memory() -> None:
    body = gzip_bomb(40_000_000)

    async def send(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with serving(send) as site:
        tracemalloc.start()
        try:
            with pytest.raises(WebError, match="more than 200 kB"):
                await get(site.url(), max_bytes=200_000)  # more than are sent
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
        finally:
            tracemalloc.stop()


def test_a_piece_is_decompressed_to_the_limit_and_no_further() -> None:
    assert len(make_decoder("gzip")(gzip_bomb(50_000_000), 1001)) == 1001


async def test_a_compressed_page_is_read() -> None:
    async def send(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip, deflate"
        return web.Response(body=gzip.compress(b"hello" * 100), headers={"Content-Encoding": "gzip"})

    async with serving(send) as site:
        assert await get(site.url()) == "hello" * 100


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nxx", "not asked for"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nno gzip", "cannot be decompressed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "ended early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\nabc", "more than 5.0 MB"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\nabc", "headers are too long"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"", "closed the connection"),
    ],
    ids=["brotli", "no-gzip", "short", "declared", "headers", "ssh", "nothing"],
)
async def test_an_answer_that_cannot_be_used_is_told_by_its_reason(head: bytes, reason: str) -> None:
    async with raw_server(head) as site:
        with pytest.raises(WebError, match=reason):
            await get(site.url())


async def test_a_body_without_an_end_is_refused() -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\n\r\n", endless=bytes(65_536)) as site:
        with pytest.raises(WebError, match=r"more than 1\.0 MB"):
            await get(site.url(), max_bytes=1_000_000)


async def test_a_body_that_does_not_go_on_is_given_up() -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", stays_open=True) as site:
        with pytest.raises(WebError, match=r"within 0\.3 seconds"):
            await get(site.url(), timeout=0.3)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async with raw_server(stays_open=True) as site:
        with pytest.raises(WebError, match=r"within 0\.3 seconds"):
            await get(site.url(), timeout=0.3)


async def test_a_host_is_asked_so_many_times_within_a_minute() -> None:
    clock = FakeClock()
    async with serving(hello) as site:
        one = client(clock=clock, requests_per_minute=3)
        for _ in range(3):
            await one.get(site.url())
            clock.now += 10
        with pytest.raises(WebError, match=r"3 times within a minute; ask again in 30 seconds"):
            await one.get(site.url())
        with pytest.raises(WebError, match=r"site\.test was asked 3 times"):
            await one.get(site.url(host="a.b.site.test"))
        assert (await one.get(site.url(host="other.test"))).body == b"hello"
        clock.now += 30
        assert (await one.get(site.url())).body == b"hello"
        assert len(site.requests) == 5


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("a.b.example.co.uk", "example.co.uk"),
        ("a.somebody.github.io", "somebody.github.io"),
        ("a.b.evil.test", "evil.test"),
        ("evil.test", "evil.test"),
        ("localhost", "localhost"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("a.xn--fiq.xn--fiqs8s", "xn--fiq.xn--fiqs8s"),
        ("co.uk", "co.uk"),
    ],
)
def test_the_registrable_domain_of_a_host(host: str, site: str) -> None:
    assert find_site(host) == site


def test_without_its_package_it_is_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tld", None)
    assert [find_site(host) for host in ("www.a.example.org", "b.example.org")] == ["a.example.org", "b.example.org"]


async def test_an_unknown_host_is_told() -> None:
    with pytest.raises(WebError, match="no such host"):
        await get("http://site.test/", Names({"site.test": [[]]}))


async def test_a_caller_that_is_cancelled_leaves_no_connection() -> None:
    async with raw_server(stays_open=True) as site:
        task = asyncio.create_task(get(site.url()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_the_rules_of_a_real_bot_are_those_of_public_addresses() -> None:
    assert is_public_text("8.8.8.8")
    assert is_public(ip_address("8.8.8.8"))
    assert not is_public_text("127.0.0.1")


async def test_an_encrypted_page_is_read_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, context = certificate(tmp_path)
    application = web.Application()
    application.router.add_get("/", hello)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HERE, 0, ssl_context=context)
        await site.start()
        url = f"https://{HERE}:{runner.addresses[0][1]}/"

        def ask() -> WebClient:
            return WebClient(timeout=5.0, ports=(), clock=FakeClock(), is_allowed=lambda _: True)

        with pytest.raises(WebError, match="no certificate that is trusted"):
            await ask().get(url)
        monkeypatch.setattr("certifi.where", lambda: str(file))
        assert (await ask().get(url)).body == b"hello"
    finally:
        await runner.cleanup()
