"""A process that loads litellm behind `LazyModel` while a ticker watches the event loop. Prints what it saw as JSON.

Run as `python -m tests.e2e.litellm_child`: a process of its own, because litellm is loaded once in a process.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from bubbot.app.models import choose_model
from bubbot.home import Home
from bubbot.ports.model import ModelReply, ModelRequest, ToolSpec
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e.openai_server import says, serving

TICK = 0.005
REQUEST = ModelRequest("Be brief.", ({"role": "user", "content": "hi"},), (ToolSpec("f", "does", {"type": "object"}),))


def megabytes() -> int:
    """The largest this process has been."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def ticking(stalls: list[float]) -> None:
    """Notes by how much the loop is late, until it is cancelled."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        stalls.append(now - last - TICK)
        last = now


async def main() -> None:
    """Loads and asks once, then asks again."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving(says("hello there")) as server:
            settings = Settings(model=ModelSettings(name="openai/test", api_base=server.address, via="litellm"))
            model = choose_model(settings, Home(Path(folder)))
            facts: dict[str, object] = {"loaded_before": "litellm" in sys.modules, "rss_before": megabytes()}
            for name in ("first", "second"):
                stalls: list[float] = []
                ticker = asyncio.create_task(ticking(stalls))
                begun = time.perf_counter()
                replies = [event async for event in model.stream(REQUEST) if isinstance(event, ModelReply)]
                facts |= {f"{name}_seconds": time.perf_counter() - begun, f"{name}_text": replies[0].text}
                await asyncio.sleep(TICK * 4)
                ticker.cancel()
                facts[f"{name}_stall"] = max(stalls)
            await model.aclose()
            print(json.dumps({**facts, "rss_after": megabytes()}))


if __name__ == "__main__":
    asyncio.run(main())
