"""The daemon under load: `make soak`, or python -m benchmarks.soak [--chats 200] [--messages 10000] [--json FILE].

Four parts, on this machine alone. *Load*: people in many chats on every platform talk with one daemon whose model
answers at once; in turn with it, the same work goes to `AppRuntime` without a channel. *Slow*: fifty chats and a model
that takes a second. *Joined*: messages that come so fast that several are answered together. *Provider*: a model over HTTP that refuses, cuts answers off and hangs.
Every answer is looked at.

With `--minutes 20` there is one part alone, *tended*: the daemon is backed up, reloaded and started again every minute
while people talk with it, and every backup is restored and verified.

The exit code is 1 where an answer is missing, doubled or out of order, where memory or open files grow, or where the
limit of time is reached.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.soak.parts import GROWTH, Plan, joined, load, provider, slow
from benchmarks.soak.platforms import PLATFORMS
from benchmarks.soak.process import ProcessFailed
from benchmarks.soak.table import table, verdicts
from benchmarks.soak.tended import tended

TENDED_MORE = 300.0
"""Seconds that a soak may take beyond its minutes of tending."""


def plan() -> tuple[Plan, Path | None, float]:
    """What the command line asks for: the plan, where figures go, and the limit of time in seconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="which, with commas between")
    parser.add_argument("--chats", type=int, default=200, help="over all platforms")
    parser.add_argument("--messages", type=int, default=10_000, help="over all chats")
    parser.add_argument("--rounds", type=int, default=4, help="times that daemon and runtime take turns")
    parser.add_argument("--ahead", type=int, default=4, help="messages of a chat that wait for answers at most")
    parser.add_argument("--slow-chats", type=int, default=50, help="chats that talk with the slow model; 0 for none")
    parser.add_argument("--slow-messages", type=int, default=12, help="messages of each of them")
    parser.add_argument("--joined-chats", type=int, default=20, help="chats whose messages are joined; 0 for none")
    parser.add_argument("--provider-chats", type=int, default=40, help="chats whose model is over HTTP; 0 for none")
    parser.add_argument("--provider-messages", type=int, default=10, help="messages of each of them")
    parser.add_argument("--growth", type=float, default=GROWTH, help="MB that the daemon may grow after warm-up")
    parser.add_argument("--minutes", type=float, default=0.0, help="of tending the daemon, in place of all other parts")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two rounds of tending")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that everything may take")
    parser.add_argument("--memory", action="store_true", help="show what Python holds; slower")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    given = parser.parse_args()
    platforms = tuple(given.platforms.split(","))
    unknown = [name for name in platforms if name not in PLATFORMS]
    if unknown:
        parser.error(f"there is no platform {unknown[0]}; there are {', '.join(PLATFORMS)}")
    made = Plan(
        platforms,
        chats=given.chats,
        messages=-(-given.messages // (given.chats * given.rounds)),
        rounds=given.rounds,
        ahead=given.ahead,
        slow_chats=given.slow_chats,
        slow_messages=given.slow_messages,
        joined_chats=given.joined_chats,
        provider_chats=given.provider_chats,
        provider_messages=given.provider_messages,
        growth=given.growth,
        memory=given.memory,
        minutes=given.minutes,
        every=given.every,
    )
    limit = max(given.limit, 60 * given.minutes + TENDED_MORE) if given.minutes else given.limit
    return made, given.json, limit


async def soak(given: Plan, folder: Path) -> dict[str, object]:
    """Every part's figures."""
    if given.minutes:
        return {"tended": await tended(given, folder)}
    figures: dict[str, object] = {"load": await load(given, folder)}
    if given.slow_chats:
        figures["slow"] = await slow(given, folder)
    if given.joined_chats:
        figures["joined"] = await joined(given, folder)
    if given.provider_chats:
        figures["provider"] = await provider(given, folder)
    return figures


async def _limited(given: Plan, folder: Path, seconds: float) -> dict[str, object]:
    async with asyncio.timeout(seconds):
        return await soak(given, folder)


def main() -> int:
    """Prints a table and what is wrong; the exit code."""
    given, file, seconds = plan()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        try:
            figures = asyncio.run(_limited(given, Path(name), seconds))
        except TimeoutError:
            print(f"The soak did not end within {seconds:g} seconds and was stopped.", file=sys.stderr)
            return 1
        except ProcessFailed as failed:
            print(failed, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    wrong = verdicts(figures, given)
    print(table(figures))
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    if file is not None:
        file.write_text(json.dumps({**figures, "wrong": wrong}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
