"""A worker that is frozen in the middle of an answer, while another takes over: python -m tests.e2e.frozen_worker.

It writes what both logged, and what people saw, into docs/howto/many-workers.md and its translation; the test compares.
"""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
from pathlib import Path

from tests.docs.pages import ROOT
from tests.e2e.chaos import START_SECONDS, Worker, chaos

PAGES = [ROOT / folder / "howto" / "many-workers.md" for folder in ("docs", "docs/zh")]
BLOCK = re.compile(r"(<!-- transcript: frozen worker -->\n```text\n)(.*?)(```\n)", re.DOTALL)
ACTIONS = ("worker.taken", "worker.lost", "session.lost", "turn.end")
_LINE = re.compile(r'^time=(\S+) level=\S+ action=(\S+) message="((?:[^"\\]|\\.)*)"(.*)$')


async def freeze(folder: Path) -> str:
    """Freeze the worker that answers, let the other one answer, and let the first go on; return the transcript.

    Raise `AssertionError` if it did anything after that.
    """
    async with chaos(folder, workers=2, chats=2) as stage:
        await asyncio.gather(*(worker.run() for worker in stage.workers))
        seat, elsewhere = stage.seats
        seat.say("say 1")
        await seat.platform.until(lambda: "answer to <say 1>" in seat.texts(), START_SECONDS)
        stage.provider.seconds = 2.0
        seat.say("say 2")
        await seat.platform.until(lambda: stage.provider.calls["say 2"], START_SECONDS)
        first = await stage.find_busy(seat)
        [second] = [worker for worker in stage.workers if worker is not first]
        first.send(signal.SIGSTOP)
        begun = len(second.log)
        await seat.platform.until(lambda: "answer to <say 2>" in seat.texts(), START_SECONDS)
        requests, calls = len(stage.telegram.server.calls("sendMessage")), stage.provider.calls.total()
        frozen_log = len(first.log)
        first.send(signal.SIGCONT)
        async with asyncio.timeout(START_SECONDS):
            while "action=worker.lost" not in first.log[frozen_log:]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        assert seat.texts() == ["answer to <say 1>", "answer to <say 2>"], (
            f"{seat.texts()}\n{stage.telegram.server.transcript()}\n{first.log}"
        )
        assert len(stage.telegram.server.calls("sendMessage")) == requests, first.log
        assert stage.provider.calls.total() == calls, first.log
        parts = [
            "# the first is stopped (SIGSTOP) while it answers; the second:",
            *_told(second, begun),
            "# the first goes on (SIGCONT):",
            *_told(first, frozen_log),
        ]
        await second.kill()  # the one that was frozen is as good as any
        elsewhere.say("say 3")
        await elsewhere.platform.until(lambda: "answer to <say 3>" in elsewhere.texts(), START_SECONDS)
        parts += ["# the second is killed, and the first answers in another chat:", *_told(first, frozen_log)[-1:]]
    return "".join(f"{line}\n" for line in parts)


def _told(worker: Worker, begin: int) -> list[str]:
    """What it logged since then, without what differs from run to run."""
    lines = []
    for line in worker.log[begin:].splitlines():
        match = _LINE.match(line)
        if match and match[2] in ACTIONS:
            outcome = re.search(r"outcome=(\w+)", match[4])
            message = re.sub(r"[0-9a-f]{16}__[0-9a-f]{16}", "…", match[3])
            lines.append(f"{message}{f': {outcome[1]}' if outcome else ''}")
    return lines


def main() -> None:
    """Write the transcript into the pages."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(freeze(Path(folder)))
    print(found)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(lambda match: match[1] + found + match[3], text), encoding="utf-8")


if __name__ == "__main__":
    main()
