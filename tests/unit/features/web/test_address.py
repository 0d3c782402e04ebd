"""Public addresses: a table that holds on every supported Python, since `ipaddress.is_global` differs between them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from bubbot.features.web.address import is_public, is_public_text
from tests.docs.pages import ROOT

PUBLIC = (
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15", "::ffff:8.8.8.8",
    "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:81b::200e", "2001:4860:4860::8888", "2001:200::1",
    "3fff:1000::1", "2003::1",
)  # fmt: skip
PRIVATE = (
    # this host and this network
    "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.0.0.53", "127.255.255.254", "::", "::1",
    # private networks
    "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "172.16.0.1", "172.31.255.255",
    "192.168.0.1", "192.168.255.255", "fc00::1", "fd00:ec2::254", "fdff::1", "fec0::1",
    # link-local, and the metadata of clouds
    "169.254.0.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.192", "fe80::1", "fe80::1%eth0",
    "2606:4700::1%1",
    # assigned to protocols, documentation, benchmarks
    "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.2.1", "198.51.100.7", "203.0.113.9", "198.18.0.1", "198.19.255.255",
    "192.88.99.1", "192.31.196.1", "192.52.193.1", "192.175.48.1", "2001:db8::1", "2001:2::1", "2001:10::1",
    "2001:20::1", "3fff::1", "3ffe::1", "2620:4f:8000::1", "100::1", "5f00::1",
    # multicast, reserved, broadcast
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "ff02::1", "ff0e::1",
    # IPv6 that carries IPv4: mapped, compatible, translated, NAT64 and its local prefix, 6to4, Teredo, ISATAP
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::127.0.0.1", "::7f00:1",
    "::8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1", "2001:0:7f00:1::", "2001::1", "fe80::5efe:127.0.0.1",
)  # fmt: skip


def test_the_table_is_long_enough() -> None:
    assert len({*PUBLIC, *PRIVATE}) == len(PUBLIC) + len(PRIVATE) >= 90


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_of_the_internet_is_refused(text: str) -> None:
    assert not is_public(ip_address(text))


SCRIPT = """
import json, runpy, sys
from ipaddress import ip_address
is_public = runpy.run_path(sys.argv[1])["is_public"]
print(json.dumps([text for text in json.load(sys.stdin) if is_public(ip_address(text))]))
"""
"""Prints which of some addresses are public, with the one module and nothing else of ours."""


def find_python(minor: int) -> str | None:
    """Find an interpreter of this version that runs: on the path, or among those of pyenv."""
    version = f"3.{minor}"
    found = shutil.which(f"python{version}")
    pythons = [found] if found else []
    pythons += map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for python in pythons:  # pyenv has one on the path that runs only where it was chosen
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


@pytest.mark.parametrize("minor", [minor for minor in (11, 12, 13) if minor != sys.version_info.minor])
def test_the_table_holds_on_other_versions_of_python(minor: int) -> None:
    python = find_python(minor)
    if python is None:
        pytest.skip(f"there is no python3.{minor} here")
    script = [python, "-I", "-c", SCRIPT, str(ROOT / "bubbot" / "features" / "web" / "address.py")]
    done = subprocess.run(script, input=json.dumps([*PUBLIC, *PRIVATE]), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(PUBLIC)


@pytest.mark.parametrize(
    "text", ["", "example.org", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "1.1.1.1:80", "[::1]"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    assert not is_public_text(text)


def test_the_library_alone_would_let_private_addresses_through() -> None:
    """The reason for the table: if this fails, look whether the library does the work now."""
    missed = {text for text in PRIVATE if ip_address(text).is_global}
    assert {"168.63.129.16", "224.0.0.1", "64:ff9b::7f00:1"} <= missed
