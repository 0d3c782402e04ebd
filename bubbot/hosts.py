"""Where a host is, as far as its name or its address says without asking the network."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address


def is_this_machine(host: str) -> bool:
    """Return true for `localhost`, names below it, and loopback addresses."""
    address = _parse(host)
    return address.is_loopback if address else host == "localhost" or host.endswith(".localhost")


def is_nearby(host: str) -> bool:
    """Return true for this machine and for a private address. Any other name may belong to anybody."""
    address = _parse(host)
    return is_this_machine(host) or (address is not None and (address.is_private or address.is_link_local))


def _parse(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address, that of IPv4 if it carries one; None for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
