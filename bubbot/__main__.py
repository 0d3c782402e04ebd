"""`python -m bubbot`, and the installed command `bubbot`."""

from __future__ import annotations

import sys

from bubbot.cli.interrupt import leave_on_interrupt


def main() -> int:
    """Run the command line; until the command begins, and while the process ends, Ctrl-C is silent."""
    leave_on_interrupt()
    from bubbot.cli.main import main as run_command  # this import takes time

    try:
        return run_command()
    finally:
        leave_on_interrupt()


if __name__ == "__main__":
    sys.exit(main())
