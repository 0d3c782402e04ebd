"""Compose a model request from the tape: the same way for a turn, for `,context` and for a rebuilt request."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, structs

from bubbot.errors import AnchorNotFound, BubbotError, ConfigError, EntryNotFound, StrategyFailed
from bubbot.ports.agents import Agent
from bubbot.ports.model import Model, ModelRequest, ModelTraits, ToolSpec, ToolSpecs
from bubbot.ports.settings import AUTO_SELECTOR
from bubbot.ports.turn import EntryRef, Turn
from bubbot.runtime.context.attachments import (
    MAX_IMAGES,
    MAX_REQUEST_IMAGE_BYTES,
    describe_image,
    find_images,
    join_text_parts,
)
from bubbot.runtime.context.copies import (
    FindHeads,
    FindTapeHeads,
    TapeCopy,
    find_copies,
    find_no_heads,
    list_withheld,
    withhold,
)
from bubbot.runtime.context.evidence import OWN_TAPE, Evidence, find_sessions, read_evidence
from bubbot.runtime.context.ports import StrategySources
from bubbot.runtime.context.selectors import MessageStyle
from bubbot.runtime.context.strategy import (
    KERNEL_STRATEGIES,
    ContextStrategies,
    HandoffInput,
    ModelContext,
    PreparationInput,
)
from bubbot.runtime.context.tokens import estimate_size, estimate_tokens
from bubbot.runtime.context.view import CONTEXT_VERSION, ContextView, records_view
from bubbot.runtime.handoffs import ask_if_due, find_opening, run_handoff
from bubbot.runtime.preparation import PREPARE_SECONDS, TurnPreparation, describe_failure, run_preparation
from bubbot.runtime.prompt import PromptSettings, render_prompt
from bubbot.runtime.request_rules import apply_rules
from bubbot.runtime.shown import ForeignWords, QuotesAddresses, ShownTexts
from bubbot.runtime.turns import find_conversation_step, find_fit
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, objects_of, text_field
from bubbot.tape.events import EvidenceQuoted, StrategyFailure
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.provenance import VOUCHED, Source, find_foreign, find_vouched
from bubbot.tape.query import IdRanges, OpeningAnchor, Span, TapeQuery, union
from bubbot.tape.withheld import fetch_for_model

log = logging.getLogger(__name__)

MAX_START_EVENTS = 8
"""Newest events to search for a strategy's own; those of sub-tasks may be newer."""
SHORT_WINDOW = 10_000
"""Windows up to this size are read whole: a search for the entries with room would cost every step more."""
PAGE_ENTRIES, PAGE_GROWTH = 2_500, 4
"""Of a longer window: the newest entries to read first, and the factor by which to read more if they are too few."""
MAX_VOUCHED = 500
"""The newest vouching events that are read, mostly from the cached window. If a tape has more, all are read."""
REQUEST_BLOBS = ("system", "tools", "messages")
"""The fields of a step that name blobs of its request."""
ANSWER_SHARE = 4
"""One part in this many of a model's context is reserved for its answer."""


class PromptText(Struct, frozen=True):
    """A section of the system prompt.

    Attributes:
        text: the section.
        shown: the entries that it shows, as id ranges by tape.
        foreign: the shown entries whose provenance is not `own`, with it; None: not judged yet.
    """

    text: str
    shown: Mapping[str, Sequence[Span]] = msgspec.field(default_factory=dict)
    foreign: Sequence[tuple[EntryRef, Source]] | None = None


PromptSection: TypeAlias = Callable[[Turn, ModelTraits], Awaitable[str | PromptText]]
"""Build a section of the system prompt for a turn and a model; empty for none."""
ChooseSelector: TypeAlias = Callable[[Turn], Awaitable[str]]
"""Return the selector of the context strategy that a turn's chat has chosen; empty if it has chosen none."""
Withholds: TypeAlias = Callable[[Turn, EvidenceQuoted], bool]
"""Return true if a turn must not be shown now what a fact quotes, though its grants cover it."""

Recompose: TypeAlias = Callable[[Turn, JsonObject], Awaitable[tuple[ModelRequest, Mapping[str, Sequence[Span]]]]]
"""Build the request of a recorded step as this code would; see `RequestComposer.recompose`."""


def log_strategy_failure(selector: str, error: BubbotError) -> None:
    log.warning("context strategy %s failed: %s", selector, error, extra={"action": "context.strategy"})


class ContextPolicy(Struct, frozen=True):
    """The settings from which a context is built.

    Attributes:
        selector: the context strategy; see `ContextStrategies.resolve` for `auto`.
        prompt: the bot's name and persona.
        sections: the sections after the runtime contract, in their order.
        rules: further rules of the runtime contract.
        parameters: the request's parameters, passed to the model.
        images: the most images for a model with image input.
        image_bytes: the most bytes of these images together.
        strategies: the strategies that a selector may name.
        choices: return a chat's own choice; the first answer replaces the selector.
        on_strategy_failure: called with the selector if a package's strategy fails; `window` replaces it.
        sources: what the ports of a strategy reach.
        prepare_seconds: the time limit of a strategy's preparation.
        handoff_selector: the strategy that hands off in chats whose own one cannot, or fails; empty for none.
        find_heads: returns how far other tapes may be read that evidence quotes.
        withholds: evidence for which one of these returns true is not shown.
    """

    selector: str = AUTO_SELECTOR
    prompt: PromptSettings = msgspec.field(default_factory=PromptSettings)
    sections: Sequence[PromptSection] = ()
    rules: Sequence[str] = ()
    parameters: JsonObject = msgspec.field(default_factory=dict)
    images: int = MAX_IMAGES
    image_bytes: int = MAX_REQUEST_IMAGE_BYTES
    strategies: ContextStrategies = KERNEL_STRATEGIES
    choices: Sequence[ChooseSelector] = ()
    on_strategy_failure: Callable[[str, BubbotError], None] = log_strategy_failure
    sources: StrategySources = StrategySources()
    prepare_seconds: float = PREPARE_SECONDS
    handoff_selector: str = ""
    find_heads: FindHeads = find_no_heads
    withholds: Sequence[Withholds] = ()


class ComposedRequest(Struct, frozen=True):
    """A model request and its origin.

    Attributes:
        request: with the bytes of images.
        context: its messages; images are references here.
        view: the view that built it, as JSON.
        head: the newest id of the tape at that time.
        ids: the entries that the messages show, ascending.
        is_compacting: a smaller budget may make it shorter.
        prompt_shown: the entries that the system prompt shows, and those of other tapes that are quoted beside messages, as
            id ranges by tape.
        foreign: the shown entries with foreign words.
        texts: returns the shown texts, to search for addresses and words.
        strategy_failure: the failed strategy that `window` replaced, if any.
    """

    request: ModelRequest
    model: Model
    context: ModelContext
    view: JsonObject
    head: int
    ids: Sequence[int]
    is_compacting: bool = False
    prompt_shown: Mapping[str, Sequence[Span]] = msgspec.field(default_factory=dict)
    foreign: ForeignWords = msgspec.field(default_factory=ForeignWords)
    texts: Callable[[], ShownTexts] = ShownTexts
    strategy_failure: StrategyFailure | None = None

    def shown(self, tape: str) -> list[Sequence[object]]:
        """Return the entries that the model sees: id ranges of this tape, then pairs of another tape and id ranges."""
        own = [*self.ids, *ids_of(self.prompt_shown.get(tape, ()), self.head)]
        others = [name for name in self.prompt_shown if name != tape]
        spans = [list(span) for span in spans_of(own)]
        return [*spans, *[[name, [list(span) for span in self.prompt_shown[name]]] for name in sorted(others)]]


class _RequestPlan(Struct, frozen=True):
    """Everything of a request except its messages; see `ComposedRequest`."""

    model: Model
    tools: tuple[ToolSpec, ...]
    system: str
    prompt_shown: Mapping[str, Sequence[Span]]
    foreign: ForeignWords
    selector: str
    style: MessageStyle
    budget: int | None


class RequestComposer:
    """Builds model requests from tapes."""

    def __init__(
        self,
        find_model: Callable[[Turn], Awaitable[Model]],
        settings: ContextPolicy,
        specs: Callable[[frozenset[str] | None], tuple[ToolSpec, ...]],
        quotes_addresses: QuotesAddresses = lambda _tool: False,
    ) -> None:
        self._quotes = quotes_addresses
        self._models = find_model
        self._settings = settings
        self._specs = specs

    async def find_model(self, turn: Turn) -> Model:
        return await self._models(turn)

    async def compose(self, turn: Turn, budget: int | None = None) -> ComposedRequest:
        """Build the model's next request without writing anything.

        Args:
            budget: estimated tokens for the messages; None: derived from the size of the model's context.
        """
        plan = await self._plan(turn, budget)
        foreign, prompt_shown, failure = plan.foreign, plan.prompt_shown, None
        selector = plan.selector
        prepared = turn.find_metadata(TurnPreparation)
        if prepared is not None and prepared.failure is not None and prepared.failure.selector == selector:
            failure, selector = prepared.failure, "window"
        try:
            read = await self._read(turn, selector, plan.style, plan.budget)
            context = read.fold()
        except (ConfigError, AnchorNotFound) as error:  # a package's strategy must not end a turn (T12)
            if self._settings.strategies.is_own(selector):
                raise
            self._settings.on_strategy_failure(selector, error)
            failure = describe_failure(selector, error)
            read = await self._read(turn, "window", plan.style, plan.budget)
            context = read.fold()
        view, answers = read.view, [*read.answers, read.evidence.own_entries]
        quoted = read.evidence.shown_with(context.ids)
        ids = sorted({*context.ids, *ids_of(quoted.pop(OWN_TAPE, ()), 0)})
        foreign = await _find_foreign(turn.tape, answers, ids, foreign)
        for name, spans in quoted.items():
            foreign = foreign.add(name, read.evidence.shown_entries(name, spans))
        prompt_shown = _add_elsewhere(prompt_shown, [*quoted.items(), *read.list_copied(ids)])
        request = ModelRequest(plan.system, context.messages, plan.tools, self._settings.parameters, context.texts)
        request = await embed_images(request, turn.tape.get_blob)
        is_compacting = view.strategy.is_compacting
        head = await turn.tape.head()
        # Do not bind the turn: it holds this, and must not be part of a cycle.
        texts = partial(self._read_texts, turn.tape.name, answers, ids, turn.root.message_ids)
        return ComposedRequest(
            request,
            plan.model,
            context,
            view.as_json(),
            head,
            ids,
            is_compacting,
            prompt_shown,
            foreign,
            texts,
            failure,
        )

    async def prepare(self, turn: Turn) -> None:
        """Let the strategy of a turn prepare the context of the messages that it answers now, once for these messages.

        A failure is reported, and the turn goes on with `window`.
        """
        answered = tuple(turn.message_ids)
        state = turn.find_metadata(TurnPreparation)
        if turn.is_subtask or not answered or (state is not None and state.answered == answered):
            return
        model = await self._models(turn)
        selector = await self._choose_selector(turn, model.traits)
        try:
            strategy = self._settings.strategies.find(selector)
        except ConfigError:  # `compose` reports it
            return
        if strategy.prepare is None:
            return
        state = turn.metadata[TurnPreparation] = TurnPreparation(answered, denial=state.denial if state else None)
        try:
            source = await self._read_for_preparation(turn, selector)
            if any(each.messages == answered for each in source.source.find_prepared(strategy.name)):
                return  # an interrupted attempt has prepared it
            settings, is_own = self._settings, self._settings.strategies.is_own(selector)
            denial = await run_preparation(
                turn, strategy, source, settings.sources, settings.prepare_seconds, is_own=is_own
            )
            state.denial = denial or state.denial
        except (ConfigError, AnchorNotFound) as error:
            state.failure = describe_failure(selector, error)
            state.denial = (error.denial if isinstance(error, StrategyFailed) else None) or state.denial
            self._settings.on_strategy_failure(selector, error)

    async def needs_handoff(self, turn: Turn) -> bool:
        """Return true if the strategy of the turn's answer wants a turn of its own. Its failure is reported, and is a no."""
        step = find_conversation_step(turn.tape.delta)
        settings, selector = self._settings, text_field(step["view"], "selector") if step else ""
        if not selector:
            return False
        try:
            strategy = settings.strategies.find(selector)
            if strategy.is_due is None:
                return False
            source = await self._build_handoff_input(turn)
            return await ask_if_due(turn, strategy, source, settings.sources, settings.prepare_seconds)
        except ConfigError as error:
            settings.on_strategy_failure(selector, error)
            return False

    async def hand_off(self, turn: Turn, owner: str) -> list[str]:
        """Let the chat's strategy open a new window; if it cannot or fails, `handoff_selector`. Return the notices for people."""
        settings, source, told = self._settings, await self._build_handoff_input(turn), list[str]()
        chosen = await self._choose_selector(turn, ModelTraits(context_tokens=source.context_tokens))
        for selector in dict.fromkeys([chosen, settings.handoff_selector]):
            try:
                strategy = settings.strategies.find(selector)
                if strategy.hand_off is None:
                    continue
                text = await run_handoff(turn, strategy, source, settings.sources, owner)
            except ConfigError as error:  # a package's strategy must not end a turn
                settings.on_strategy_failure(selector, error)
                failure = describe_failure(selector, error)
                told.append(turn.texts.say("strategy_no_handoff", name=selector, problem=failure.problem))
                continue
            if text is None:
                return [*told, turn.texts.say("summary_nothing")] if turn.is_typed else told
            return [*told, text] if text else told
        return told

    async def _build_handoff_input(self, turn: Turn) -> HandoffInput:
        try:
            size = (await self._models(turn)).traits.context_tokens
        except BubbotError:  # a handoff may do without the model
            size = None
        opening = await find_opening(turn)
        return HandoffInput(turn.tape.name, opening, turn.now(), turn.zone, turn.texts, size)

    async def _read_for_preparation(self, turn: Turn, selector: str) -> PreparationInput:
        plan = await self._plan(turn)
        read = await self._read(turn, selector, plan.style, plan.budget)
        source, _ = read.view.read_input(read.answers, read.evidence)
        asked = TapeQuery(turn.tape.name, IdRanges(tuple(spans_of(turn.message_ids))))
        answered = (await turn.tape.fetch([asked]))[0]
        size = plan.model.traits.context_tokens
        return PreparationInput(turn.tape.name, source, answered, turn.now(), turn.zone, size)

    async def _plan(self, turn: Turn, budget: int | None = None) -> _RequestPlan:
        """Choose everything of the next request except its messages; `budget` as in `compose`."""
        model = await self._models(turn)
        traits = model.traits
        # All requests in a window have the same list of tools; a sub-task may have its own list.
        has_own_tools = turn.is_subtask or turn.agent.tools is not None
        tools = self._specs(turn.allowed_tools if has_own_tools else None) if traits.tools else ()
        system, prompt_shown, foreign = await self._system(turn, traits)
        selector = await self._choose_selector(turn, traits)
        style = MessageStyle(
            stamps=None if traits.short_prompt else turn.zone,
            first_assistant=traits.first_assistant,
            bootstrap=not traits.short_prompt,
            images=self._settings.images if traits.images else 0,
            image_bytes=self._settings.image_bytes,
            tools=traits.tools,
        )
        if budget is None:
            budget = _budget(traits.context_tokens, system, tools)
        return _RequestPlan(model, tools, system, prompt_shown, foreign, selector, style, budget)

    async def _read(self, turn: Turn, selector: str, style: MessageStyle, budget: int | None) -> ContextReading:
        """Read what the context of the next request is built from.

        Raises:
            ConfigError: the strategy cannot be loaded, or fails.
            AnchorNotFound: the tape has no such part.
        """
        view = ContextView(
            selector,
            style,
            budget,
            ends_with_user=bool(turn.message_ids),
            answered=tuple(turn.message_ids),
            fork=turn.tape.id if turn.is_subtask else "",
            strategies=self._settings.strategies,
            agent=turn.agent.viewer,
        )
        view = await narrow_view(turn.tape, view)
        settings = self._settings
        return await read_context(
            turn.tape,
            view,
            lambda sessions: settings.find_heads(turn, sessions),
            lambda quoted: any(withholds(turn, quoted) for withholds in settings.withholds),
        )

    async def recompose(self, turn: Turn, step: JsonObject) -> tuple[ModelRequest, Mapping[str, Sequence[Span]]]:
        """Build the request of a recorded answering step with the current prompt, tools and messages.

        Strategy, budget and style are those of the step; the strategy runs in its current version.

        Args:
            turn: a turn whose tape is as it was for the step.
            step: the data of its `loop.step`.

        Returns:
            The request, with the digests of images, and the entries that the system prompt shows, as id ranges by tape.

        Raises:
            ConfigError: the strategy no longer exists.
        """
        strategies = self._settings.strategies
        strategy = strategies.find(step["view"]["selector"])
        current = {"strategy_version": strategy.version, "version": CONTEXT_VERSION}
        view = ContextView.from_json({**step["view"], **current}, strategies)
        traits = ModelTraits(short_prompt=not view.style.bootstrap, tools=view.style.tools)
        system, shown, _ = await self._system(turn, traits)
        context = (await read_context(turn.tape, await narrow_view(turn.tape, view))).fold()
        tools = self._specs(None) if traits.tools else ()
        return ModelRequest(system, context.messages, tools, self._settings.parameters, context.texts), shown

    async def judge(self, tape: TapeHandle, ids: Sequence[int]) -> ForeignWords:
        """Find the entries with foreign words among these."""
        if not ids:
            return ForeignWords()
        entries = (await tape.fetch([TapeQuery(tape.name, IdRanges(tuple(spans_of(ids))))]))[0]
        return await _without_vouched(tape, ForeignWords(), find_foreign(entries))

    def _read_texts(
        self, tape: str, answers: Sequence[Sequence[TapeEntry]], ids: Sequence[int], answered: Sequence[int]
    ) -> ShownTexts:
        shown = set(ids)
        entries = {entry.id: entry for part in answers for entry in part if entry.id in shown}
        return ShownTexts(tape, [entries[each] for each in sorted(entries)], self._quotes, answered)

    async def _choose_selector(self, turn: Turn, traits: ModelTraits) -> str:
        """Return the selector of the turn's agent, else that which its chat chose, else the configured one."""
        selector = self._settings.selector
        for choose in (_choose_of_agent, *self._settings.choices):
            if chosen := await choose(turn):
                if self._settings.strategies.has(chosen):
                    selector = chosen
                    break
                log.warning("no such context strategy: %s", chosen, extra={"action": "context.strategy"})
        return self._settings.strategies.resolve(selector, traits.context_tokens)

    async def _system(self, turn: Turn, traits: ModelTraits) -> tuple[str, Mapping[str, Sequence[Span]], ForeignWords]:
        """Build the system prompt; return it with the entries it shows and those with foreign words."""
        settings = self._settings
        sections: list[str] = []
        shown: dict[str, Sequence[Span]] = {}
        foreign = ForeignWords()
        for build in settings.sections:
            section = await build(turn, traits)
            if isinstance(section, PromptText):
                shown |= {tape: (*shown.get(tape, ()), *spans) for tape, spans in section.shown.items()}
                if section.foreign is None or section.foreign:
                    foreign = await _add_section(turn.tape, foreign, section)
                section = section.text
            sections.append(section)
        sections += [accepted.inbound.instructions for accepted in turn.inbounds]
        today = turn.now().astimezone(turn.zone).date()
        agent = turn.agent
        prompt = render_prompt(
            _choose_prompt(settings.prompt, agent),
            today=today,
            sections=[section for section in sections if section],
            rules=settings.rules,
            short=traits.short_prompt,
        )
        return prompt, shown, foreign


def _choose_prompt(prompt: PromptSettings, agent: Agent) -> PromptSettings:
    """Return name and persona of who answers; the bot itself may try another persona."""
    if agent.name:
        return PromptSettings(agent.title, agent.persona)
    return structs.replace(prompt, persona=agent.persona) if agent.persona else prompt


async def _choose_of_agent(turn: Turn) -> str:
    return turn.agent.strategy


async def narrow_view(tape: TapeHandle, view: ContextView) -> ContextView:
    """Restrict the view to the entries that its strategy needs; its result stays the same.

    They begin at the start that the newest event of the strategy names and go back no further than the budget reaches.
    The search goes back from the newest entry page by page: a window that was never cut may be as long as the tape.
    """
    strategy, fork = view.strategy, view.fork
    if not strategy.start_event:
        return view
    newest = TapeQuery(
        tape.name, kinds=(Kind.EVENT,), names=(strategy.start_event,), newest=True, limit=MAX_START_EVENTS
    )
    opening, events = await tape.fetch([TapeQuery(tape.name, OpeningAnchor(fork), missing="empty"), newest])
    own = [event for event in events if view.is_for_viewer(event)]
    if (start := strategy.find_start(opening, own, fork)) is not None:
        view = replace(view, spans=((start, None),))
    first = opening[0].id if start is None and opening else start or 0
    limit = PAGE_ENTRIES
    if view.budget is None or await tape.head() - first <= SHORT_WINDOW:
        return view
    if start is None and len(events) == MAX_START_EVENTS:  # an older event may count
        return view
    while True:
        page = (await tape.fetch([view.newest_query(tape.name, limit)]))[0]
        floor = view.find_floor(page)
        if floor is not None and floor > first:
            facts = [(event.id, event.id) for event in own if first < event.id < floor]
            return replace(view, spans=union([*facts, (floor, None)]))
        if floor is not None or len(page) < limit:
            return view
        limit *= PAGE_GROWTH


def _add_elsewhere(
    shown: Mapping[str, Sequence[Span]], further: Iterable[tuple[str, Sequence[Span]]]
) -> Mapping[str, Sequence[Span]]:
    """Add id ranges of other tapes to those that are shown."""
    result = dict(shown)
    for tape, spans in further:
        result[tape] = union([*result.get(tape, ()), *spans])
    return result


async def _add_section(tape: TapeHandle, foreign: ForeignWords, section: PromptText) -> ForeignWords:
    """Add the foreign entries that a section of the system prompt shows."""
    if section.foreign is not None:
        return foreign.add_sources(section.foreign)
    for name, spans in section.shown.items():
        foreign = foreign.add(name, (await tape.fetch([TapeQuery(name, IdRanges(tuple(spans)))]))[0])
    return foreign


async def _find_foreign(
    tape: TapeHandle, answers: Sequence[Sequence[TapeEntry]], ids: Sequence[int], prompt: ForeignWords
) -> ForeignWords:
    """Find the shown entries with foreign words; add them to those of the system prompt."""
    found = [entry for part in answers for entry in find_foreign(part)]
    if not (found or prompt):
        return prompt
    shown = set(ids)
    return await _without_vouched(tape, prompt, [entry for entry in found if entry.id in shown])


async def _without_vouched(tape: TapeHandle, foreign: ForeignWords, found: Sequence[TapeEntry]) -> ForeignWords:
    """Add foreign entries of a tape, except those that owners vouched for."""
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(VOUCHED,), newest=True, limit=MAX_VOUCHED)
    events = (await tape.fetch([query]))[0]
    if len(events) == MAX_VOUCHED:
        events = (await tape.fetch([TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(VOUCHED,))]))[0]
    vouched = find_vouched(events)
    if not vouched:
        return foreign.add_found(tape.name, found)
    kept = [entry for entry in found if entry.id not in vouched]
    return foreign.without(tape.name, vouched).add_found(tape.name, kept)


class ContextReading(Struct, frozen=True):
    """What a context is built from.

    Attributes:
        view: the view that builds it, with the heads of other tapes and the withheld entries.
        answers: the entries of the tape that were read, without the words of those.
        evidence: what is quoted beside messages.
        copies: the entries that are made of entries of other tapes, without the withheld ones.
    """

    view: ContextView
    answers: Sequence[Sequence[TapeEntry]]
    evidence: Evidence
    copies: Sequence[TapeCopy] = ()

    def fold(self) -> ModelContext:
        """Build the context. Raise `ConfigError` if the strategy fails."""
        return self.view.fold(self.answers, self.evidence)

    def list_copied(self, ids: Sequence[int]) -> list[tuple[str, Sequence[Span]]]:
        """List the entries of other tapes on which some of these entries rest, as id ranges by tape."""
        shown = {*ids} if self.copies else ()
        return [pair for copy in self.copies if copy.entry.id in shown for pair in copy.sources.items()]


async def read_context(
    tape: TapeHandle,
    view: ContextView,
    find_heads: FindTapeHeads | None = None,
    withholds: Callable[[EvidenceQuoted], bool] | None = None,
    *,
    is_rebuilt: bool = False,
) -> ContextReading:
    """Read what a context is built from: the part of the tape, the evidence in it and the strategy's further queries.

    Args:
        find_heads: returns how far other tapes may be read now, by the sessions of the tapes; None: as the view says.
        withholds: returns true for a fact of whose evidence nothing may be shown now; None: as the view says.
        is_rebuilt: the request is an old one: what it did not show is not shown, though it may be read now.
    """
    answers: list[Sequence[TapeEntry]] = [*await fetch_for_model(tape, view.queries(tape.name))]
    facts = view.find_evidence(answers)
    if facts and withholds is not None:
        view = replace(view, withheld=tuple([fact.id for fact, quoted in facts if withholds(quoted)]))
    if find_heads is not None and (sessions := find_sessions(facts)):
        now = await find_heads(sessions)
        if is_rebuilt:
            now = {name: view.heads.get(name, 0) if now.get(name) else 0 for name in sessions}
        view = replace(view, heads=now)
    evidence = await read_evidence(tape, facts, view.heads, view.withheld)
    if further := view.further_queries(tape.name, answers):
        answers += await fetch_for_model(tape, further)
    copies = [copy for part in answers for copy in find_copies(tape.name, part)]
    if copies and find_heads is not None:
        withheld = await list_withheld(tape, copies, find_heads)
        view = replace(view, withheld=tuple(sorted({*view.withheld, *withheld})))
    if hidden := [copy.entry.id for copy in copies if copy.entry.id in view.withheld]:
        answers = [withhold(part, hidden) for part in answers]
        copies = [copy for copy in copies if copy.entry.id not in hidden]
    return ContextReading(view, answers, evidence, copies)


def _budget(size: int | None, system: str, tools: tuple[ToolSpec, ...]) -> int | None:
    if size is None:
        return None
    return max(request_token_limit(size) - estimate_fixed_tokens(system, tools), size // 8)


def request_token_limit(size: int) -> int:
    """Return the tokens of a context that a request may use; the answer gets the rest."""
    return size - size // ANSWER_SHARE


def estimate_fixed_tokens(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Estimate the tokens of a request that no strategy can reduce."""
    return estimate_tokens(system) + estimate_size(ToolSpecs.of(tools).encoded)


@lru_cache(maxsize=8)
def parse_tools(text: str | bytes) -> tuple[ToolSpec, ...]:
    """Parse the tool schemas of a stored text. The requests of a tape mostly have the same ones."""
    return ToolSpecs([ToolSpec(**item["function"]) for item in json.loads(text)])


def find_recorded_part(step: JsonObject) -> Sequence[Sequence[int]]:
    """Return the id ranges that a recorded step read as its tape; early versions recorded only the head."""
    spans = step.get("as_of", ((1, step.get("head", 0)),))
    return spans if isinstance(spans, (list, tuple)) else ()


async def rebuild_request(
    step: JsonObject,
    tape: TapeHandle,
    *,
    strategies: ContextStrategies = KERNEL_STRATEGIES,
    find_heads: FindTapeHeads | None = None,
    hides_prompt: bool = False,
) -> ModelRequest:
    """Rebuild the request of a `loop.step` event from its tape.

    Its digest equals the recorded one (after `embed_images`, if it shows images): the view reads the tape as it was
    then, with the ids of that time.

    Args:
        find_heads: returns how far other tapes may be read now, by the sessions of the tapes: a chat that may not read one
            any more does not see it in an old request either. None: whoever asks may read them all.
        hides_prompt: whoever asks may not read the system prompt: leave it empty, and do not read it.

    Raises:
        ConfigError: the strategy that built it is missing.
        EntryNotFound: the system prompt or the tool schemas are gone, or the step only records what a call cost.
    """
    if not has_request(step):
        raise EntryNotFound("the request of this step was not kept")
    try:
        system = "" if hides_prompt else (await tape.get_blob(step["system"])).decode()
        tools = (await tape.get_blob(step["tools"])).decode()
        specs = parse_tools(tools)
        if "messages" in step:  # of a call for a purpose: no view builds its messages
            messages = json.loads(await tape.get_blob(step["messages"]))["messages"]
            return ModelRequest(system, tuple(messages), specs, step["parameters"])
    except (ValueError, LookupError, TypeError) as error:  # an imported step may name any blob
        raise EntryNotFound("the request of this step cannot be read") from error
    view = ContextView.from_json(step["view"], strategies)
    recorded = await tape.as_of(find_recorded_part(step))

    try:
        context = (await read_context(recorded, await narrow_view(recorded, view), find_heads, is_rebuilt=True)).fold()
    except AnchorNotFound as error:
        raise EntryNotFound(f"the window of this step is not on the tape: {error}") from error
    return ModelRequest(system, context.messages, specs, step["parameters"], context.texts)


class SentRequest(Struct, frozen=True):
    """The request of a recorded step.

    Attributes:
        composed: as it was built from the tape.
        sent: as the model that answered, or the last one that was asked, got it: `composed`, changed for that model.
            Images are references.
        is_equal: both equal the recorded ones, byte for byte.
    """

    composed: ModelRequest
    sent: ModelRequest
    is_equal: bool


async def rebuild_sent(
    step: JsonObject,
    tape: TapeHandle,
    *,
    strategies: ContextStrategies = KERNEL_STRATEGIES,
    find_heads: FindTapeHeads | None = None,
    hides_prompt: bool = False,
) -> SentRequest:
    """Rebuild the request of a `loop.step` as it was sent; see `rebuild_request`.

    Raises:
        ConfigError: the strategy that built it is missing, or a rule that changed it is unknown.
        EntryNotFound: the system prompt or the tool schemas are gone, or the step only records what a call cost.
    """
    composed = await rebuild_request(
        step, tape, strategies=strategies, find_heads=find_heads, hides_prompt=hides_prompt
    )
    whole = await embed_images(composed, tape.get_blob)
    is_equal = whole.digest() == step["request"]
    if not (fit := find_fit(step)):
        return SentRequest(composed, composed, is_equal)
    rules = [text_field(rule, "rule") for rule in objects_of(fit.get("rules"))]
    parameters = fit.get("parameters", {})
    sent, sent_whole = (replace(apply_rules(rules, each), parameters=parameters) for each in (composed, whole))
    return SentRequest(composed, sent, is_equal and sent_whole.digest() == fit.get("request"))


def has_request(step: JsonObject) -> bool:
    """Return true if the data of a step names everything that its request is rebuilt from.

    A discarded fork loses it, earlier versions recorded only a part, and an imported step may hold anything.
    """
    if not all(type(step.get(name)) is str for name in ("system", "tools", "request")):
        return False
    if not isinstance(step.get("parameters"), Mapping):
        return False
    if "messages" in step:
        return type(step["messages"]) is str
    return records_view(step)


async def detach_step(
    step: JsonObject, fork: ForkedTape, *, strategies: ContextStrategies = KERNEL_STRATEGIES
) -> JsonObject:
    """Build the data of a step of a discarded fork so that it needs no entry of the fork.

    Its messages become a blob, since no view can build them any more, and it names the entries from before the fork. If
    its request cannot be rebuilt, drop all of that.
    """
    base = fork.base
    facts = {**step, "view": {}, "head": base, "as_of": [[1, base]] if base else []}
    facts["shown"] = [span for each in step["shown"] if (span := _before(each, base)) is not None]
    if "foreign" in step:
        facts["foreign"] = {
            source: [pair for pair in pairs if pair[0] != fork.name or pair[1] <= base]
            for source, pairs in step["foreign"].items()
        }
    try:
        request = await rebuild_request(step, fork, strategies=strategies)
    except (ConfigError, EntryNotFound):
        return {name: value for name, value in facts.items() if name not in REQUEST_BLOBS}
    messages = canonical({"messages": list(request.messages)}).encode()
    return {**facts, "messages": await fork.put_blob(messages)}


def _before(span: Sequence[Any], base: int) -> Sequence[Any] | None:
    """Cut a shown range to the entries up to `base`; None if nothing is left. Keep ranges of other tapes."""
    if type(span[0]) is str:
        return span
    low, high = span
    return None if low > base else [low, min(high, base)]


async def embed_images(request: ModelRequest, blob: Callable[[str], Awaitable[bytes]]) -> ModelRequest:
    """Replace the digests of a request's images by their bytes, as providers expect them.

    An image without bytes (erased or imported) becomes a text.
    """
    nested = [message for message in request.messages if type(message["content"]) is not str]
    if not any(find_images(message) for message in nested):
        return request
    messages = tuple([await _with_image_bytes(message, blob) for message in request.messages])
    if not request.texts:
        return replace(request, messages=messages)
    pairs = zip(request.messages, messages, request.texts, strict=True)
    # An image is large: encode its message only once, here, for everything that needs the bytes of the request.
    texts = tuple(text if new is old else canonical(new).encode() for old, new, text in pairs)
    return replace(request, messages=messages, texts=texts)


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
