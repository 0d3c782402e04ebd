"""Composing a model request from the tape: the same for a turn, for `,context` and for a rebuilt request."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from bubbot.errors import EntryNotFound
from bubbot.memory import MemoryZone
from bubbot.ports.channel import Role
from bubbot.ports.model import Model, ModelRequest, ModelTraits, ToolSpec, tools_text
from bubbot.ports.turn import Turn
from bubbot.runtime.prompt import PromptSettings, render
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.query import evaluate
from bubbot.texts import SILENT_MARK
from bubbot.views.attachments import IMAGE_BYTES, IMAGES_SHOWN, image_text, images_in, joined
from bubbot.views.compact import BYTES_PER_TOKEN, estimate_tokens
from bubbot.views.context import ContextView, ModelContext
from bubbot.views.memory import SECTION_LIMIT, memory_block
from bubbot.views.selectors import MessageStyle

ANSWER_SHARE = 4
"""A quarter of a model's context is left for its answer."""
MEMORY_SHARE = 8
"""One eighth of a model's context at most for each section of the memory block."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """The selector (`auto`: `compact` where the model's context size is known, else `window`), what the prompt is
    made of, the memory block's reach, and how many images (and bytes of them) a model that sees is shown."""

    selector: str = "auto"
    prompt: PromptSettings = PromptSettings()  # noqa: RUF009 - frozen
    retention_days: int = 30
    recent_days: int = 7
    parameters: JsonObject = field(default_factory=dict)
    images: int = IMAGES_SHOWN
    image_bytes: int = IMAGE_BYTES


@dataclass(frozen=True, slots=True)
class ComposedRequest:
    """A request, the model it is for, the context it shows, the view that made it (as JSON), the head it was read at.

    In the context images are references; in the request they are their bytes.
    """

    request: ModelRequest
    model: Model
    context: ModelContext
    view: JsonObject
    head: int


class RequestComposer:
    """Builds requests. `models` gives the model of a turn's session, `specs` the tools of a role in a fixed order."""

    def __init__(
        self,
        models: Callable[[Turn], Awaitable[Model]],
        settings: ContextPolicy,
        specs: Callable[[Role], tuple[ToolSpec, ...]],
    ) -> None:
        self._models = models
        self._settings = settings
        self._specs = specs

    async def compose(self, turn: Turn, budget: int | None = None) -> ComposedRequest:
        """What the model would be shown next. Reads; never writes.

        `budget`: estimated tokens for the messages, where somebody knows better than the estimate.
        """
        model = await self._models(turn)
        traits = model.traits
        tools = self._specs(turn.role) if traits.tools else ()
        system = await self._system(turn, traits)
        selector = self._settings.selector
        if selector == "auto":
            selector = "compact" if traits.context_tokens else "window"
        style = MessageStyle(
            stamps=None if traits.short_prompt else turn.zone,
            first_assistant=traits.first_assistant,
            bootstrap=not traits.short_prompt,
            images=self._settings.images if traits.images else 0,
            image_bytes=self._settings.image_bytes,
        )
        if budget is None:
            budget = _budget(traits.context_tokens, system, tools)
        view = ContextView(selector, style, budget, asking=bool(turn.message_ids))
        context = await turn.tape.read(view)
        request = ModelRequest(system, context.messages, tools, self._settings.parameters, context.texts)
        request = await pictured(request, turn.tape.get_blob)
        return ComposedRequest(request, model, context, view.as_json(), await turn.tape.head())

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
    return max(room(size) - fixed_tokens(system, tools), size // 8)


def room(size: int) -> int:
    """The tokens of a context that a request may take, so that there is some left for its answer."""
    return size - size // ANSWER_SHARE


def fixed_tokens(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """About how many tokens of a request no selector can cut."""
    return estimate_tokens(system) + estimate_tokens(tools_text(tools))


def tools_from(text: str) -> tuple[ToolSpec, ...]:
    """The tool schemas of a kept text."""
    return tuple(ToolSpec(**item["function"]) for item in json.loads(text))


def rebuilt(step: JsonObject, entries: Sequence[TapeEntry], *, tape: str, system: str, tools: str) -> ModelRequest:
    """The request of a `loop.step` event, from the tape's entries and the two kept texts.

    Its digest equals the recorded one (after `pictured`, where it shows images): the view is run again over the
    entries up to the recorded head.
    """
    view = ContextView.from_json(step["view"])
    known = [entry for entry in entries if entry.id <= step["head"]]
    context = view.fold([evaluate(known, query) for query in view.queries(tape)])
    return ModelRequest(system, context.messages, tools_from(tools), step["parameters"], context.texts)


async def pictured(request: ModelRequest, blob: Callable[[str], Awaitable[bytes]]) -> ModelRequest:
    """The request with the bytes of its images in the place of their digests, as providers take them.

    An image whose bytes are gone (erased, or imported without them) is said in words.
    """
    if not any(type(message["content"]) is not str and images_in(message) for message in request.messages):
        return request
    messages = tuple([await _pictured(message, blob) for message in request.messages])
    return replace(request, messages=messages, texts=())


async def _pictured(message: JsonObject, blob: Callable[[str], Awaitable[bytes]]) -> JsonObject:
    images = images_in(message)
    if not images:
        return message
    parts = [await _image(part, blob) if part in images else part for part in message["content"]]
    return {**message, "content": joined(parts)}


async def _image(part: JsonObject, blob: Callable[[str], Awaitable[bytes]]) -> JsonObject:
    try:
        data = await blob(part["digest"])
    except EntryNotFound:
        return {"type": "text", "text": image_text(part, "its bytes are gone")}
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{part['media_type']};base64,{b64encode(data).decode()}"},
    }
