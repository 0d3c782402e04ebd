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
from bubbot.runtime.prompt import PromptSettings, render_prompt
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.query import evaluate
from bubbot.tape.references import KERNEL_REFERENCES, ReferenceRegistry, entries_as_of
from bubbot.texts import SILENT_MARK
from bubbot.views.attachments import MAX_IMAGES, MAX_REQUEST_IMAGE_BYTES, describe_image, find_images, join_text_parts
from bubbot.views.compact import BYTES_PER_TOKEN, estimate_tokens
from bubbot.views.context import ContextView, ModelContext
from bubbot.views.memory import MAX_SECTION_CHARS, build_memory_block
from bubbot.views.selectors import MessageStyle

ANSWER_SHARE = 4
"""One part in four of a model's context is left for its answer."""
MEMORY_SHARE = 8
"""Each section of the memory block takes at most one eighth of a model's context."""


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """The settings from which a context is built.

    Attributes:
        selector: `auto` is `compact` if the model's context size is known, else `window`.
        prompt: what the system prompt is made of.
        retention_days: days after which the memory zone drops a daily note.
        recent_days: days of daily notes that the memory block shows.
        parameters: the request's parameters, passed to the model.
        images: images at most that a model with image input is shown.
        image_bytes: bytes at most of these images.
    """

    selector: str = "auto"
    prompt: PromptSettings = PromptSettings()  # noqa: RUF009 - frozen
    retention_days: int = 30
    recent_days: int = 7
    parameters: JsonObject = field(default_factory=dict)
    images: int = MAX_IMAGES
    image_bytes: int = MAX_REQUEST_IMAGE_BYTES


@dataclass(frozen=True, slots=True)
class ComposedRequest:
    """A model request and how it was made.

    Attributes:
        request: holds the bytes of images.
        model: the model it is for.
        context: the messages it shows; images are references here.
        view: the view that made it, as JSON.
        head: the newest id of the tape when it was read.
    """

    request: ModelRequest
    model: Model
    context: ModelContext
    view: JsonObject
    head: int


class RequestComposer:
    """Builds model requests from tapes."""

    def __init__(
        self,
        find_model: Callable[[Turn], Awaitable[Model]],
        settings: ContextPolicy,
        specs: Callable[[Role], tuple[ToolSpec, ...]],
    ) -> None:
        """Set the sources of a request.

        Args:
            find_model: gives the model of a turn's session.
            settings: the selector, the prompt and their limits.
            specs: gives the tools of a role in a fixed order.
        """
        self._models = find_model
        self._settings = settings
        self._specs = specs

    async def compose(self, turn: Turn, budget: int | None = None) -> ComposedRequest:
        """Build the request that the model would get next, without writing anything.

        Args:
            turn: the turn whose tape is read.
            budget: estimated tokens for the messages, if the caller knows better than the estimate.
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
        view = ContextView(selector, style, budget, ends_with_user=bool(turn.message_ids))
        context = await turn.tape.read(view)
        request = ModelRequest(system, context.messages, tools, self._settings.parameters, context.texts)
        request = await embed_images(request, turn.tape.get_blob)
        return ComposedRequest(request, model, context, view.as_json(), await turn.tape.head())

    async def _system(self, turn: Turn, traits: ModelTraits) -> str:
        settings, short = self._settings, traits.short_prompt
        zone = MemoryZone(turn.tape, now=turn.now, zone=turn.zone, retention_days=settings.retention_days)
        snapshot, today = await zone.read(), zone.today()
        has_block = snapshot.long_term or snapshot.dailies or not short
        size = traits.context_tokens
        limit = MAX_SECTION_CHARS if size is None else min(MAX_SECTION_CHARS, size * BYTES_PER_TOKEN // MEMORY_SHARE)
        memory = (
            build_memory_block(snapshot, today=today, recent_days=settings.recent_days, limit=limit)
            if has_block
            else ""
        )
        return render_prompt(settings.prompt, today=today, memory=memory, silent_mark=SILENT_MARK, short=short)


def _budget(size: int | None, system: str, tools: tuple[ToolSpec, ...]) -> int | None:
    if size is None:
        return None
    return max(request_token_limit(size) - estimate_fixed_tokens(system, tools), size // 8)


def request_token_limit(size: int) -> int:
    """Return the tokens of a context that a request may take; the rest is for the answer."""
    return size - size // ANSWER_SHARE


def estimate_fixed_tokens(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Estimate the tokens of a request that no selector can cut."""
    return estimate_tokens(system) + estimate_tokens(tools_text(tools))


def parse_tools(text: str) -> tuple[ToolSpec, ...]:
    """Parse the tool schemas of a stored text."""
    return tuple(ToolSpec(**item["function"]) for item in json.loads(text))


def rebuild_request(
    step: JsonObject,
    entries: Sequence[TapeEntry],
    *,
    tape: str,
    system: str,
    tools: str,
    references: ReferenceRegistry = KERNEL_REFERENCES,
) -> ModelRequest:
    """Rebuild the request of a `loop.step` event from the tape's entries and the two stored texts.

    Its digest equals the recorded one (after `embed_images`, if it shows images): the view is run again over the
    entries that were the tape to this step, with the ids that they had then.
    """
    view = ContextView.from_json(step["view"])
    visible = entries_as_of(tape, entries, step.get("as_of", ((1, step["head"]),)), references)
    context = view.fold([evaluate(visible, query) for query in view.queries(tape)])
    return ModelRequest(system, context.messages, parse_tools(tools), step["parameters"], context.texts)


async def embed_images(request: ModelRequest, blob: Callable[[str], Awaitable[bytes]]) -> ModelRequest:
    """Replace the digests of a request's images by their bytes, as providers take them.

    An image whose bytes are gone (erased, or imported without them) becomes a text.
    """
    if not any(type(message["content"]) is not str and find_images(message) for message in request.messages):
        return request
    messages = tuple([await _with_image_bytes(message, blob) for message in request.messages])
    return replace(request, messages=messages, texts=())


async def _with_image_bytes(message: JsonObject, blob: Callable[[str], Awaitable[bytes]]) -> JsonObject:
    images = find_images(message)
    if not images:
        return message
    parts = [await _image_url(part, blob) if part in images else part for part in message["content"]]
    return {**message, "content": join_text_parts(parts)}


async def _image_url(part: JsonObject, blob: Callable[[str], Awaitable[bytes]]) -> JsonObject:
    try:
        data = await blob(part["digest"])
    except EntryNotFound:
        return {"type": "text", "text": describe_image(part, "its bytes are gone")}
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{part['media_type']};base64,{b64encode(data).decode()}"},
    }
