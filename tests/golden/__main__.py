"""The command `python -m tests.golden`; see the package."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.recording import DATA, list_unrecorded, load_expected, record, write


def write_home(archive: Path) -> None:
    """Let everything happen in a new home, and pack its database, its files and its settings into an archive."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        asyncio.run(record(home, as_found=True))
        (home / "config.toml").write_text('[model]\nname = "scripted"\n')
        with sqlite3.connect(home / "bubbot.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:xz") as packed:
            for name in ("bubbot.db", "config.toml", "exports", "had-database", "sessions"):
                packed.add(home / name, name)


def main() -> int:
    """Record the facts again; print what differs, or write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("facts").add_argument("--write", action="store_true")
    actions.add_parser("home").add_argument("path", type=Path)
    chosen = parser.parse_args()
    if chosen.action == "home":
        write_home(chosen.path)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        recording = asyncio.run(record(Path(folder)))
    if chosen.write:
        write(recording, list_unrecorded() if (DATA / "events.json").exists() else {})
        return 0
    expected = load_expected()
    different = [
        name
        for recorded, now in ((expected.events, recording.events), (expected.checkpoints, recording.checkpoints))
        for name in sorted({*recorded, *now})
        if recorded.get(name) != now.get(name)
    ]
    print(*different, sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
