"""The list of tools in a request: whole and the same in each request of a window, within a budget of tokens.

Who may call a tool is checked when it is called. The everyday tools stand in the list with their schemas; what does not
fit stays behind `tool.find`, which tells their schemas, and `tool.use`, which calls one by its name. A call through
`tool.use` is unwrapped before anything else looks at it: it is planned, decided and recorded as if it had been direct.
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
"""Estimated tokens of the schemas in a request at most, by default."""
MAX_FOUND = 5
"""Tools whose schemas one search shows."""
MIN_LIKENESS = 80
"""How alike two words have to be, of 100: `schedule` and `schedules` are."""
_WORD = re.compile(r"[^\W_]+")


class ToolFindArgs(Args, frozen=True):
    """The arguments of `tool.find`."""

    words: str = ""


class ToolUseArgs(Args, frozen=True):
    """The arguments of `tool.use`."""

    name: str
    arguments: dict[str, Any] | None = None


class ToolList:
    """The tools as models see them. Schemas are built once, since each takes a millisecond."""

    def __init__(self, toolbox: Toolbox, limit: int = SCHEMA_TOKENS) -> None:
        """Set the tools of the deployment, and the estimated tokens of schemas that a request may have."""
        self._toolbox = toolbox
        self._limit = limit
        self._doors = _make_doors(toolbox)
        self._lists: dict[frozenset[str] | None, ToolSpecs] = {}

    def find(self, name: str) -> Tool:
        """Find a tool by any of its names. Raise `ToolError` with the closest names."""
        return next((door for door in self._doors if name in door.names), None) or self._toolbox.find(name)

    def specs(self, allowed: frozenset[str] | None = None) -> ToolSpecs:
        """Return the specs of all tools for models, or of those with `allowed` names, in one order, within the budget."""
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
        for each in sorted(tools, key=lambda each: each.is_rare):  # stable: else in the order of the features
            longer = {**chosen, each.name: specs[each.name]}
            if estimate_size(ToolSpecs((*longer.values(), *doors)).encoded) <= self._limit:
                chosen = longer
        return ToolSpecs((*[spec for name, spec in specs.items() if name in chosen], *doors))


def _make_doors(toolbox: Toolbox) -> tuple[Tool, ...]:
    """Make the tools with which a model reaches those that do not stand in its list. People type commands themselves."""

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
        # A call of a tool is unwrapped before it gets here.
        raise ToolFailed(f"{args.name} cannot be called through {USE_TOOL}")

    return tool_find, tool_use


def is_callable(tool: Tool, turn: Turn) -> bool:
    """Return true if the model of a turn may call a tool: for its person, and in its sub-task."""
    if not tool.for_model or not turn.role.at_least(tool.role):
        return False
    if tool.is_reserved and turn.allowed_tools is None:
        return False
    return turn.may_call(tool.name) or tool.name in (FIND_TOOL, USE_TOOL)  # they do nothing by themselves


def unwrap_call(call: ToolCall) -> ToolCall:
    """Return the call that a call of `tool.use` stands for; any other, and one that cannot be read, as it is."""
    if call.name not in (USE_TOOL, "tool_use"):
        return call
    try:
        values = json.loads(call.arguments)
        name, arguments = values["name"], values.get("arguments") or {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return call
    if not isinstance(name, str) or set(values) - {"name", "arguments"}:
        return call
    # Some models write the inner arguments as a text.
    return ToolCall(
        call.id, name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    )


def _describe(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def _first_sentence(summary: str) -> str:
    return summary.partition(". ")[0].rstrip(".")


def _rank(tools: Sequence[Tool], words: str) -> list[Tool]:
    """Sort the tools that have any of the words, the best first: a word in the name counts most, then one in the summary."""
    # Imported here: few turns look for a tool.
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
