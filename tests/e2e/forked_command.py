"""Stands for `bubbot` in a shell: a fork of the process in forking.py does it, on the descriptors of this one.

Run as a script, `python -IS forked_command.py SOCKET ARGUMENTS`: it needs nothing but three modules.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main(address: str, *arguments: str) -> int:
    """Ends as the command ended."""
    wish = {
        "target": "bubbot.cli.main:main",
        "arguments": arguments,
        "env": dict(os.environ),
        "cwd": str(os.getcwd()),  # noqa: PTH109 - pathlib takes longer to import than all of this
        "anew": False,
        "streams": (0, 1, 2),
        "terminal": False,
    }
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        data = json.dumps(wish).encode() + b"\n"
        if rest := data[socket.send_fds(link, [data], (0, 1, 2)) :]:  # a quick command may have ended: it reads no more
            link.sendall(rest)
        with link.makefile() as told:
            told.readline()  # the process id
            return int(told.readline()) & 0xFF


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
