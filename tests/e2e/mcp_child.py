"""A bot whose effects are calls of a server of MCP, and that ends itself with SIGKILL at one point. Arguments as those of `effect_child`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from bubbot.runtime.effects import EffectRun
from tests.e2e.effect_child import SensibleModel, run_without_begin
from tests.e2e.kill_child import Killer, main


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, script, point, broken, features = [*arguments, "", "", ""][:5]
    work = main(
        Path(home),
        script,
        Killer(point),
        [],
        features=features,
        wrap_model=lambda model: SensibleModel(model, "mcp_effects_act_"),
    )
    if broken == "no-begin":
        with patch.object(EffectRun, "run", run_without_begin):
            asyncio.run(work)
    else:
        asyncio.run(work)
    return 0
