"""The HTTP client of a bot: aiohttp, and httpx behind a proxy."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from channels.telegram.http import DirectHttp, ProxiedHttp, load_certificates, open_http
from channels.telegram.settings import TelegramSettings
from tests.fakes.connections import accepting

TOKEN = "42:SECRET-token"


@pytest.fixture(autouse=True)
def no_proxy_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def opened(**settings: str) -> object:
    return open_http(TelegramSettings.read("tg", {"token": TOKEN} | settings), ssl.create_default_context(), pool=1)


def test_without_a_proxy_it_is_the_lighter_one() -> None:
    assert isinstance(opened(), DirectHttp)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
def test_a_proxy_of_the_settings_is_used(address: str) -> None:
    assert isinstance(opened(proxy=address), ProxiedHttp)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert isinstance(opened(), ProxiedHttp)


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({"NO_PROXY": "localhost,127.0.0.1"}, {}),
        ({"no_proxy": "*"}, {}),
        ({"FTP_PROXY": "http://127.0.0.1:9"}, {}),
        ({"HTTPS_PROXY": ""}, {}),
        ({"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "api.telegram.org"}, {}),
        ({"ALL_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost:8081"}, {"base_url": "http://localhost:8081"}),
        ({"HTTPS_PROXY": "http://127.0.0.1:9"}, {"base_url": "http://localhost:8081"}),
    ],
)
def test_variables_that_name_no_proxy_for_telegram_change_nothing(
    variables: dict[str, str], settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert isinstance(opened(**settings), DirectHttp)


@pytest.mark.parametrize("value", ["localhost", "telegram.org.example"])
def test_a_proxy_is_used_if_only_other_hosts_go_without_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", value)
    assert isinstance(opened(), ProxiedHttp)


def test_certificates_are_loaded_for_an_encrypted_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "https://nowhere.example")
    settings = TelegramSettings.read("tg", {"token": TOKEN, "base_url": "http://bot.example:9"})
    assert load_certificates(settings).cert_store_stats()["x509_ca"] == 0
    monkeypatch.setenv("HTTP_PROXY", "https://proxy.example:9")
    assert load_certificates(settings).cert_store_stats()["x509_ca"] > 0


@pytest.mark.parametrize(
    ("settings", "loads"),
    [
        ({}, True),
        ({"base_url": "http://127.0.0.1:9"}, False),
        ({"base_url": "http://127.0.0.1:9", "base_file_url": "HTTPS://files.example"}, True),
        ({"base_url": "http://127.0.0.1:9", "proxy": "https://127.0.0.1:9"}, True),
        ({"base_url": "http://127.0.0.1:9", "proxy": "http://127.0.0.1:9"}, False),
    ],
)
def test_certificates_are_loaded_where_something_is_encrypted_and_checked_anywhere(
    settings: dict[str, str], loads: bool
) -> None:
    trust = load_certificates(TelegramSettings.read("tg", {"token": TOKEN} | settings))
    assert (trust.cert_store_stats()["x509_ca"] > 0) is loads
    assert (trust.verify_mode, trust.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_a_server_that_hangs_up_between_two_calls_is_called_again() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 2\r\n\r\n{}")  # it does not say so before
        await writer.drain()

    settings = TelegramSettings.read("tg", {"token": TOKEN})
    http = DirectHttp(settings, ssl.create_default_context(), pool=1)
    async with accepting(answer) as port:
        try:
            for _ in range(3):
                assert await http.do_request(f"http://127.0.0.1:{port}/getMe", "GET") == (200, b"{}")
                assert http.date == "today"
                await asyncio.sleep(0.01)  # the end of the connection arrives
        finally:
            await http.close()
