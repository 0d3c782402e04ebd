"""The command `python -m tests.golden`; see the package."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.recording import DATA, list_unrecorded, load_expected, record, write, write_checkpoints
from tests.golden.scenario import live
from tests.golden.stage import Stage


async def _make_home(folder: Path) -> Stage:
    """Let everything happen in a new home until the bot is killed, and write a checkpoint of each projection."""
    home = folder / "home"
    home.mkdir()
    stage = Stage(home, as_found=True)
    await live(stage)
    await write_checkpoints(stage)
    return stage


def write_home(archive: Path) -> None:
    """Pack a home, as a bot leaves it that is killed, into an archive."""
    with tempfile.TemporaryDirectory() as folder:
        stage = asyncio.run(_make_home(Path(folder)))
        for name in ("bubbot.db-wal", "bubbot.db-shm", "daemon.lock"):
            (stage.home / name).unlink(missing_ok=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(stage.home.iterdir()):
                packed.add(path, path.name)
        shutil.rmtree(stage.home)


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
