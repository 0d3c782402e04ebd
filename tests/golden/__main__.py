"""The command `python -m tests.golden`; see the package."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.golden.recording import DATA, list_unrecorded, load_expected, record, write


def main() -> int:
    """Record the facts again; print what differs, or write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("facts").add_argument("--write", action="store_true")
    chosen = parser.parse_args()
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
