"""`bubbot run` for a soak: python -m benchmarks.soak.serve HOME. It ends when its standard input closes: with the soak."""

from __future__ import annotations

import os
import signal
import sys
import threading

from bubbot.cli.main import main


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.exit(main(["--home", sys.argv[1], "run"]))
