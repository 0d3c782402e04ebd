"""`tools.json`: every tool of a bot with everything switched on; `calls.json`: what approvals keep and show of calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec import structs

from bubbot.app.turns import build_session_deps
from bubbot.arguments.fields import Args, write_given
from bubbot.errors import BubbotError, ToolSignal
from bubbot.ports.turn import Turn
from bubbot.tool import READS_OWN, Tool, Toolbox, digest_call, plan_call, tool
from tests.all_tools import ON
from tests.doubles import START
from tests.golden.surface_stage import fixed_world, golden_stage

FEATURES = ("access.", "grant.", "audit.", "approval.", "memory.")
"""The beginnings of the tools whose calls are planned."""
OTHERS = ("post.send", "page.read", "sandbox.run", "bell.ring", "golden.plan")
"""The tools that only tests have."""
SAMPLES: Mapping[str, Any] = {
    "address": "https://example.org/a?b=c",
    "at": "2026-11-22 09:00",
    "chat": "discord:1",
    "code": "7KQ2M9XB",
    "content": "Likes tea.\nLikes “water” & naïve 漢字 😀.",
    "date": "2026-11-20",
    "id": "4242",
    "name": "helper",
    "path": "notes/a.md",
    "text": "nuts",
    "to": "discord:2",
    "zone": "Europe/Berlin",
}
"""Values of arguments by name; all others follow from the schema."""

SAMPLE_CALLS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "shell.run": {"argv": {"argv": ["make", "all"]}, "script": {"script": "make all", "seconds": 5}},
}
"""Calls of tools whose arguments exclude each other."""


class PlanArgs(Args, frozen=True):
    """A call as a model writes it."""

    name: str
    arguments: str


def write_arguments(args: Any) -> str:
    """Write the arguments of a call as approvals store them."""
    return write_given(args)


def sample_calls(each: Tool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a call with the required arguments alone, and one with all of them."""
    if each.name in SAMPLE_CALLS:
        yield from SAMPLE_CALLS[each.name].items()
        return
    schema = _plain(each.spec().parameters)
    properties: dict[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    yield "required", {name: _sample(name, properties[name]) for name in required}
    if len(required) < len(properties):
        yield "all", {name: _sample(name, kind) for name, kind in properties.items()}


def _sample(name: str, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][-1]
    match schema.get("type"):
        case "integer":
            return max(3, schema.get("minimum", 3))
        case "number":
            return 2.5
        case "boolean":
            return True
        case "array":
            return [_sample(name, schema.get("items", {}))]
        case "object":
            return {}
    return SAMPLES.get(name, f"some {name}")


def _plain(value: Any) -> Any:
    """Return JSON without the read-only mappings of schemas."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


@contextmanager
def _captured_toolbox() -> Iterator[list[Toolbox]]:
    """Keep the toolboxes of the bots that are opened in this block."""
    made: list[Toolbox] = []

    def capture(*arguments: Any) -> Any:
        built = build_session_deps(*arguments)
        made.append(built[1])
        return built

    with patch("bubbot.app.bot.build_session_deps", capture):
        yield made


async def record_tools(folder: Path) -> dict[str, Any]:
    """Describe every tool; return the descriptions by name, and the order of the names."""
    running: Any = object()  # the commands are only described
    with fixed_world() as clock, _captured_toolbox() as boxes:
        async with golden_stage(folder / "tools", clock, running=running, sections=ON):
            described = {each.name: _describe(each) for each in boxes[-1] if each.name not in OTHERS}
    return {"(order)": list(described), **described}


def _describe(each: Tool) -> dict[str, Any]:
    return {
        "commands": list(each.commands),
        "names": list(each.names),
        "summary": each.summary,
        "for_model": each.for_model,
        "role": each.role.value,
        "effect": {name: str(value) for name, value in structs.asdict(each.effect).items()},
        "is_rare": each.is_rare,
        "is_reserved": each.is_reserved,
        "runs_in_parallel": each.runs_in_parallel,
        "timeout": each.timeout,
        "has_plan": each.plan is not None,
        "has_probe": each.probe is not None,
        "help": json.loads(json.dumps(structs.asdict(each.help))),
        "spec": _spec_text(each),
        "calls": {name: _describe_call(each, values) for name, values in sample_calls(each)},
    }


def _spec_text(each: Tool) -> str:
    """Return the spec as it stands in a request; the order of keys in the schema counts, too."""
    spec = each.spec()
    return json.dumps(
        {"name": spec.name, "description": spec.description, "parameters": _plain(spec.parameters)}, ensure_ascii=False
    )


def _describe_call(each: Tool, values: dict[str, Any]) -> dict[str, Any]:
    try:
        args = each.validate(values)
    except (BubbotError, ToolSignal) as error:
        return {"arguments": values, "refused": str(error)}
    return {"arguments": values, "stored": write_arguments(args), "digest": digest_call(each, args)}


async def record_calls(folder: Path) -> dict[str, Any]:
    """Plan calls of the tools of access, approvals and memory in real turns; let a model make some that need a yes."""
    recorded: dict[str, Any] = {}

    @tool("golden.plan", effect=READS_OWN, for_model=False)
    async def golden_plan(turn: Turn, args: PlanArgs) -> str:
        """Plan a call."""
        each = boxes[-1].find(args.name)
        try:
            parsed = each.parse(args.arguments)
            plan = await plan_call(turn, each, parsed)
        except (BubbotError, ToolSignal) as error:
            return json.dumps({"refused": str(error)}, ensure_ascii=False)
        described = {name: str(value) for name, value in structs.asdict(plan.effect).items()}
        return json.dumps(
            {
                "stored": write_arguments(parsed),
                "digest": digest_call(each, parsed),
                "details": plan.details,
                "effect": described,
                "target": str(plan.target),
                "state": plan.state,
            },
            ensure_ascii=False,
        )

    with fixed_world() as clock, _captured_toolbox() as boxes:
        async with golden_stage(folder / "calls", clock, tools=(golden_plan,)) as stage:
            for text in (",remember Ann is allergic to nuts.", ",remember Likes tea.", ",memory.daily Buy nuts."):
                await stage.say(text)
            chosen = [each for each in boxes[-1] if each.name.startswith(FEATURES)]
            for each in chosen:
                for name, values in [*sample_calls(each), ("unknown argument", {"zzz": 1})]:
                    arguments = json.dumps(values, ensure_ascii=False).replace('"', '""')
                    for language in ("en", "de"):
                        said = await stage.say(
                            f',golden.plan name={each.name} arguments="{arguments}"', language=language
                        )
                        output = said["command"][0]["output"]
                        recorded[f"{each.name} ({name}, {language})"] = {"arguments": values, **json.loads(output)}
            clock.moment = START + timedelta(minutes=141)  # as of old, however many commands were added since
            for text in ("run make", "post to bob", "forget the nuts", "clear it all", "bring version 1 back"):
                await stage.say(text)
            asked = [*await stage.events("discord:1", "approval.asked")]
            recorded |= {f"(asked) {number}": _plain(data) for number, data in enumerate(asked)}
    return recorded
