"""Logins: a person gives one at a terminal; the running bot uses and refreshes it, and asks nobody."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx2
import pytest

from bubbot.features.mcp.child import oauth
from bubbot.features.mcp.child.oauth import ClientIdentity, format_client_document, login, use_login
from bubbot.features.mcp.child.values import McpFailed, ServerPlace
from tests.mcp.login_server import LoginServer, Person, login_server
from tests.mcp.places import WAIT, call, connected
from tests.mcp.raw_http import RawRequest, serving

DISCOVERY = {"resource", "issuer", "register", "authorize"}


@pytest.fixture
async def server() -> AsyncIterator[LoginServer]:
    async with login_server() as running:
        yield running


def place_of(server: LoginServer, folder: Path) -> ServerPlace:
    return ServerPlace("x", url=server.url, tokens_file=str(folder / "x.json"))


async def log_in(place: ServerPlace, person: Person | None = None, **more: Any) -> Person:
    person = person or Person()
    await login(place, show_url=person.see, timeout=WAIT, **more)
    return person


async def use(place: ServerPlace) -> str:
    async with connected(place) as connection:
        return (await call(connection)).text


def read(place: ServerPlace) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(place.tokens_file).read_text())
    return content


def read_mode(place: ServerPlace) -> int:
    return stat.S_IMODE(Path(place.tokens_file).stat().st_mode)


async def test_without_a_login_a_call_says_so_and_nothing_else_is_asked(server: LoginServer, tmp_path: Path) -> None:
    with pytest.raises(McpFailed, match="it wants a login") as failure:
        await use(place_of(server, tmp_path))

    assert failure.value.needs_login
    assert not DISCOVERY & set(server.asked)


async def test_after_a_login_calls_work_in_every_connection(server: LoginServer, tmp_path: Path) -> None:
    place = place_of(server, tmp_path)
    person = await log_in(place)
    asked = len(server.asked)

    assert (await use(place), await use(place)) == ("done with read write",) * 2
    assert person.pages == ["The login has reached bubbot. You can close this page.\n"]
    assert not DISCOVERY & set(server.asked[asked:])
    assert read_mode(place) == 0o600
    (client,) = server.clients.values()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", client["redirect_uris"][0])
    assert server.token_requests[0]["resource"] == server.url


async def test_a_browser_on_another_machine_is_answered_by_pasting_where_it_ended(
    server: LoginServer, tmp_path: Path
) -> None:
    place, person = place_of(server, tmp_path), Person(is_elsewhere=True)
    await log_in(place, person, read_address=person.paste)

    assert await use(place) == "done with read write"


async def test_another_address_than_that_of_this_login_is_refused(server: LoginServer, tmp_path: Path) -> None:
    async def paste() -> str:
        return "http://127.0.0.1:1/callback?code=x&state=other"

    with pytest.raises(McpFailed, match="this is not the address that the browser ended at"):
        await log_in(place_of(server, tmp_path), Person(is_elsewhere=True), read_address=paste)

    assert not (tmp_path / "x.json").exists()


async def test_a_page_that_guesses_does_not_end_the_login(server: LoginServer, tmp_path: Path) -> None:
    class Guessed(Person):
        async def see(self, url: str) -> None:
            back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
            async with aiohttp.ClientSession() as other, other.get(f"{back}?code=evil&state=guessed") as response:
                self.pages.append(f"{response.status}")
            await super().see(url)

    person = await log_in(place_of(server, tmp_path), Guessed())

    assert person.pages[0] == "404"
    assert await use(place_of(server, tmp_path)) == "done with read write"


async def test_a_token_that_has_ended_is_refreshed_after_a_restart_at_its_own_server(tmp_path: Path) -> None:
    async with login_server(lifetime=1) as server:
        place = place_of(server, tmp_path)
        await log_in(place)
        server.end_tokens()
        asked = len(server.asked)

        assert await use(place) == "done with read write"
        assert server.asked[asked] == "refresh_token"
        assert not DISCOVERY & set(server.asked[asked:])
        assert read(place)["tokens"]["refresh_token"] in server.refreshes


async def test_a_token_that_the_server_does_not_take_any_more_is_refreshed_once(
    server: LoginServer, tmp_path: Path
) -> None:
    place = place_of(server, tmp_path)
    await log_in(place)
    server.end_tokens()

    assert await use(place) == "done with read write"
    assert server.asked.count("refresh_token") == 1


async def test_two_processes_that_need_a_new_token_at_once_ask_for_one(server: LoginServer, tmp_path: Path) -> None:
    place = place_of(server, tmp_path)
    await log_in(place)
    async with connected(place) as first, connected(place) as second:
        server.end_tokens()
        replies = await asyncio.gather(call(first), call(second), call(first))
        assert [reply.text for reply in replies] == ["done with read write"] * 3
        server.end_tokens()
        assert (await call(second)).text == (await call(first)).text == "done with read write"
    assert server.asked.count("refresh_token") == 2
    assert read(place)["tokens"]["refresh_token"] in server.refreshes


async def test_a_login_counts_in_a_connection_that_was_open_before(tmp_path: Path) -> None:
    async with login_server(does_refresh=False) as server:
        place = place_of(server, tmp_path)
        await log_in(place)
        async with connected(place) as connection:
            server.end_tokens()
            await log_in(place)
            assert (await call(connection)).text == "done with read write"
            (tmp_path / "x.json").unlink()  # the server was removed
            with pytest.raises(McpFailed, match="it wants a login"):
                await call(connection)


async def test_what_a_server_wants_takes_no_newer_login_away(tmp_path: Path) -> None:
    async with login_server(does_refresh=False) as server:
        place = place_of(server, tmp_path)
        await log_in(place)
        async with httpx2.AsyncClient(auth=use_login(place)) as client:
            server.end_tokens()
            late = use_login(place).async_auth_flow(client.build_request("POST", server.url))
            await anext(late)
            await log_in(place)
            given = read(place)
            again = await late.asend(httpx2.Response(401))
            assert again.headers["Authorization"] == f"Bearer {given['tokens']['access_token']}"
            with pytest.raises(StopAsyncIteration):
                await late.asend(httpx2.Response(200))
        assert read(place) == given


async def test_a_login_that_cannot_be_refreshed_has_ended_in_words(tmp_path: Path) -> None:
    async with login_server(does_refresh=False) as server:
        place = place_of(server, tmp_path)
        await log_in(place)
        server.end_tokens()
        asked = len(server.asked)

        with pytest.raises(McpFailed, match="its login has ended") as failure:
            await use(place)
        assert failure.value.needs_login
        assert not DISCOVERY & set(server.asked[asked:])

        server.does_refresh = True
        await log_in(place)
        assert await use(place) == "done with read write"
        assert len(server.clients) == 1  # the same registration, on the same port


async def test_further_rights_are_asked_for_at_the_next_login(tmp_path: Path) -> None:
    async with login_server(needed="admin") as server:
        place = place_of(server, tmp_path)
        await log_in(place)
        with pytest.raises(McpFailed, match="it wants a login with further rights") as failure:
            await use(place)
        assert failure.value.needs_login

        await log_in(place)

        assert set(server.authorizations[-1]["scope"].split()) == {"read", "write", "admin"}
        assert await use(place) == f"done with {server.authorizations[-1]['scope']}"
        assert "challenge" not in read(place)


async def test_a_server_that_wants_a_login_for_calls_alone_gets_one(tmp_path: Path) -> None:
    async with login_server(open_methods=("server/discover", "tools/list")) as server:
        place = place_of(server, tmp_path)
        with pytest.raises(McpFailed, match="it wants a login"):
            await use(place)
        await log_in(place)

        assert await use(place) == "done with read write"


async def test_a_refusal_is_said_and_leaves_the_login_as_it_was(server: LoginServer, tmp_path: Path) -> None:
    place = place_of(server, tmp_path)
    await log_in(place)
    before = read(place)
    server.refusal = "access_denied"

    with pytest.raises(McpFailed, match=re.escape("the login was refused: access_denied: The person said no.")):
        await log_in(place)
    assert read(place) == before


async def test_a_redirect_from_another_issuer_is_refused(server: LoginServer, tmp_path: Path) -> None:
    server.issuer = "https://other.example"

    with pytest.raises(McpFailed, match=r"the login failed: .*other\.example"):
        await log_in(place_of(server, tmp_path))
    assert server.token_requests == []


async def test_nobody_at_the_browser_is_said_in_time(server: LoginServer, tmp_path: Path) -> None:
    async def look_away(url: str) -> None:
        del url

    with pytest.raises(McpFailed, match=re.escape("nobody logged in within 0.5 seconds")):
        await login(place_of(server, tmp_path), show_url=look_away, timeout=0.5)


async def test_a_registration_by_hand_is_used_with_its_secret(server: LoginServer, tmp_path: Path) -> None:
    place = place_of(server, tmp_path)
    await log_in(place, identity=ClientIdentity("our-id", "our-secret"))

    assert server.clients == {}
    assert server.authorizations[0]["client_id"] == "our-id"
    assert (server.token_requests[0]["client_id"], server.token_requests[0]["client_secret"]) == (
        "our-id",
        "our-secret",
    )
    assert await use(place) == "done with read write"


async def test_a_document_on_the_web_is_our_id_if_the_server_takes_it(tmp_path: Path) -> None:
    url = "https://bot.example/client.json"
    async with login_server(knows_documents=True) as server:
        await log_in(place_of(server, tmp_path), identity=ClientIdentity(document_url=url))

    assert server.clients == {}
    assert server.authorizations[0]["client_id"] == url
    document = json.loads(format_client_document(url))
    assert document["client_id"] == url
    assert document["redirect_uris"] == ["http://127.0.0.1/callback"]


async def test_a_port_in_use_is_said(server: LoginServer, tmp_path: Path) -> None:
    with pytest.raises(McpFailed, match=f"port {server.port} of 127.0.0.1 is in use"):
        await log_in(place_of(server, tmp_path), port=server.port)


async def test_tokens_go_to_their_server_alone(server: LoginServer, tmp_path: Path) -> None:
    place = place_of(server, tmp_path)
    await log_in(place)

    async def refuse(request: RawRequest) -> None:
        await request.answer(b"", status="401 Unauthorized")

    async with serving(refuse) as other:
        with pytest.raises(McpFailed, match="it wants a login"):
            await use(ServerPlace("x", url=other.url(), tokens_file=place.tokens_file))
        assert all("authorization" not in request.headers for request in other.requests)


async def test_a_token_is_put_on_no_request_to_another_origin(server: LoginServer, tmp_path: Path) -> None:
    async def answer(request: RawRequest) -> None:
        await request.answer(b"{}")

    place = place_of(server, tmp_path)
    await log_in(place)
    async with serving(answer) as other, httpx2.AsyncClient(auth=use_login(place)) as client:
        await client.get(other.url())
        await client.post(server.url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})

    assert all("authorization" not in request.headers for request in other.requests)
    assert server.asked[-1] == "tools/list"


async def test_a_header_with_a_secret_goes_to_no_other_server_of_a_login(tmp_path: Path) -> None:
    async def find_nothing(request: RawRequest) -> None:
        await request.answer(b"", status="404 Not Found")

    async with serving(find_nothing) as other:

        async def lead_away(request: RawRequest) -> None:
            there = f'Bearer resource_metadata="{other.url()}"'
            await request.answer(b"", status="401 Unauthorized", WWW_Authenticate=there)

        async with serving(lead_away) as server:
            tokens_file = str(tmp_path / "x.json")
            place = ServerPlace("x", url=server.url(), headers={"X-Key": "a-secret"}, tokens_file=tokens_file)
            with pytest.raises(McpFailed):
                await log_in(place)

    assert [request.path for request in other.requests] == ["/mcp"]
    assert all("x-key" not in request.headers for request in other.requests)
    assert all(request.headers["x-key"] == "a-secret" for request in server.requests)


@pytest.mark.parametrize("content", [b"", b"{", b'{"server": 7}', b"\xff"])
async def test_a_broken_file_is_no_login(server: LoginServer, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)

    with pytest.raises(McpFailed, match="it wants a login"):
        await use(place_of(server, tmp_path))
    await log_in(place_of(server, tmp_path))
    assert await use(place_of(server, tmp_path)) == "done with read write"


async def test_a_login_never_goes_unencrypted_to_another_host(tmp_path: Path) -> None:
    async def lead_away(request: RawRequest) -> None:
        there = 'Bearer resource_metadata="http://169.254.169.254/latest"'
        await request.answer(b"", status="401 Unauthorized", WWW_Authenticate=there)

    async with serving(lead_away) as server:
        with pytest.raises(McpFailed, match=re.escape("the login would go unencrypted to 169.254.169.254")):
            await log_in(ServerPlace("x", url=server.url(), tokens_file=str(tmp_path / "x.json")))


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    file = oauth.LoginFile(tmp_path / "missing" / "x.json", "https://x.example")

    with pytest.raises(McpFailed, match=r"the file of its login, cannot be written: No such file or directory"):
        file.write()
