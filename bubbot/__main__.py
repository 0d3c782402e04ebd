"""`python -m bubbot`, and the installed command `bubbot`."""

from __future__ import annotations

import sys

from bubbot.cli.interrupt import leave_on_interrupt, raise_on_interrupt


def main() -> int:
    """Run the command line; from here on Ctrl-C is silent, also while modules load and while the process ends."""
    leave_on_interrupt()
    from bubbot.cli.main import main as run_command  # this import takes time

    try:
        return run_command(on_loaded=raise_on_interrupt)
    finally:
        leave_on_interrupt()


if __name__ == "__main__":
    sys.exit(main())
