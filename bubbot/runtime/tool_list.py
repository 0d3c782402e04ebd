"""The list of tools in a request: the same in all requests of a window, within a budget of tokens.

Rights are checked when a tool is called. The list has the everyday tools with their schemas. A model finds the schemas
of the other tools with `tool.find` and calls them with `tool.use`. A call through `tool.use` is unwrapped first, then
planned, decided and recorded like a direct call.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from bubbot.arguments.fields import Args
from bubbot.errors import ToolFailed
from bubbot.ports.model import ToolCall, ToolSpec, ToolSpecs
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import estimate_size
from bubbot.tape.entry import encode
from bubbot.tool import READS_OWN, Tool, Toolbox, tool

FIND_TOOL = "tool.find"
USE_TOOL = "tool.use"
SCHEMA_TOKENS = 4_000
"""The most estimated tokens of the schemas in a request, by default."""
MAX_FOUND = 5
"""The most tools that one search shows."""
MIN_LIKENESS = 80
"""The required similarity of two words, of 100: `schedule` and `schedules` have it."""
_WORD = re.compile(r"[^\W_]+")


class ToolFindArgs(Args, frozen=True):
    """The arguments of `tool.find`."""

    words: str = ""


class ToolUseArgs(Args, frozen=True):
    """The arguments of `tool.use`."""

    name: str
    arguments: dict[str, Any] | None = None


class ToolList:
    """The tools as models see them. Each schema is built once, since that takes a millisecond."""

    def __init__(self, toolbox: Toolbox, limit: int = SCHEMA_TOKENS) -> None:
        """`limit` is the most estimated tokens of the schemas in a request."""
        self._toolbox = toolbox
        self._limit = limit
        self._doors = _make_doors(toolbox)
        self._lists: dict[frozenset[str] | None, ToolSpecs] = {}

    def find(self, name: str) -> Tool:
        """Find a tool by any of its names. Raise `ToolError` with the closest names."""
        return next((door for door in self._doors if name in door.names), None) or self._toolbox.find(name)

    def specs(self, allowed: frozenset[str] | None = None) -> ToolSpecs:
        """Return the specs of all tools, or of those with `allowed` names, in a fixed order, within the budget."""
        if (specs := self._lists.get(allowed)) is None:
            specs = self._lists[allowed] = self._choose(allowed)
        return specs

    def _choose(self, allowed: frozenset[str] | None) -> ToolSpecs:
        tools = [
            each
            for each in self._toolbox
            if each.for_model and (not each.is_reserved if allowed is None else each.name in allowed)
        ]
        specs = {each.name: each.spec() for each in tools}
        every = ToolSpecs(specs.values())
        if estimate_size(every.encoded) <= self._limit:
            return every
        doors = tuple([door.spec() for door in self._doors])
        chosen: dict[str, ToolSpec] = {}
        for each in sorted(tools, key=lambda each: each.is_rare):  # stable: otherwise in the order of the features
            longer = {**chosen, each.name: specs[each.name]}
            if estimate_size(ToolSpecs((*longer.values(), *doors)).encoded) <= self._limit:
                chosen = longer
        return ToolSpecs((*[spec for name, spec in specs.items() if name in chosen], *doors))


def _make_doors(toolbox: Toolbox) -> tuple[Tool, ...]:
    """Make the tools through which a model reaches unlisted tools. People do not need them."""

    @tool(FIND_TOOL, effect=READS_OWN)
    async def tool_find(turn: Turn, args: ToolFindArgs) -> str:
        """Find more tools than are listed, by words about what they do (none: the names of all). Call them with tool_use."""
        tools = [each for each in toolbox if is_callable(each, turn)]
        if not args.words.strip():
            return "\n".join(f"{each.provider_name}: {_first_sentence(each.summary)}" for each in tools)
        found = _rank(tools, args.words)[:MAX_FOUND]
        if not found:
            raise ToolFailed(f"no tool does that; there are {', '.join(each.provider_name for each in tools)}")
        return "\n".join(encode(_describe(each.spec())) for each in found)

    @tool(USE_TOOL, effect=READS_OWN)
    async def tool_use(turn: Turn, args: ToolUseArgs) -> str:  # noqa: ARG001 - a handler's parameters
        """Call a tool that tool_find found, with its arguments."""
        # Calls are unwrapped before they get here.
        raise ToolFailed(f"{args.name} cannot be called through {USE_TOOL}")

    return tool_find, tool_use


def is_callable(tool: Tool, turn: Turn) -> bool:
    """Return true if the model of a turn may call a tool, by the rights of its person and its sub-task."""
    if not tool.for_model or not turn.role.at_least(tool.role):
        return False
    if tool.is_reserved and turn.allowed_tools is None:
        return False
    return turn.may_call(tool.name) or tool.name in (FIND_TOOL, USE_TOOL)  # they do nothing themselves


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the call within a call of `tool.use`; return other and unreadable calls unchanged."""
    if call.name not in (USE_TOOL, "tool_use"):
        return call
    try:
        values = json.loads(call.arguments)
        name, arguments = values["name"], values.get("arguments") or {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return call
    if not isinstance(name, str) or set(values) - {"name", "arguments"}:
        return call
    # Some models write the inner arguments as text.
    return ToolCall(
        call.id, name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )


def _describe(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _first_sentence(summary: str) -> str:
    return summary.partition(". ")[0].rstrip(".")


def _rank(tools: Sequence[Tool], words: str) -> list[Tool]:
    """Sort the tools that match any word, best first: a word in the name counts most, then one in the summary."""
    # Imported here: few turns search for a tool.
    from rapidfuzz import fuzz

    def score(each: Tool) -> int:
        texts = (each.name, each.summary, str(each.spec().parameters))
        parts = [set(_WORD.findall(text.lower())) for text in texts]
        return sum(
            next((weight for weight, part in zip((4, 2, 1), parts, strict=True) if _has_word(part, word)), 0)
            for word in wanted
        )

    def _has_word(part: set[str], word: str) -> bool:
        return any(fuzz.ratio(word, other) >= MIN_LIKENESS for other in part)

    wanted = {word for word in _WORD.findall(words.lower()) if len(word) > 2} or {words.strip().lower()}
    scored = [(score(each), -place, each) for place, each in enumerate(tools)]
    return [each for points, _, each in sorted(scored, key=lambda item: item[:2], reverse=True) if points]
