"""mypy on the whole project: half a minute of one processor, so it runs beside the collection of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDED = "mypy ended with "


@cache
def begin() -> subprocess.Popen[str]:
    """Begin it, once; a worker, which is a fork, reads what the process before it began."""
    script = f'"$@" 2>&1; echo "{ENDED}$?"'  # who is not its parent cannot ask for its exit code
    running = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", sys.executable, "-m", "mypy"],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )

    def end() -> None:
        """Leave nothing behind: a run that stops early does not wait for it."""
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if running.stdout is not None:
            running.stdout.close()

    # Unlike `atexit`, this also runs at the end of a worker that began it, and never in one that did not.
    Finalize(None, end, exitpriority=0)
    return running


def finish() -> str:
    """Wait for its end; return what it prints, and at last its exit code."""
    output = begin().stdout
    assert output is not None
    with output:
        return output.read()
