"""`python -m bubbot`, and the installed command `bubbot`."""

from __future__ import annotations

import gc
import os
import sys

from bubbot.cli.interrupt import leave_on_interrupt, raise_on_interrupt


def main() -> int:
    """Run the command line; from here on Ctrl-C is silent, also while modules load and while the process ends."""
    leave_on_interrupt()
    gc.disable()  # modules are no garbage: looking for it while they load takes a tenth of a short command
    # Otherwise pydantic reads what each installed package offers, for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # noqa: TID251 - before the settings are imported
    if sys.argv[1:2] == ["__complete"]:  # a shell wants the names of this home, before it shows anything
        from bubbot.cli.completion.values import print_values

        return print_values(sys.argv[2:])
    from bubbot.cli.deferred import defer_metadata

    defer_metadata()
    from bubbot.cli.main import main as run_command  # this import takes time

    try:
        return run_command(on_loaded=_start)
    finally:
        leave_on_interrupt()


def _start() -> None:
    """Let Ctrl-C raise, and look for garbage again, but never among the modules."""
    raise_on_interrupt()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    sys.exit(main())
