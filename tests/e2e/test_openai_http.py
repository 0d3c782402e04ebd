"""The connections of the direct client: real HTTP, TLS and proxies on loopback."""

from __future__ import annotations

import asyncio
import datetime
import gc
import gzip
import ipaddress
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bubbot.errors import ModelRefused, ModelUnavailable
from bubbot.models.openai.proxies import load_certificates
from bubbot.ports.model import ModelReply, ModelRequest
from bubbot.settings.environment import find_proxy
from tests.e2e.provider_server import Answer, listening, read_request, serving
from tests.e2e.proxy_server import proxying
from tests.e2e.test_openai_direct import HELLO, REQUEST, Plays, answered, asking, chunk


@pytest.fixture(autouse=True)
def _no_proxy_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@dataclass
class KeepsAlive:
    """A server whose connections stay open; `peers` are the client's ends, one a request.

    `warmed` counts the requests that were made ahead of the first call. It answers none before there are `together`.
    """

    peers: list[Any] = field(default_factory=list)
    warmed: int = 0
    together: int = 1
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            assert "authorization" not in request.headers
            self.warmed += 1
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername"))
        if len(self.peers) == self.together:
            self.complete.set()
        await self.complete.wait()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in HELLO if request.method == "POST" else ():
            await response.write(piece)
        return response

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            yield f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


async def test_one_connection_serves_many_calls() -> None:
    server = KeepsAlive()
    async with server.serving() as address, asking(address) as model:
        for _ in range(3):
            await answered(model)
    assert len(server.peers) == 3
    assert len(set(server.peers)) == 1


async def test_an_idle_connection_that_the_server_closed_costs_no_failed_call() -> None:
    closed = asyncio.Event()
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One answer a connection, which is closed without a word."""
        nonlocal served
        await read_request(reader)
        served += 1
        body = b"".join(HELLO)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with listening(serve) as address, asking(address) as model:
        for _ in range(3):
            closed.clear()
            assert (await answered(model)).text == "hello"  # without a retry
            await closed.wait()
    assert served == 3


def stream(*pieces: bytes) -> bytes:
    """A response that keeps its connection open."""
    body = b"".join(pieces)
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def test_the_words_of_a_long_answer_are_read_together() -> None:
    """The first pieces are shown as they come; after them the client looks for more a few times a second."""
    count = 200

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        pieces = [chunk({"content": f"{number} "}) for number in range(count)]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in (*pieces, *HELLO[1:]):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            for _ in range(10):  # rounds of the event loop, in which a client that looks finds this piece alone
                await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        writer.close()

    async with listening(serve) as address, asking(address) as model:
        *texts, reply = [event async for event in model.stream(REQUEST)]
    assert isinstance(reply, ModelReply)
    assert reply.text == "".join(f"{number} " for number in range(count))
    assert 8 <= len(texts) < count // 2


@dataclass
class Replays:
    """Answers one request after the other with these bytes; it hangs up after bytes that are no whole response.

    `connections` has the number of requests on each.
    """

    answers: list[bytes]
    connections: list[int] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(self.connections)
        self.connections.append(0)
        answer = stream(*HELLO)
        try:
            while answer == stream(*HELLO):
                await read_request(reader)
                self.connections[place] += 1
                answer = self.answers.pop(0)
                writer.write(answer)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass  # the client has closed its connections
        finally:
            writer.close()


@pytest.mark.parametrize("answers_first", [True, False])
async def test_a_request_is_sent_again_only_on_a_connection_that_was_used_before(*, answers_first: bool) -> None:
    """The server takes a request and hangs up, as one does that closes an idle connection at that moment."""
    server = Replays([stream(*HELLO)] * answers_first + [b"", stream(*HELLO)])
    async with listening(server.serve) as address, asking(address) as model:
        if answers_first:
            assert [(await answered(model)).text for _ in range(2)] == ["hello"] * 2  # without a retry
            assert server.connections == [2, 1]
        else:
            with pytest.raises(ModelUnavailable, match="the connection broke"):
                await answered(model)
            assert server.connections == [1]


async def test_a_server_that_hangs_up_on_every_request_is_asked_twice() -> None:
    server = Replays([stream(*HELLO), b"", b"", stream(*HELLO)])
    async with listening(server.serve) as address, asking(address) as model:
        await answered(model)
        with pytest.raises(ModelUnavailable, match="the connection broke"):
            await answered(model)
    assert server.connections == [2, 1]


async def test_a_cut_in_mid_answer_is_not_asked_again_on_a_used_connection() -> None:
    whole = stream(*HELLO)
    server = Replays([whole, whole[: whole.index(b"hello") + 20], whole])
    async with listening(server.serve) as address, asking(address) as model:
        await answered(model)
        with pytest.raises(ModelUnavailable, match="broke off before its answer"):
            await answered(model)
    assert server.connections == [2]


async def test_many_answers_arrive_at_once() -> None:
    """More than an HTTP client of Python takes at once by itself; none waits for another."""
    server = KeepsAlive(together=110)
    async with server.serving() as address, asking(address) as model:
        replies = await asyncio.gather(*(answered(model) for _ in range(server.together)))
    assert [reply.text for reply in replies] == ["hello"] * server.together


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for loopback that signs itself, as a file and as a server's context."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file, secret = folder / "cert.pem", folder / "key.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    return file, context


class TestConnecting:
    @pytest.mark.parametrize(
        ("address", "told"),
        [
            ("http://localhost:1/v1", "nothing listens at its address"),  # at neither of its two
            (f"http://{'a' * 80}.example/v1", "no connection"),
        ],
    )
    async def test_a_server_that_is_not_there_is_told_in_our_words(self, address: str, told: str) -> None:
        async with asking(address) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) == f"openai/test could not be reached or failed: {told}"

    async def test_a_server_that_does_not_encrypt_is_told_in_our_words(self) -> None:
        async with KeepsAlive().serving() as address, asking(address.replace("http:", "https:")) as model:
            with pytest.raises(ModelUnavailable, match="no encrypted connection could be agreed on"):
                await answered(model)

    async def test_a_connection_that_takes_too_long_is_told_in_our_words(self) -> None:
        """The server takes the connection, and says nothing when it is to be encrypted."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.read(1000):
                    pass
            finally:
                writer.close()

        async with (
            listening(serve) as address,
            asking(address.replace("http:", "https:"), connect_timeout=0.2) as model,
        ):
            with pytest.raises(ModelUnavailable, match=r"no connection within 0\.2 seconds$"):
                await answered(model)


class TestBodies:
    async def test_a_request_of_megabytes_arrives(self) -> None:
        """Images are in requests; the bodies of the tests are looked at by the server, as JSON."""
        text = "x" * 3_000_000
        request = ModelRequest("", ({"role": "user", "content": text},))
        async with serving(Plays((Answer(HELLO),))) as server, asking(server.address) as model:
            events = [event async for event in model.stream(request)]
        assert isinstance(events[-1], ModelReply)
        assert server.requests[0].body["messages"][-1]["content"] == text

    async def test_a_long_header_changes_nothing(self) -> None:
        said = Answer(HELLO, headers=(("x-policy", "p" * 20_000),))
        async with serving(Plays((said,))) as server, asking(server.address) as model:
            assert (await answered(model)).text == "hello"

    @pytest.mark.parametrize(
        "said",
        [
            b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
            b"SSH-2.0-server\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\nnot gzip.",
            b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n" + HELLO[0],
            stream(gzip.compress(b"".join(HELLO))[:40]).replace(b"\r\n", b"\r\ncontent-encoding: gzip\r\n", 1),
        ],
    )
    async def test_what_is_not_http_is_told_in_our_words(self, said: bytes) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(said)
            await writer.drain()
            writer.close()

        async with listening(serve) as address, asking(address) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) in {
            "openai/test could not be reached or failed: the connection broke",
            "openai/test broke off before its answer",
            "openai/test broke off in the middle of its answer",
        }

    async def test_a_transcription_that_is_too_long_is_not_read_to_its_end(self) -> None:
        sent = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"text": "')
            try:
                while sent < 134_217_728:
                    writer.write(b"x" * 2**20)
                    await writer.drain()
                    sent += 2**20
            finally:
                writer.close()

        async with listening(serve) as address, asking(address) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await model.transcribe(b"sound", "a.ogg", "audio/ogg")
        assert str(caught.value) == "openai/test sent something that is not a transcription"
        assert sent < 67_108_864

    async def test_credentials_of_the_address_go_into_their_header(self) -> None:
        async with serving(Plays((Answer(HELLO),))) as server:
            address = server.address.replace("http://", "http://m%C3%A9:%E2%82%AC%40@")
            async with asking(address, "hosted_vllm/test", api_key=None) as model:
                await answered(model)
        assert server.requests[0].headers["authorization"] == "Basic " + b64encode("mé:€@".encode()).decode()


class TestCertificatesAndProxies:
    async def test_a_certificate_of_the_environment_is_trusted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, context = certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        server = KeepsAlive()
        async with server.serving(context) as address, asking(address) as model:
            await model.connect()
            assert (await answered(model)).text == "hello"
        assert (server.warmed, len(server.peers), len(set(server.peers))) == (1, 2, 1)

    async def test_another_is_not_and_that_is_told_in_our_words(self, tmp_path: Path) -> None:
        _, context = certificate(tmp_path)
        async with KeepsAlive().serving(context) as address, asking(address) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) == "openai/test could not be reached or failed: its certificate is not trusted"

    async def test_certificates_may_stand_in_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file, context = certificate(tmp_path)
        folder = tmp_path / "certificates"
        folder.mkdir()
        made = await asyncio.create_subprocess_exec(
            *("openssl", "x509", "-noout", "-hash", "-in", str(file)), stdout=asyncio.subprocess.PIPE
        )
        (folder / f"{(await made.communicate())[0].decode().strip()}.0").write_bytes(file.read_bytes())
        monkeypatch.setenv("SSL_CERT_DIR", str(folder))
        async with KeepsAlive().serving(context) as address, asking(address) as model:
            assert (await answered(model)).text == "hello"

    def test_a_file_goes_before_a_folder_and_both_before_those_of_certifi(self, tmp_path: Path) -> None:
        file, _ = certificate(tmp_path)
        folder = tmp_path / "folder"
        folder.mkdir()
        both = load_certificates({"SSL_CERT_FILE": str(file), "SSL_CERT_DIR": str(folder)})
        assert both.cert_store_stats()["x509"] == 1
        assert load_certificates({"SSL_CERT_DIR": str(folder)}).cert_store_stats()["x509"] == 0
        assert load_certificates({}).cert_store_stats()["x509"] > 100

    async def test_certificates_that_cannot_be_read_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
        with pytest.raises(ModelRefused, match=r"^The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read$"):
            async with asking("https://127.0.0.1:9/v1"):
                pass


class TestProxies:
    async def test_a_proxy_of_the_environment_is_used_and_exceptions_are_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with serving(Plays((Answer(HELLO),))) as proxy, serving(Plays((Answer(HELLO),))) as near:
            monkeypatch.setenv("HTTP_PROXY", proxy.address)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            async with asking("http://provider.invalid/v1") as model:
                assert (await answered(model)).text == "hello"
            async with asking(near.address) as model:
                assert (await answered(model)).text == "hello"
        assert [asked.path for asked in proxy.requests] == ["http://provider.invalid/v1/chat/completions"]
        assert len(near.requests) == 1

    @pytest.mark.parametrize("is_target_encrypted", [False, True])
    @pytest.mark.parametrize("proxy", ["http", "https", "socks5", "socks5h"])
    async def test_every_kind_of_proxy_carries_both_kinds_of_address(
        self, proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_target_encrypted: bool
    ) -> None:
        file, context = certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        server = KeepsAlive()
        async with proxying(context if proxy == "https" else None) as between:
            monkeypatch.setenv("ALL_PROXY", f"{proxy}://127.0.0.1:{between.port}")
            async with server.serving(context if is_target_encrypted else None) as address, asking(address) as model:
                await model.connect()
                assert [(await answered(model)).text for _ in range(2)] == ["hello"] * 2
        host = address.split("/")[2]
        if proxy.startswith("socks"):
            assert between.targets == [f"SOCKS {host}"]
        elif is_target_encrypted:
            assert between.targets == [f"CONNECT {host}"]
        else:
            assert between.targets == [f"{address}/chat/completions"]  # the second request on the same connection
        assert (server.warmed, len(set(server.peers))) == (int(is_target_encrypted), 1)

    @pytest.mark.parametrize("is_target_encrypted", [False, True])
    async def test_credentials_of_a_proxy_go_to_it_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_target_encrypted: bool
    ) -> None:
        file, context = certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        async with proxying() as between, KeepsAlive().serving(context if is_target_encrypted else None) as address:
            monkeypatch.setenv("ALL_PROXY", f"http://me:pa%24s@127.0.0.1:{between.port}")
            async with asking(address) as model:
                await answered(model)
        assert between.credentials == ["Proxy-Authorization: Basic " + b64encode(b"me:pa$s").decode()]

    # httpx leaves the connection to a SOCKS proxy that refused to the garbage collector.
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("proxy", ["http", "socks5"])
    async def test_a_proxy_that_refuses_is_told_in_our_words(
        self, proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, context = certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        async with proxying(refuses=True) as between, KeepsAlive().serving(context) as address:
            monkeypatch.setenv("HTTPS_PROXY", f"{proxy}://127.0.0.1:{between.port}")
            async with asking(address) as model:
                with pytest.raises(ModelUnavailable) as caught:
                    await answered(model)
        assert str(caught.value) == "openai/test could not be reached or failed: the proxy refused the connection"
        del caught
        gc.collect()

    @pytest.mark.parametrize(
        ("proxy", "told"), [("http", "the proxy cannot be reached"), ("socks5", "nothing listens at its address")]
    )
    async def test_a_proxy_that_is_not_there_is_told_in_our_words(
        self, proxy: str, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ALL_PROXY", f"{proxy}://127.0.0.1:9")
        async with asking("http://provider.invalid/v1") as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) == f"openai/test could not be reached or failed: {told}"

    async def test_a_cut_behind_a_socks_proxy_is_told_in_our_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with proxying() as between, serving(Plays((Answer(HELLO[:1], cut=True),))) as server:
            monkeypatch.setenv("ALL_PROXY", f"socks5://127.0.0.1:{between.port}")
            async with asking(server.address) as model:
                with pytest.raises(ModelUnavailable) as caught:
                    await answered(model)
        assert str(caught.value) == "openai/test broke off in the middle of its answer"

    async def test_a_proxy_of_an_unknown_kind_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "gopher://me:secret@127.0.0.1:9")
        with pytest.raises(ModelRefused, match="only http, https, socks5 and socks5h are known") as caught:
            async with asking("http://provider.invalid/v1"):
                pass
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("no_proxy", "is_proxied"),
        [
            ("", True), ("*", False), ("h.example", False), (".example", False), ("other,h.example:8080", False),
            ("h.example:81", True), ("g.example", True), ("example.h", True),
        ],
    )  # fmt: skip
    def test_exceptions_are_hosts_domains_and_ports(
        self, no_proxy: str, monkeypatch: pytest.MonkeyPatch, *, is_proxied: bool
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        assert find_proxy("http://h.example:8080/v1") == ("http://proxy:3128" if is_proxied else None)
        assert find_proxy("https://h.example/v1") is None

    def test_an_address_of_numbers_may_be_an_exception(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALL_PROXY", "http://proxy:3128")
        monkeypatch.setenv("NO_PROXY", "10.0.0.1,::1")
        found = [find_proxy(address) for address in ("http://10.0.0.1/v1", "http://[::1]:80/v1", "http://10.0.0.2/v1")]
        assert found == [None, None, "http://proxy:3128"]
