"""Features: what a folder of `bubbot.features`, or an installed package, adds to the kernel.

A package offers a `FeatureFactory` in the entry-point group `bubbot.features`; `app.py` calls it with the `Kernel`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from zoneinfo import ZoneInfo

from bubbot.middleware import AroundDelivery, AroundModel, AroundTool, AroundTurn, BeforeStep
from bubbot.ports.access import MayRead, may_read_nothing
from bubbot.ports.agents import FindAgent, find_no_agent
from bubbot.ports.approvals import AskApproval, FindApproval
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.ports.checks import Check, HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, MetricSpec
from bubbot.ports.judgements import ReadLabels, read_no_labels
from bubbot.ports.model import Model
from bubbot.ports.settings import SettingsSection
from bubbot.ports.store import OrdersEntries
from bubbot.ports.turn import Turn, TurnSource
from bubbot.runtime.compose import PromptSection, Recompose, Withholds
from bubbot.runtime.context.copies import FindHeads, find_no_heads
from bubbot.runtime.context.strategy import KERNEL_STRATEGIES, ContextStrategies
from bubbot.shell_command import Command
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import NewId, TapeService
from bubbot.texts import Texts
from bubbot.tool import Tool

if TYPE_CHECKING:
    from bubbot.panel import Panel

ReadSession: TypeAlias = Callable[[Turn, str], Awaitable[TapeHandle]]
"""Open the tape of another session for reading, if the chat of the turn may read it now.

Raises `AccessError` if it may not, and `EntryNotFound` if there is no such session.
"""
OpenCopy: TypeAlias = Callable[[str], Awaitable[TapeService]]
"""Open a tape of which nothing is ever written; see `Kernel.open_copy`."""
OpenBlank: TypeAlias = Callable[[], TapeService]
"""Open an empty tape of which nothing is ever written; see `Kernel.open_blank`."""
FindOwner: TypeAlias = Callable[[], Awaitable[Inbound | None]]
"""Return the newest message of an owner in a direct chat of a channel that runs here; None if there is none."""
Apply: TypeAlias = Callable[[], None]
"""Put prepared settings into force. It cannot fail."""
FindModel: TypeAlias = Callable[[Turn], Awaitable[Model]]
"""Return the model that a turn asks."""


async def find_no_owner() -> Inbound | None:
    """Find nobody: no channel runs."""
    return None


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a feature may use of the bot.

    Attributes:
        home: the home folder.
        now: the clock.
        new_id: makes unique ids.
        zone: the time zone of the deployment.
        texts: the bot's own sentences.
        find_texts: returns them in the language of a person, and with the commands of the channel: channel, person, chat. If the
            person's language is not known, in that of whoever wrote last in the chat.
        projections: keeps the states that follow from tapes; an installed feature has its own.
        open_tape: opens a tape that belongs to no session, by its name.
        role_of: returns the role of an inbound's sender, on any channel.
        accept: makes an inbound durable and queues its turn, with facts of other tapes in the same transaction; false if
            it was accepted before. Raises `ConfigError` if its channel does not run here.
        send: sends a message that no turn writes: session, key, message, and facts for the same transaction.
        draft: makes the facts of a message for a transaction of other facts: session, key, message. `send` with the same key
            delivers it then.
        stage: adds a message to what a turn sends, besides its answer: turn, key, message. It is merged with the turn. False if
            its channel does not run here.
        wait_until_sent: returns when nothing for the chat of a turn is being sent any more, or after some seconds.
        find_sent: returns the platform's id of a message with buttons that was sent: session, channel, and the key of the
            message. None if it is not known.
        notify: sends a notice at once, which no tape holds.
        read_session: opens the tape of another session for reading, by grant.
        find_heads: returns how far a turn may read other tapes now.
        may_read: returns true if the first session was granted to read the second one, which may not exist.
        open_copy: opens the tape of any session for work that is thrown away, by the session or the name of the tape. Only
            who may read every tape anyway may be told of it. Raises `EntryNotFound` if there is none.
        open_blank: opens an empty tape for a talk that is thrown away, each time another one; None if no bot runs.
        ordered_entries: the entries of all tapes in one order, to follow them; None if the store has none.
        current_session: returns a session by the current id of its chat. A chat that moved has two, its session the first.
        first_session: returns a session by the first id of its chat, as it is stored; people may name either.
        restart: lets the daemon start again in this process, once its turns have ended; another bot goes on as it is.
        list_tools: returns all tools of the bot, under the settings in force.
        renew_tools: lets the bot build the features' tools again, as a reload does, for turns that begin from now on.
        strategies: the context strategies.
        recompose: builds the request of a recorded step as this code would; None for features that stay when settings change.
        ask: asks people a question with a card; None without approvals.
        find_answer: returns the answer to such a question.
        find_owner: returns the newest message that an owner wrote in a direct chat, which is where owners are asked; None if no
            owner wrote on a channel that runs here.
        find_agent: returns an agent that may be called in a chat, by the session and its name; None if there is none.
        read_labels: returns what people, models and code think of what stands on a tape, by its name.
    """

    home: Path
    now: Clock
    new_id: NewId
    zone: ZoneInfo
    texts: Texts
    projections: ProjectionRunner
    open_tape: Callable[[str], TapeService]
    role_of: Callable[[Inbound], Role]
    accept: Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]
    send: Callable[[str, str, Outbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[None]]
    notify: Callable[[str, Outbound], Awaitable[None]]
    read_session: ReadSession
    draft: Callable[[str, str, Outbound], Mapping[str, Sequence[TapeEntry]]]
    stage: Callable[[Turn, str, Outbound], bool]
    wait_until_sent: Callable[[Turn], Awaitable[None]]
    find_sent: Callable[[str, str, str], Awaitable[str | None]]
    open_copy: OpenCopy
    ordered_entries: OrdersEntries | None
    current_session: Callable[[str], str]
    first_session: Callable[[str], Awaitable[str]]
    find_texts: Callable[[str, str, str], Awaitable[Texts]]
    restart: Callable[[], None] = lambda: None
    list_tools: Callable[[], Sequence[Tool]] = tuple
    renew_tools: Callable[[], None] = lambda: None
    strategies: ContextStrategies = KERNEL_STRATEGIES
    find_heads: FindHeads = find_no_heads
    may_read: MayRead = may_read_nothing
    recompose: Recompose | None = None
    ask: AskApproval | None = None
    find_answer: FindApproval | None = None
    find_owner: FindOwner = find_no_owner
    find_agent: FindAgent = find_no_agent
    open_blank: OpenBlank | None = None
    read_labels: ReadLabels = read_no_labels


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a feature puts around the work of a turn. Middleware is a callable of a value and the next one, outermost first.

    Attributes:
        turn: wraps what answers a turn.
        model: wraps each call of a model.
        tool: wraps each call of a tool.
        delivery: wraps each attempt to send a part of a message, for features that stay when settings change.
        before_step: called before the request of each step of a turn is built; what it appends to the turn's tape is shown
            in that request, such as evidence.
        withholds: return true for evidence that a turn must not be shown now, though a grant covers it.
    """

    turn: Sequence[AroundTurn] = ()
    model: Sequence[AroundModel] = ()
    tool: Sequence[AroundTool] = ()
    delivery: Sequence[AroundDelivery] = ()
    before_step: Sequence[BeforeStep] = ()
    withholds: Sequence[Withholds] = ()


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """What a feature does while the bot starts, runs, takes new settings and ends, for features that stay then.

    Attributes:
        lifespan: a block around the life of the bot: entered before the first turn, left after the last one.
        on_recovered: called at a start, once it is known what an earlier process left open; what is merged when a session
            is taken up comes to `on_merged`.
        background: coroutines that run while a daemon runs, by name; each is restarted if it fails. If several daemons share
            the tapes, one of them runs each.
        background_everywhere: those that every daemon runs, because they serve what only its process knows.
        prepare: checks new settings, and returns what puts them into force. Raises `ConfigError`. A package gets its section, a
            feature of bubbot all settings.
        renew: builds the feature under the settings in force, which then holds nothing that they switch off; None if it
            depends on none.
    """

    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
    on_recovered: Callable[[], Awaitable[None]] | None = None
    background: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    background_everywhere: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    prepare: Callable[[Any], Awaitable[Apply]] | None = None
    renew: Callable[[], Feature] | None = None


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What a feature adds. Every field but the name may be left out.

    Attributes:
        name: its folder, and its section in config.toml.
        tools: what models may call, and people as comma commands.
        commands: those of its shell commands that people may type in chats, too.
        services: what its shell commands use in the running bot, found there by class.
        prompt: sections of the system prompt, and rules about its tools in the runtime contract, as texts.
        sources: sources of turns that nobody typed, by the origin of their inbounds.
        traces: tapes with texts of sessions, which an erasure of a session has to reach.
        around: what it puts around turns, calls of models and tools, and deliveries.
        on_merged: called with the entries of each merged turn, those of interrupted turns included.
        lifecycle: what it does at a start, beside the turns, with new settings and at the end.
        health: reports its health, without I/O, for features that stay when settings change.
        metrics: the metrics whose values its health has.
    """

    name: str
    tools: Sequence[Tool] = ()
    commands: Sequence[Command] = ()
    services: Sequence[object] = ()
    prompt: Sequence[PromptSection | str] = ()
    sources: Mapping[str, TurnSource] = field(default_factory=dict)
    traces: Sequence[str] = ()
    around: Around = Around()
    on_merged: Sequence[Callable[[MergeResult], Awaitable[None]]] = ()
    lifecycle: Lifecycle = Lifecycle()
    health: Callable[[HealthContext], FeatureHealth] | None = None
    metrics: Sequence[MetricSpec] = ()

    @property
    def parts_that_last(self) -> list[str]:
        """The parts that it has and that only a feature may have that stays when settings change."""
        parts = {
            "traces": self.traces,
            "around.delivery": self.around.delivery,
            "health": self.health,
            "metrics": self.metrics,
        }
        parts |= {field.name: getattr(self.lifecycle, field.name) for field in fields(self.lifecycle)}
        return [name for name, part in parts.items() if part]


@dataclass(frozen=True, slots=True)
class FeatureFactory:
    """What an installed package offers in the group `bubbot.features`, under the name of the feature.

    Attributes:
        name: of the feature, and its section in config.toml.
        build: builds it; gets the kernel and the validated settings (None without `settings`).
        settings: the model of its section, with a default for each key; None if it has none.
        health: reports its health from the tapes, if no bot runs.
        checks: the checks of `bubbot doctor`.
        events: the payload models of its facts, by the names of the events, with their references declared (see
            `bubbot.tape.references`). They are known before it is built, and to commands that build nothing.
        panels: what it shows on the trace page, also if no bot runs.
    """

    name: str
    build: Callable[[Kernel, Any], Feature]
    settings: type[SettingsSection] | None = None
    health: Callable[[HomeReader, HealthContext], Awaitable[FeatureHealth]] | None = None
    checks: Sequence[Check] = ()
    events: Mapping[str, type] = field(default_factory=dict)
    panels: Sequence[Panel] = ()
