"""What a newcomer has to type, and how long that takes: python -m benchmarks.newcomer [MODEL].

The model is `scripted`, which repeats what is said, or `local`, the demonstration model. Downloads are not counted.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.e2e.newcomer import SECONDS_PER_KEY, walk_all


def main() -> None:
    """Walk all ways and print a table."""
    model = sys.argv[1] if len(sys.argv) > 1 else "scripted"
    answers = ("", r"^(?!I do not know you yet)") if model == "local" else ("You said: hello", "You said: ")
    with tempfile.TemporaryDirectory() as folder:
        someone = asyncio.run(walk_all(Path(folder), model, answers))
    print(f"{'':32}{'keys':>6}{'commands':>10}{'seconds':>9}   of these waiting")
    for walk in someone.walks:
        row = f"{walk.name:32}{walk.keys:>6}{len(walk.commands):>10}{walk.seconds:>9.1f}{walk.waited:>19.1f}"
        print(row)
    print(f"A key takes {SECONDS_PER_KEY} seconds.")


if __name__ == "__main__":
    main()
