"""Fixed values for what differs from run to run and from machine to machine, so that two runs give one picture."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = "/home/ada/.local/share/bubbot"
_FOLDER, _REST = Path("/tmp"), "share/bubbot"  # a path as long as HOME keeps the line breaks
_TURN = "87e7977b66ca44fb9ae629ca6291e8a8"
_VARYING = (
    (
        r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d(:\d\d)?",
        lambda found: f"2026-11-22{found[1]}10:00" + (":00" if found[2] else ""),
    ),
    (r"(?<=the whole bot, )\d{4}-\d\d-\d\d", "2026-11-22"),
    (r"\b[0-9a-f]{32}\b", _TURN),
    (r"\b[0-9a-f]{12}\b", _TURN[:12]),
    (r"\b\d+ ms\b", "640 ms"),
    (r"\b\d+(\.\d+)?( seconds?| s)\b(?= ago)?", "3 seconds"),
    (r"\b\d+(\.\d+)? [kKM]i?B(?=, and |\b of new entries)", "240 kB"),
    (r"\b[\d,]+ tokens", "158 tokens"),
    (r"\bprocess \d+", "process 4242"),
    (r"\bpid \d+", "pid 4242"),
    (r"Python 3\.\d+\.\d+", "Python 3.12.8"),
    (r"(sqlite\.)\w+: [^\r\n]*", r"\1ok: SQLite 3.51.3."),
    (r"(?m)^ok +clock\.set: .*\r?\n", ""),  # only where systemd tells
    (r"\b\d+(\.\d+)? GB (are )?free", r"83.3 GB \2free"),
    (r"\b\d+ files may be open", "65536 files may be open"),
    (r"(local disk) \(\w+\)", r"\1 (ext4)"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:8081"),
)


def replace_varying(text: str, home: Path) -> str:
    """Replace times, ids, sizes, versions and the path of the home by fixed values."""
    text = text.replace(str(home), HOME)
    for pattern, sample in _VARYING:
        text = re.sub(pattern, sample, text)
    return text


@contextmanager
def new_home() -> Iterator[Path]:
    """An empty home whose path has as many characters as the one that pictures show."""
    name = secrets.token_hex(16)[: len(HOME) - len(f"{_FOLDER}//{_REST}")]
    home = _FOLDER / name / _REST
    home.mkdir(mode=0o700, parents=True)
    try:
        yield home
    finally:
        shutil.rmtree(_FOLDER / name, ignore_errors=True)
