"""A bot put together from its real parts over any store, with a channel that keeps what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.reading import head_finder
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.app.turns import find_agents
from bubbot.errors import ConfigError, DeliveryFailed, FetchFailed
from bubbot.feature import Feature, ReadSession
from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.feature import agents_feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.approvals.facts import SESSION_EVENTS
from bubbot.features.attachments.commands import file_tools
from bubbot.features.attachments.intake import AttachmentIntake
from bubbot.features.conversation.feature import conversation_feature
from bubbot.features.conversation.reset import FindCopies
from bubbot.features.memory.changes import ZONE_EVENTS
from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.memory.memories import MemorySources
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.shared_zone import SharedZones
from bubbot.features.search.feature import search_feature
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.topics.feature import topics_feature
from bubbot.features.topics.names import RESERVED_PREFIXES
from bubbot.features.topics.settings import TopicSettings
from bubbot.features.topics.view import find_current_topic, find_visits
from bubbot.features.why.feature import why_feature
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime, make_channel_runtime
from bubbot.gateway.directory import ChannelDirectory
from bubbot.gateway.files import outgoing_blob_reader
from bubbot.gateway.inbound import InboundGate
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.gateway.outbound import Deliverer, RetryPolicy
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.gateway.previews import PreviewSink
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import (
    Attachment,
    Inbound,
    MessagePart,
    Outbound,
    Preview,
    Receipt,
    Receive,
    Role,
    Sender,
)
from bubbot.ports.health import HealthReport
from bubbot.ports.memory import InstalledMemory
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ModelTraits
from bubbot.ports.people import FindOwners
from bubbot.ports.turn import Turn, TurnResult
from bubbot.ports.usage import SpentTotal
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.calls import ToolCallRunner, ToolLimits
from bubbot.runtime.compose import ContextPolicy, RequestComposer, rebuild_request
from bubbot.runtime.lessons import ModelLessons
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.models import SessionModels
from bubbot.runtime.queue import QueuePolicy
from bubbot.runtime.recovery import OpenWork, find_open_work
from bubbot.runtime.router import InputRouter
from bubbot.runtime.runner import ModelRunner, RunnerSettings
from bubbot.runtime.session import SessionDeps
from bubbot.runtime.tool_list import ToolList
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.lease import InProcessLease
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import Clock
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.shards import count_shards, shard_tapes
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import Tool, Toolbox
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import read_no_session
from tests.strategy_tools import make_choice_tool

WAIT = 60.0
"""Seconds any wait of these tests may take."""
CHANNEL = "test"
HOME = "test:home"
TRACE_EVENTS = (*ZONE_EVENTS, *SESSION_EVENTS)
"""The events of features with texts of sessions."""


class Played(ScriptedModel):
    """A scripted model that plays its steps one after another, whatever it is asked; the last stands for the rest."""

    def __init__(self, *steps: Mapping[str, Any], traits: ModelTraits | None = None) -> None:
        super().__init__(traits=traits)
        self._steps = list(steps)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self._default = [self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]]
        async for item in super().stream(request):
            yield item


class Replying(ScriptedModel):
    """A model whose stream is made by a function; `requests` are kept as the scripted one does."""

    def __init__(self, stream: Callable[[ModelRequest], AsyncIterator[ModelEvent]]) -> None:
        super().__init__()
        self._made = stream

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        async for item in self._made(request):
            yield item


def replying(*replies: ModelReply) -> Replying:
    """A model that gives these replies, one for each request."""
    left = list(replies)

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield left.pop(0)

    return Replying(stream)


def says(text: str) -> dict[str, Any]:
    """A step that answers."""
    return {"text": text}


def calls(name: str, /, *, call_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    """A step that calls one tool."""
    call: dict[str, Any] = {"name": name, "arguments": arguments}
    return {"calls": [call if call_id is None else {**call, "id": call_id}]}


class KeptChannel:
    """See `Channel` and `FetchesAttachments`. `sent` are the parts that went out; each error of `failures` meets one sending,
    oldest first. `files` are what can be fetched, `fetched` what was asked for, `received` the files that went out."""

    def __init__(self, name: str = CHANNEL) -> None:
        self.name = name
        self.sent: list[MessagePart] = []
        self.failures: list[DeliveryFailed] = []
        self.limit = 1_000_000
        self.files: dict[str, bytes | list[bytes | BaseException]] = {}
        self.fetched: list[str] = []
        self.received: dict[str, bytes] = {}
        self.blob: Callable[[str], Awaitable[bytes]]

    async def run(self, receive: Receive) -> None:
        """Receives nothing by itself."""
        await asyncio.Event().wait()

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Cut every `limit` characters."""
        text = outbound.text
        pieces = [text[start : start + self.limit] for start in range(0, len(text), self.limit)] or [""]
        files = [
            MessagePart(outbound.chat, "", outbound.thread, outbound.reply_to, file=file) for file in outbound.files
        ]
        if files and not text:
            pieces = []
        return [*(MessagePart(outbound.chat, piece, outbound.thread, outbound.reply_to) for piece in pieces), *files]

    async def send(self, part: MessagePart) -> Receipt:
        """Keeps the part."""
        if self.failures:
            raise self.failures.pop(0)
        if part.file:
            file = part.file
            self.received[file.name] = file.text.encode() if file.text else await self.blob(file.digest)
        self.sent.append(part)
        return Receipt(f"p{len(self.sent)}")

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """What the platform has under the reference: bytes, or errors that come first. Stops reading at the limit."""
        self.fetched.append(attachment.reference)
        waiting = self.files[attachment.reference]
        found = waiting.pop(0) if isinstance(waiting, list) else waiting
        if isinstance(found, BaseException):
            raise found
        if len(found) > limit:
            raise FetchFailed(f"it has more than {limit} bytes")
        return found

    @property
    def texts(self) -> list[str]:
        """What people have read."""
        return [part.text for part in self.sent]


def no_other(name: str) -> Model:
    """For benches with one model."""
    raise ConfigError(f"there is no model {name}")


async def spent_nothing(_chat: str) -> Mapping[str, SpentTotal]:
    """For benches that count nothing."""
    return {}


async def return_at_once(*_: object) -> None:
    """For benches that wait for nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a bench is made with, where a test needs something else than usual. With `rules` it is a line as the daemon
    has them, and `role`, `waits` and (where the channel can show answers) `show` do not count."""

    tools: Sequence[Tool] = ()
    role: Role = Role.OWNER
    role_of: Callable[[Inbound], Role] | None = None
    compose: ContextPolicy = field(default_factory=lambda: ContextPolicy(strategies=OWN_STRATEGIES))
    calls: ToolLimits = field(default_factory=ToolLimits)
    run: RunnerSettings = field(default_factory=RunnerSettings)
    at_once: int = 8
    waits: Sequence[float] = ()
    zone: ZoneInfo = ZoneInfo("UTC")  # noqa: RUF009 - never changes
    show: Callable[[str, Preview], None] | None = None
    load: Callable[[str], Model] = no_other
    texts: Texts = field(default_factory=Texts)
    intake: AttachmentIntake = field(default_factory=AttachmentIntake)
    rates: Any = None
    waiting: QueuePolicy = field(default_factory=QueuePolicy)
    max_file: int = 1_000_000
    rules: ChannelPolicy | None = None
    clock: SteppingClock | None = None
    report: HealthReport | None = None
    features: Sequence[Feature] = ()
    agents: AgentsSettings | None = None
    has_room: Callable[[], Awaitable[None]] = return_at_once
    topics: TopicSettings = field(default_factory=TopicSettings)
    read_session: ReadSession = read_no_session
    accounts: Any = None
    memory: MemorySettings | None = None
    memory_strategies: InstalledMemory = field(default_factory=InstalledMemory)
    on_shared: Callable[[SharedZones], None] = lambda _: None
    find_copies: FindCopies | None = None
    find_owners: FindOwners | None = None
    restart: Callable[[], None] = lambda: None
    lessons: ModelLessons = field(default_factory=lambda: no_lessons())  # noqa: PLW0108 - defined below


@dataclass
class Bench:
    """A running bot of one channel. `exported` are the memories that resets wrote, `forgotten` the sessions
    whose files were to go."""

    store: TapeStore
    model: Model
    channel: KeptChannel
    line: ChannelRuntime
    app: AppRuntime
    inbox: Inbox
    outbox: Outbox
    deliverer: Deliverer
    gate: InboundGate
    toolbox: Toolbox
    exported: dict[str, str]
    forgotten: list[str]
    service: Callable[[str], TapeService]
    new_id: CountingIds
    lessons: ModelLessons
    activity: ActivityTracker

    def inbound(
        self, text: str, *, chat: str = "home", sender: str = "1", external_id: str | None = None, **fields: Any
    ) -> Inbound:
        """A message to the bot; each has an external id of its own unless one is given."""
        external = external_id or f"m-{self.new_id()}"
        who, at = Sender(sender, "Ann"), "2026-11-21T20:21:00+00:00"
        made = Inbound(self.channel.name, external, chat, who, text, at, message=external)
        return structs.replace(made, **fields)

    async def post(self, text: str, **given: Any) -> asyncio.Future[TurnResult]:
        """Hands a message in and returns the future of its turn."""
        result = await self.gate.accept(self.inbound(text, **given))
        assert result is not None, "the message was accepted before"
        return result

    async def say(self, text: str, **given: Any) -> TurnResult:
        """Hands a message in and waits for its turn."""
        async with asyncio.timeout(WAIT):
            return await (await self.post(text, **given))

    async def find_open_work(self) -> OpenWork:
        """What a start finds first."""
        return await find_open_work(self.store, {self.channel.name: self.inbox}, self.service, lambda session: session)

    async def recover(self) -> OpenWork:
        """Takes up every session with an open fork; returns what is open after that."""
        for session in (await self.find_open_work()).sessions:
            async with self.app.exclusive(session):
                pass
        return await self.find_open_work()

    async def resume(self) -> list[TurnResult]:
        """What a start does: queues what is owed; the sessions are taken up by their turns. Waits for these."""
        open_work = await self.find_open_work()
        await self.deliverer.resume(queued=self.line.policy.deliver_in_background)
        async with asyncio.timeout(WAIT):
            return [await one for one in self.line.resume(open_work)]

    async def quiet(self, within: float = WAIT) -> None:
        """Returns when no turn runs and nothing is delivered."""
        async with asyncio.timeout(within):
            await self.app.wait_idle()
            await self.deliverer.wait_until_idle()

    async def kill(self) -> None:
        """Cancels every session from outside, as the end of the process does."""
        self.line.cancel()
        async with asyncio.timeout(WAIT):
            await self.app.cancel()

    def tape(self, session: str = HOME) -> TapeService:
        """A session's tape."""
        return session_service(self.service, session)

    async def entries(self, tape: str = HOME) -> tuple[TapeEntry, ...]:
        """Everything on a tape, or on its shards."""
        names = shard_tapes(tape, count_shards(self.store)) if tape.startswith("bubbot/") else (tape,)
        return tuple(entry for found in await self.store.fetch([TapeQuery(name) for name in names]) for entry in found)

    async def events(self, name: str, tape: str = HOME) -> list[JsonObject]:
        """The data of the events of this name."""
        return [entry.payload["data"] for entry in await self.entries(tape) if entry.name == name]

    @property
    def requests(self) -> list[ModelRequest]:
        """What a scripted model was asked, oldest first."""
        assert isinstance(self.model, ScriptedModel)
        return self.model.requests


def session_service(service: Callable[[str], TapeService], session: str) -> TapeService:
    """In these tests a session's tape has the session's name."""
    made = service(session)
    made.session = session
    return made


@asynccontextmanager
async def running(
    store: TapeStore,
    model: Model,
    options: Options | None = None,
    *,
    channel: KeptChannel | None = None,
    life: str = "first",
) -> AsyncIterator[Bench]:
    """A bot for the block; whatever it still does at the end is cancelled from outside.

    `life` goes into every id: two benches over one store are two processes, one after the other.
    """
    options = options or Options()
    async with asyncio.TaskGroup() as group:
        bench = await _bench(store, model, options, channel or KeptChannel(), (group, CountingIds(life)))
        yield bench
        await bench.kill()


async def _bench(
    store: TapeStore,
    model: Model,
    options: Options,
    channel: KeptChannel,
    life: tuple[asyncio.TaskGroup, CountingIds],
) -> Bench:
    clock, (group, new_id) = options.clock or SteppingClock(), life

    def service(name: str) -> TapeService:
        return TapeService(store, name, now=clock, new_id=new_id, references=OWN_REFERENCES)

    inbox = Inbox(service(inbox_tape(channel.name)), new_id)
    leases = InProcessLease(store, lambda session: session)
    outbox = Outbox(service(outbox_tape(channel.name)), leases=leases)
    rules = options.rules or ChannelPolicy(options.waiting, RetryPolicy(options.waits), one_lane=True)
    line = await make_channel_runtime(
        channel,
        inbox,
        outbox,
        rules,
        now=clock,
        create_task=group.create_task,
        wait_for_room=options.has_room,
        around_delivery=[around for feature in options.features for around in feature.around.delivery],
    )
    if options.rules is None:
        line.link = replace(line.link, role=options.role_of or (lambda _: options.role))
    shown = options.show or PreviewSink({channel.name: line.previews} if line.previews is not None else {})
    show = ActivityTracker(shown, asyncio.get_running_loop().time)
    shared = SharedZones(service, clock, options.accounts)
    options.on_shared(shared)
    sources = MemorySources(options.read_session, find_visits, find_current_topic, options.memory_strategies)
    memory, forgotten = KeptMemory(clock, shared, options.memory, sources), list[str]()
    channel.blob = outgoing_blob_reader(store, outbox, lambda session: session)
    directory = ChannelDirectory({channel.name: line}, Texts())
    lessons = ModelLessons(service("bubbot/models"))
    await lessons.load()
    parts = _parts(
        model,
        replace(options, show=show, lessons=lessons),
        (*inbox.tapes, *outbox.tapes),
        memory,
        forgotten,
        directory.wait_until_sent,
    )
    features = parts.features
    deps = SessionDeps(
        loop=parts.loop,
        now=clock,
        new_id=new_id,
        zone=options.zone,
        turn_limiter=TurnLimiter(options.at_once),
        leases=leases,
        deliver=lambda _, intent: line.deliver(intent),
        on_preview=show,
        texts=options.texts,
        sources={origin: source for feature in features for origin, source in feature.sources.items()},
        intake=options.intake,
        gate=options.rates,
        around_turn=[around for feature in features for around in feature.around.turn],
        on_merged=[on_merged for feature in features for on_merged in feature.on_merged],
        agents=find_agents(features),
    )
    app = AppRuntime({channel.name: line.link}, deps, lambda session: session_service(service, session), group)
    line.open_gate(app, options.texts, activity=show, report=options.report)
    tapes, ports = (memory.exported, forgotten), (line.deliverer, line.gate)
    return Bench(
        store,
        model,
        channel,
        line,
        app,
        inbox,
        outbox,
        *ports,
        parts.toolbox,
        *tapes,
        service,
        new_id,
        lessons,
        show,
    )


class KeptMemory(MemoryFeature):
    """The memory of sessions; what a reset writes to a file is kept in `exported`."""

    def __init__(
        self,
        clock: Clock,
        shared: SharedZones | None = None,
        settings: MemorySettings | None = None,
        sources: MemorySources | None = None,
    ) -> None:
        super().__init__(Path("unused"), clock, settings or MemorySettings(), shared, sources)
        self.exported: dict[str, str] = {}

    async def export(self, turn: Turn) -> str:
        """See `KeepsMemory`."""
        self.exported[turn.session] = await self.open_zone(turn).export()
        return f"exports/{turn.session}.md"


@dataclass(frozen=True, slots=True)
class _Parts:
    loop: AgentLoop
    toolbox: Toolbox
    features: Sequence[Feature]


def _parts(
    model: Model,
    options: Options,
    traces: Sequence[str],
    memory: MemoryFeature,
    forgotten: list[str],
    wait_until_sent: Callable[[Turn], Awaitable[None]] = return_at_once,
) -> _Parts:
    models = SessionModels(model, options.load, lambda: ("scripted", "other"), options.lessons)
    conversation = conversation_feature(
        models=models,
        compose=lambda turn: composer.compose(turn),  # noqa: PLW0108 - made below
        list_tools=lambda: tuple(found),
        report=options.report,
        traces=[*traces, *(tape for feature in options.features for tape in feature.traces)],
        forget=forgotten.append,
        memory=memory,
        reserved_names=RESERVED_PREFIXES,
        view_traces=lambda session: SessionTraceView(session, TRACE_EVENTS, OWN_REFERENCES),
        find_traces=None if memory.shared is None else memory.shared.find_traces,
        wait_until_sent=wait_until_sent,
        find_copies=options.find_copies,
        find_owners=options.find_owners,
        restart=options.restart,
    )
    files = Feature(name="attachments", tools=file_tools(options.max_file))
    choice = StrategyChoice(options.compose.strategies, options.compose.selector)
    strategies = Feature(name="strategies", tools=(make_choice_tool(choice),))
    topics = topics_feature(options.topics, options.read_session)
    features = [
        conversation,
        search_feature(find_heads=head_finder(options.read_session)),
        topics,
        why_feature(OWN_STRATEGIES, find_heads=head_finder(options.read_session)),
        memory.feature(),
        strategies,
        files,
    ]
    features += options.features
    if options.agents is not None:
        agents = ConfiguredAgents(
            options.agents, "bubbot", lambda: tuple(found), find_current_topic, channels=("test", "stdin")
        )
        listed = (lambda: tuple(found), options.compose.strategies, models)
        features.append(agents_feature(agents, *listed, spent_nothing))
    found: Toolbox = Toolbox([*(tool for feature in features for tool in feature.tools), *options.tools])
    settings = structs.replace(
        options.compose,
        sections=[
            *options.compose.sections,
            *(part for feature in features for part in feature.prompt if not isinstance(part, str)),
        ],
        rules=[
            *options.compose.rules,
            *(part for feature in features for part in feature.prompt if isinstance(part, str)),
        ],
        choices=[choice.chosen],
        find_heads=head_finder(options.read_session),
        sources=structs.replace(options.compose.sources, find_heads=head_finder(options.read_session)),
        withholds=[withholds for feature in features for withholds in feature.around.withholds],
    )
    tools = ToolList(found)
    composer: RequestComposer = RequestComposer(models.model_for_turn, settings, tools.specs, found.reads_web)
    runner = ToolCallRunner(
        tools,
        options.calls,
        options.show or PreviewSink({}),
        around_tool=[around for feature in features for around in feature.around.tool],
    )
    steps = ModelRunner(
        composer,
        runner,
        options.run,
        lambda: 0.0,
        options.show or PreviewSink({}),
        lessons=options.lessons,
        list_around_model=lambda: [around for feature in features for around in feature.around.model],
        before_step=[prepare_step for feature in features for prepare_step in feature.around.before_step],
    )

    async def has_model(_: Turn) -> bool:
        return not isinstance(model, UnconfiguredModel)

    router = InputRouter(found, runner, lambda: 0.0, has_model=has_model)
    return _Parts(AgentLoop(router, steps), found, features)


def no_lessons() -> ModelLessons:
    """Lessons on a tape of their own, which knows nothing."""
    return ModelLessons(TapeService(InMemoryStore(), "bubbot/models", now=SteppingClock(), new_id=CountingIds()))


def toolbox(model: Model, options: Options | None = None) -> Toolbox:
    """The tools of a bench."""
    return _parts(model, options or Options(), (), KeptMemory(SteppingClock()), []).toolbox


def texts_of(entries: Sequence[TapeEntry], role: str) -> list[str]:
    """What was said in this role."""
    return [
        entry.payload["content"]
        for entry in entries
        if entry.kind == Kind.MESSAGE and entry.payload.get("role") == role
    ]


def asked(request: ModelRequest) -> list[tuple[str, Any]]:
    """A request's messages as role and content."""
    return [(message["role"], message["content"]) for message in request.messages]


async def assert_rebuilt(bench: Bench) -> None:
    """Every request that was sent comes out again, byte for byte."""
    sent = [step for step in await bench.events("loop.step") if step["status"] == "ok"]
    assert len(sent) == len(bench.requests)
    for step, request in zip(sent, bench.requests, strict=True):
        made = await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)
        assert made.as_bytes() == request.as_bytes()
        assert made.digest() == step["request"]
