"""The registrable domain of a host: what one owner has, with all the names below it."""

from __future__ import annotations

from ipaddress import ip_address


def find_site(host: str) -> str:
    """Return the registrable domain of a host, by the public suffixes that `tld` brings along, without the network.

    Of a domain that no list knows it is the last two labels; of an address, the address. Without the package it is the
    host itself, except for `www.`: nothing that is allowed for one host then holds for another.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        from tld import get_fld
    except ImportError:
        return host.removeprefix("www.")
    found = get_fld(f"http://{host}/", fail_silently=True, search_private=True)
    return found or ".".join(host.split(".")[-2:])
