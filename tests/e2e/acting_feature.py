"""A feature for tests, as a package offers one: tools whose acts a service over HTTP counts, and which may need a yes."""

from __future__ import annotations

from pathlib import Path

import aiohttp
from pydantic import Field

from bubbot.arguments.fields import Args
from bubbot.feature import Feature, FeatureFactory, Kernel
from bubbot.ports.settings import SettingsSection
from bubbot.ports.turn import Turn
from bubbot.tape.provenance import Source
from bubbot.tool import CallPlan, Effect, GrantKind, GrantTarget, Repeat, Tool, tool
from tests.installed import installed


class ActingSettings(SettingsSection):
    """`[acting]`: where acts are counted."""

    address: str = Field(default="", description="The address of the service.")


class ActArgs(Args, frozen=True):
    """What to do."""

    text: str


def acting_tools(address: str) -> list[Tool]:
    """Make a tool for each way in which an effect may be repeated, and one that is asked for each time.

    The first ones act for the recipient `log`, so that one standing grant covers them.
    """

    async def act(kind: str, text: str, key: str) -> str:
        body = {"kind": kind, "text": text, "key": key}
        async with aiohttp.ClientSession(raise_for_status=True) as client, client.post(address, json=body):
            pass
        return f"did {text}"

    def build(name: str, once: Repeat, recipient: str) -> Tool:
        effect = Effect(source=Source.OWN, once=once)
        kind = name.partition(".")[2]

        async def look(turn: Turn, args: ActArgs) -> str | None:
            async with aiohttp.ClientSession() as client, client.get(address, params={"key": turn.effect_key}) as reply:
                return f"had done {args.text}" if reply.status == 200 else None

        async def plan(_turn: Turn, args: ActArgs) -> CallPlan:
            return CallPlan(effect, args.text, GrantTarget(GrantKind.RECIPIENT, recipient))

        @tool(name, effect=effect, plan=plan, probe=look if once is Repeat.PROBE else None)
        async def run(turn: Turn, args: ActArgs) -> str:
            """Act on the service."""
            return await act(kind, args.text, turn.effect_key)

        return run

    return [*(build(f"act.{once}", once, "log") for once in Repeat), build("act.post", Repeat.NEVER, "people")]


def build(_kernel: Kernel, settings: ActingSettings) -> Feature:
    """Build the feature."""
    return Feature(name="acting", tools=acting_tools(settings.address))


FACTORY = FeatureFactory("acting", build, ActingSettings)


def install(folder: Path) -> dict[str, str]:
    """Put the package into a folder; return the environment of a program that finds it."""
    installed(folder, "bubbot-acting", "1.0", "[bubbot.features]\nacting = tests.e2e.acting_feature:FACTORY\n")
    return {"PYTHONPATH": str(folder)}
