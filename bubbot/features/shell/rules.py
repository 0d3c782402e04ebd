"""Work out what `confine.py` applies to a program: the rights of Landlock on this kernel.

`bubbot.features.shell.sandbox` runs it once as `python -I -S rules.py OPTIONS` and keeps what it prints, because the library
takes longer to load than all the rest of a program's start. OPTIONS is JSON: `library` (the folder of the package) and `network`. It
prints JSON: `handled` (the rights that are refused unless a path has them: files, network, scopes), `reading`, `writing` and
`device` (the rights of a path) and `file` (those that a file can have). The exit status is 125 if Landlock cannot do it here, with the
reason on standard error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SANDBOX_FAILED = 125
MIN_ABI = 6
"""Landlock before this version (Linux 6.12) does not keep a program from sending signals to the bot."""


def main() -> int:
    """Print the rules."""
    options = json.loads(sys.argv[1])
    sys.path.append(options["library"])
    try:
        rules = build_access_rules(has_network=options["network"])
    except Exception as error:  # noqa: BLE001 - nothing may run without these rules
        sys.stderr.write(f"the sandbox cannot be made: {error}\n")
        return SANDBOX_FAILED
    json.dump(rules, sys.stdout)
    return 0


def build_access_rules(*, has_network: bool) -> dict[str, Any]:
    """Return the rights as numbers, of which the kernel knows all."""
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope, abi_version

    if (version := abi_version()) < MIN_ABI:
        raise OSError(f"Landlock has version {version} here, and {MIN_ABI} is needed")
    reading = AccessFS.READ_FILE | AccessFS.READ_DIR | AccessFS.EXECUTE
    writing = ~AccessFS.NONE & ~(AccessFS.MAKE_CHAR | AccessFS.MAKE_BLOCK)
    file = AccessFS.READ_FILE | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
    network = AccessNet.NONE if has_network else None  # None: every right there is
    with Ruleset(handled_net=network, scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET) as ruleset:
        files = ruleset.handled_fs
        return {
            "handled": [int(files), int(ruleset.handled_net), int(ruleset.scoped)],
            "reading": int(reading & files),
            "writing": int(writing & files),
            "device": int((AccessFS.READ_FILE | AccessFS.WRITE_FILE) & files),
            "file": int(file & files),
        }


if __name__ == "__main__":
    sys.exit(main())
