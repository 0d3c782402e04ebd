"""The HTTP client for an address, with the proxies and certificates of the environment.

It is aiohttp, and httpx behind a SOCKS proxy, which aiohttp does not speak.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import certifi

from bubbot.errors import ModelRefused
from bubbot.models.openai.http import AiohttpClient, HttpClient
from bubbot.settings.environment import find_proxy


def open_http(
    address: str, variables: Mapping[str, str], *, connect_seconds: float, follows_redirects: bool
) -> HttpClient:
    """Return a client for one address. It loads certificates, which takes tens of milliseconds: call it in a thread.

    Args:
        connect_seconds: the time limit for a connection.
        follows_redirects: follow redirects; another host is not sent the header `Authorization`.

    Raises:
        ModelRefused: a proxy or certificates of the environment cannot be used.
    """
    proxy = find_proxy(address)
    # Nothing is trusted where nothing is encrypted: a redirect from there to an encrypted address fails.
    is_encrypted = address.startswith("https:") or (proxy or "").startswith("https:")
    trust = load_certificates(variables) if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if proxy is None or proxy.startswith(("http:", "https:")):
        return AiohttpClient(trust, proxy, connect_seconds=connect_seconds, follows_redirects=follows_redirects)
    from bubbot.models.openai.socks import SocksHttp  # only here: its library takes a tenth of a second

    try:
        return SocksHttp(trust, proxy, connect_seconds=connect_seconds, follows_redirects=follows_redirects)
    except ValueError:
        raise ModelRefused(
            f"{urlsplit(address).hostname} cannot be reached through the proxy of the environment: only http, https, "
            "socks5 and socks5h are known"
        ) from None


def load_certificates(variables: Mapping[str, str]) -> ssl.SSLContext:
    """Return the certificates to trust: those that the environment names, else those of the package `certifi`."""
    file, folder = variables.get("SSL_CERT_FILE"), variables.get("SSL_CERT_DIR")
    try:
        if file or not folder:
            context = ssl.create_default_context(cafile=file or certifi.where())
        else:
            context = ssl.create_default_context(capath=folder)
    except OSError:
        raise ModelRefused("The certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read") from None
    context.set_alpn_protocols(["http/1.1"])
    return context
