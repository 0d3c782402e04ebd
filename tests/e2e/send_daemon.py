"""`bubbot run` as it is, with its control socket, that ends itself with SIGKILL at one point. Arguments: HOME [POINT [SECONDS]].

Points are those of `kill_daemon`: around what the store writes, and around what the channel sends. SECONDS: how long owners have for an answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bubbot.app.bot import PortWrappers
from bubbot.app.daemon import open_daemon
from bubbot.cli.main import main
from bubbot.features.mcp.serve import sending
from tests.e2e import forked
from tests.e2e.hurried import hurry
from tests.e2e.kill_child import Killer, KillingStore
from tests.e2e.kill_daemon import killing

CHILD = "tests.e2e.send_daemon:run"


def run(arguments: Sequence[str]) -> int:
    """The process."""
    if forked.ANEW not in os.environ:
        hurry()
    home, point, seconds = [*arguments, "", ""][:3]
    if seconds:
        setattr(sending, "ANSWER_TIME", timedelta(seconds=float(seconds)))  # noqa: B010 - the type checker rightly minds
    killer = Killer(point)
    wrappers = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=False),
        channel=lambda channel: channel if channel.name == "stdin" else killing(channel, killer, ""),
    )
    with patch("bubbot.cli.run.command.open_daemon", partial(open_daemon, wrappers=wrappers)):
        return main(["--home", str(Path(home)), "run"])
