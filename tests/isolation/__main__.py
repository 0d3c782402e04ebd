"""One run with a seed: `python -m tests.isolation SEED [TURNS]`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.isolation.run import run

if __name__ == "__main__":
    seed, turns = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        acts = run(Path(folder) / "home", seed, turns)
    seconds = time.perf_counter() - begun
    print(f"{acts.world.turns} turns in {seconds:.1f} s; watched: {dict(acts.world.seen.most_common())}")
    print("\n".join(acts.world.leaks) or "nothing leaked")
    sys.exit(bool(acts.world.leaks))
