"""Tokens of the trace page."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.features.trace.tokens import TraceTokens, forget_key, read_key

NOW = 1_700_000_000.0


def tokens(key: bytes = b"k" * 32, now: float = NOW) -> TraceTokens:
    return TraceTokens(key, lambda: now)


def test_a_token_tells_whose_it_is_until_it_expires() -> None:
    token = tokens().issue("telegram:42", 60)
    for passed in (0, 59):
        holder = tokens(now=NOW + passed).read(token)
        assert holder is not None
        assert (holder.person, holder.seconds) == ("telegram:42", 60 - passed)
    assert tokens(now=NOW + 60).read(token) is None


def test_a_changed_token_and_one_of_another_key_are_nobodys() -> None:
    token = tokens().issue("telegram:42", 60)
    assert tokens(b"x" * 32).read(token) is None
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        changed = token[:place] + other + token[place + 1 :]
        assert tokens().read(changed) is None, place
    person, expiry, mac = token.split(".")
    for forged in (f"{person}.{int(expiry, 16) + 9:x}.{mac}", f".{expiry}.{mac}", "", ".", "..", "a.b.c", "é.1.é", mac):
        assert tokens().read(forged) is None


def test_the_key_is_made_once_and_only_for_its_user(tmp_path: Path) -> None:
    key = read_key(tmp_path, os.urandom)
    assert (tmp_path / "trace.key").stat().st_mode & 0o777 == 0o600
    assert read_key(tmp_path, os.urandom) == key
    forget_key(tmp_path)
    assert read_key(tmp_path, os.urandom) != key


@pytest.mark.parametrize("step", ["write", "fsync", "link"])
def test_a_key_that_cannot_be_written_whole_is_not_there_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ConfigError, match="No space left"):
        read_key(tmp_path, os.urandom)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert len(read_key(tmp_path, os.urandom)) == 32


@pytest.mark.parametrize("fault", ["others", "short", "long", "link", "folder"])
def test_a_key_that_cannot_be_trusted_is_refused_with_the_way_out(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "trace.key"
    match fault:
        case "others":
            path.write_bytes(b"k" * 32)
            path.chmod(0o640)
        case "short" | "long":
            path.write_bytes(b"k" * (31 if fault == "short" else 33))
            path.chmod(0o600)
        case "link":
            (tmp_path / "other").write_bytes(b"k" * 32)
            path.symlink_to(tmp_path / "other")
        case "folder":
            path.mkdir()
    with pytest.raises(ConfigError, match=r"trace\.key"):
        read_key(tmp_path, os.urandom)
