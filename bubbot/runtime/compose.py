"""Composing a model request from the tape: the same for a turn, for `,context` and for a rebuilt request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bubbot.channel import Role
from bubbot.memory import MemoryZone
from bubbot.model import Model, ModelRequest, ModelTraits, ToolSpec
from bubbot.runtime.prompt import PromptSettings, render
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.query import evaluate
from bubbot.texts import SILENT_MARK
from bubbot.turn import Turn
from bubbot.views.compact import BYTES_PER_TOKEN, estimate_tokens
from bubbot.views.context import Context, ContextView
from bubbot.views.memory import SECTION_LIMIT, memory_block
from bubbot.views.selectors import Style

ANSWER_SHARE = 4
"""A quarter of a model's context is left for its answer."""
MEMORY_SHARE = 8
"""One eighth of a model's context at most for each section of the memory block."""


@dataclass(frozen=True, slots=True)
class ComposeSettings:
    """The selector (`auto`: `compact` where the model's context size is known, else `window`), what the prompt is
    made of, and the memory block's reach."""

    selector: str = "auto"
    prompt: PromptSettings = PromptSettings()  # noqa: RUF009 - frozen
    retention_days: int = 30
    recent_days: int = 7
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Composed:
    """A request, the model it is for, the context it shows, the view that made it (as JSON), the head it was read at."""

    request: ModelRequest
    model: Model
    context: Context
    view: JsonObject
    head: int


class Composer:
    """Builds requests. `models` gives the model of a turn's session, `specs` the tools of a role in a fixed order."""

    def __init__(
        self,
        models: Callable[[Turn], Awaitable[Model]],
        settings: ComposeSettings,
        specs: Callable[[Role], tuple[ToolSpec, ...]],
    ) -> None:
        self._models = models
        self._settings = settings
        self._specs = specs

    async def compose(self, turn: Turn) -> Composed:
        """What the model would be shown next. Reads; never writes."""
        model = await self._models(turn)
        traits = model.traits
        tools = self._specs(turn.role) if traits.tools else ()
        system = await self._system(turn, traits)
        selector = self._settings.selector
        if selector == "auto":
            selector = "compact" if traits.context_tokens else "window"
        style = Style(
            stamps=None if traits.short_prompt else turn.zone,
            first_assistant=traits.first_assistant,
            bootstrap=not traits.short_prompt,
        )
        view = ContextView(selector, style, _budget(traits.context_tokens, system, tools))
        context = await turn.tape.read(view)
        request = ModelRequest(system, context.messages, tools, self._settings.parameters)
        return Composed(request, model, context, view.as_json(), await turn.tape.head())

    async def _system(self, turn: Turn, traits: ModelTraits) -> str:
        settings, short = self._settings, traits.short_prompt
        zone = MemoryZone(turn.tape, now=turn.now, zone=turn.zone, retention_days=settings.retention_days)
        snapshot, today = await zone.read(), zone.today()
        worth = snapshot.long_term or snapshot.dailies or not short
        size = traits.context_tokens
        limit = SECTION_LIMIT if size is None else min(SECTION_LIMIT, size * BYTES_PER_TOKEN // MEMORY_SHARE)
        memory = memory_block(snapshot, today=today, recent_days=settings.recent_days, limit=limit) if worth else ""
        return render(settings.prompt, today=today, memory=memory, silent=SILENT_MARK, short=short)


def _budget(size: int | None, system: str, tools: tuple[ToolSpec, ...]) -> int | None:
    if size is None:
        return None
    return max(size - size // ANSWER_SHARE - estimate_tokens(system) - estimate_tokens(tools_text(tools)), size // 8)


def tools_text(tools: tuple[ToolSpec, ...]) -> str:
    """The tool schemas as they are kept beside the tape, by digest."""
    return json.dumps([tool.as_json() for tool in tools], ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def tools_from(text: str) -> tuple[ToolSpec, ...]:
    """The tool schemas of a kept text."""
    return tuple(ToolSpec(**item["function"]) for item in json.loads(text))


def rebuilt(step: JsonObject, entries: Sequence[TapeEntry], *, tape: str, system: str, tools: str) -> ModelRequest:
    """The request of a `loop.step` event, from the tape's entries and the two kept texts.

    Its digest equals the recorded one: the view is run again over the entries up to the recorded head.
    """
    view = ContextView.from_json(step["view"])
    known = [entry for entry in entries if entry.id <= step["head"]]
    context = view.fold([evaluate(known, query) for query in view.queries(tape)])
    return ModelRequest(system, context.messages, tools_from(tools), step["parameters"])
