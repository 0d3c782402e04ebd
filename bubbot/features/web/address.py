"""The addresses that the web tools may reach: public ones; and the registrable domain of a host.

`ipaddress.is_global` is not enough, and differs between versions of Python: it lets addresses through that carry a private
one (NAT64, 6to4, IPv4-compatible), multicast, and addresses on which clouds answer every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

IPAddress: TypeAlias = IPv4Address | IPv6Address

_REFUSED_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network; Linux takes 0.0.0.0 for itself
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a provider's NAT; 100.100.100.200 is the metadata of one cloud
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host of a virtual machine of Azure
            "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata of most clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is the metadata of one cloud
            "192.0.2.0/24",  # documentation, as the next two of /24
            "192.31.196.0/24",  # AS112 sinks, as 192.175.48.0/24
            "192.52.193.0/24",  # AMT relays
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""The only part of IPv6 from which unicast addresses are given out."""
_REFUSED_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, with Teredo, benchmarks and ORCHID
            "2001:db8::/32",  # documentation, as 3fff::/20
            "2002::/16",  # 6to4: the address of a relay is in it
            "2620:4f:8000::/48",  # AS112 sinks
            "3fff::/20",
            "3ffe::/16",  # the first test network
        ),
    )
)


def is_public(address: IPAddress) -> bool:
    """Return true if an address is one of a host on the public internet, whatever notation it is in.

    An IPv4-mapped address counts as the one it carries. Other addresses that carry one are refused: a tunnel or translator
    would connect to what this function did not see.
    """
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        return address in _GLOBAL_V6 and not _is_in(address, _REFUSED_V6)
    return not _is_in(address, _REFUSED_V4)


def is_public_text(text: str) -> bool:
    """Return true if a text is a public address; false for any other text."""
    try:
        return is_public(ip_address(text))
    except ValueError:
        return False


def _is_in(address: IPAddress, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return any(address in network for network in networks)


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
