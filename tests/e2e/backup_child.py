"""The command `bubbot`, which ends itself with SIGKILL at one point of a backup or restore, or has a small disk.

Arguments: POINT COMMAND...; POINT is `MODULE:NAME`, the process ends as soon as that function was called and has
returned, or `limit:BYTES`, no file may grow beyond.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from bubbot.cli.main import main


def run(arguments: Sequence[str]) -> int:
    """The exit code, where there is one."""
    point, *command = arguments
    module_name, _, name = point.partition(":")
    if module_name == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(name), int(name)))
        return main(command)
    module: Any = import_module(module_name)
    real = getattr(module, name)

    def last(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, last)
    return main(command)
