"""A turn: one or more joined inbounds and all their effects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import tzinfo
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from bubbot.errors import ModelCallDenied
from bubbot.ports.channel import (
    HUMAN_ORIGIN,
    Button,
    Deletion,
    Edit,
    Inbound,
    Outbound,
    OutboundFile,
    Reaction,
    Role,
    Sender,
)
from bubbot.ports.model import Model, ModelReply, ToolCall, ToolSpec
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock, spans_of
from bubbot.tape.provenance import Source, most_foreign
from bubbot.texts import Texts

T = TypeVar("T")
Status = Literal["answered", "silent", "failed", "stopped", "too_old"]
"""How a turn ended. `too_old`: its messages were recorded, and the chat got a notice that they came too late."""


@dataclass(frozen=True, slots=True)
class AcceptedInbound:
    """An inbound that is stored on the inbox tape.

    Attributes:
        id: its id on the inbox tape.
        inbound: the message.
        attempts: turns that began for it and were interrupted.
        interrupted_turn: the id of the last of them; all inbounds that share it are resumed together. Empty if there is
            none, or if it was not recorded.
    """

    id: int
    inbound: Inbound
    attempts: int = 0
    interrupted_turn: str = ""

    def after_interruption(self, turn: str) -> AcceptedInbound:
        """Return the inbound with one attempt more, if it was read before the interruption of this turn was recorded."""
        if turn in ("", self.interrupted_turn):
            return self
        return replace(self, attempts=self.attempts + 1, interrupted_turn=turn)


@dataclass(frozen=True, slots=True)
class TapeChange:
    """A change of a session's tape without a turn.

    Attributes:
        id: its id on the inbox tape.
        event: a change of an earlier message, or a message that is only recorded.
    """

    id: int
    event: Edit | Deletion | Reaction | Inbound


async def no_join(turn: Turn) -> None:
    """Do nothing; the default of `Turn.join`, for turns that nothing can join."""


EntryRef: TypeAlias = tuple[str, int]
"""An entry, as the name of its tape and its id."""


@dataclass(frozen=True, slots=True)
class AddressQuote:
    """Where an address stands in what a turn was shown.

    Attributes:
        entry: the newest entry in which it stands, not written by the model.
        choices: the addresses among which it was chosen: those that were shown, except in the message that is answered.
        is_asked: it stands in the message that the turn answers, which a person wrote.
    """

    entry: EntryRef
    choices: int
    is_asked: bool


def find_no_quote(text: str) -> AddressQuote | None:  # noqa: ARG001 - the signature of `ShownEntries.find_quote`
    """Find nothing: no entry was shown."""
    return None


def weigh_no_query(text: str, earlier: int) -> float | None:  # noqa: ARG001 - the signature of `ShownEntries.weigh_query`
    """Find no word: no entry was shown."""
    return None


def stands_nowhere(address: str) -> bool:  # noqa: ARG001 - the signature of `ShownEntries.stands`
    """Find no address: no entry was shown."""
    return False


@dataclass
class ShownEntries:
    """What the steps of a turn have shown its model, as far as decisions about its calls rest on it.

    Attributes:
        world: entries with words from anywhere, newest first; not all of them, but one if there is one.
        people: entries with words of people who are not owners, with the role of each; as `world`.
        find_quote: returns where an address stands word for word; None if it stands nowhere, or a model wrote it.
        weigh_query: returns how many bits the words of a query tell, after so many queries since the message that is answered:
            its own words nothing at first, others that were shown the choice among them; None if one stands in neither.
        stands: returns true if an address stands in the words of a person or a tool, and no model wrote it before.
    """

    world: tuple[EntryRef, ...] = ()
    people: tuple[tuple[EntryRef, Role], ...] = ()
    find_quote: Callable[[str], AddressQuote | None] = find_no_quote
    weigh_query: Callable[[str, int], float | None] = weigh_no_query
    stands: Callable[[str], bool] = stands_nowhere

    @property
    def source(self) -> Source:
        """How foreign the most foreign of them is."""
        return Source.WORLD if self.world else Source.PEOPLE if self.people else Source.OWN


class TurnRunner(Protocol):
    """What asks models on behalf of a turn. Calls are metered for its person and recorded on its tape."""

    async def run_model(self, turn: Turn) -> TurnOutcome:
        """Run model calls and tools on the turn's tape until there is an answer, and return it.

        For a sub-task give it a turn of its own, `turn.derive(fork, …)`: its text is not streamed to people.

        Raises:
            ModelError: see `ModelRunner.run_model`; the tape holds what was done.
        """
        ...

    async def ask(
        self,
        turn: Turn,
        system: str,
        messages: Sequence[JsonObject],
        *,
        purpose: str,
        shown: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
    ) -> ModelReply:
        """Call the turn's model once, without streaming to people and without running a tool.

        The call passes the middleware (budgets) and is appended to the turn's tape as a `loop.step` with its `purpose`,
        tokens and cost, also if it fails.

        Args:
            turn: the turn that asks.
            system: the system prompt.
            messages: chat messages in a provider's form; the last one is a user's.
            purpose: a word for what the call is for, such as `summary`.
            shown: ids of the entries of the tape that the messages show.
            tools: those that the model is told of; the caller answers its calls.

        Raises:
            ModelError: the call failed or was denied; `ModelOverflow` if the request is too long for the model.
        """
        ...

    async def find_model(self, turn: Turn) -> Model:
        """Return the model that the turn asks; its traits tell how much it can read."""
        ...


@dataclass
class Turn:
    """The part of a running turn that a tool may use.

    Attributes:
        id: its id.
        session: the id of its session.
        tape: its fork of the session's tape, never the parent.
        sender: the person it answers.
        role: that person's role.
        now: the clock.
        zone: the chat's time zone.
        inbounds: the messages it answers.
        message_ids: their entries on the tape.
        origin: `human`, or the cause of a turn that nobody typed.
        pending_handoffs: handoffs to write when the running step's results are on the tape: name and state.
        join: takes in messages that arrived since and may steer the turn; called between two steps. It is given the
            turn: if it held it, the garbage collector would have to find every turn, with all that it wrote.
        texts: the bot's own sentences in the language of the chat.
        files: files to send with the answer.
        notices: sentences of the bot that precede the answer.
        alerts: the same, which people get although there is no answer: a model cannot be silent about them.
        buttons: what tools offer as buttons below the answer, for its sender. If several offer some, none are shown:
            nobody could tell which belong to what.
        cause: what caused a turn that nobody typed, such as the id of a job; empty for turns of people.
        time_limit_seconds: the time limit of the turn; 0 for none.
        fixed_reply: the text that the turn sends instead of an answer; None to ask the model.
        metadata: what its source and features say of it, one value of each class.
        replies_elsewhere: its answer goes to another chat than that of its session.
        runs_command: a command is running, not a call of the model.
        runner: asks models on its behalf.
        allowed_tools: the names of the tools that the model may call, among those of the role; None for all of these.
        max_steps: model calls at most; 0 for as many as the settings allow.
        shown: what its model was shown so far.
        stored_calls: calls of an earlier turn that run before its model is asked, as they were stored then.
        effect_key: for a tool that acts outside: the idempotency key of the call that it runs, the same in each attempt
            at the turn; empty for any other.
        call_id: for a tool whose calls run at the same time: the id of the model's call that it runs; empty for any other.
        answer_source: how foreign the words are that its commands answer with; they need not be in what it writes.
        after_results: called once, in order, when the running step's results are on the tape, before they are saved. Like
            `join` they are given the turn.
        parent: the turn whose sub-task it is; None for a turn of its own.
    """

    id: str
    session: str
    tape: ForkedTape
    sender: Sender
    role: Role
    now: Clock
    zone: tzinfo
    inbounds: Sequence[AcceptedInbound] = ()
    message_ids: list[int] = field(default_factory=list)
    origin: str = HUMAN_ORIGIN
    pending_handoffs: list[tuple[str, JsonObject]] = field(default_factory=list)
    join: Callable[[Turn], Awaitable[None]] = no_join
    texts: Texts = field(default_factory=Texts)
    files: list[OutboundFile] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    buttons: list[tuple[Button, ...]] = field(default_factory=list)
    cause: str = ""
    time_limit_seconds: float = 0.0
    fixed_reply: str | None = None
    metadata: dict[type, Any] = field(default_factory=dict)
    runs_command: bool = False
    runner: TurnRunner = field(kw_only=True)
    allowed_tools: frozenset[str] | None = None
    max_steps: int = 0
    replies_elsewhere: bool = False
    shown: ShownEntries = field(default_factory=ShownEntries)
    stored_calls: Sequence[ToolCall] = ()
    effect_key: str = ""
    call_id: str = ""
    answer_source: Source = Source.OWN
    after_results: list[Callable[[Turn], Awaitable[None]]] = field(default_factory=list)
    parent: Turn | None = None

    @property
    def is_subtask(self) -> bool:
        """True if its tape is a fork of another turn's fork: people are shown only what that turn makes of it."""
        return self.tape.is_nested

    @property
    def root(self) -> Turn:
        """The turn that people see: itself, or the one whose sub-task it is, at whatever depth."""
        turn = self
        while turn.parent is not None:
            turn = turn.parent
        return turn

    def derive(
        self,
        tape: ForkedTape,
        *,
        origin: str,
        message_ids: Sequence[int],
        allowed_tools: frozenset[str] | None = None,
        max_steps: int = 0,
        metadata: Sequence[object] = (),
    ) -> Turn:
        """Build the turn of a sub-task on a fork of this turn's tape: the same person, role and limits, or fewer.

        Args:
            tape: the fork.
            origin: its cause, such as `agent:research`.
            message_ids: the entries of the fork that it answers.
            allowed_tools: what its model may call, among what this turn's may; None for the same.
            max_steps: model calls at most; 0 for as many as the settings allow.
            metadata: values for its metadata, besides those of this turn.
        """
        if self.allowed_tools is not None:
            allowed_tools = self.allowed_tools if allowed_tools is None else allowed_tools & self.allowed_tools
        return replace(
            self,
            tape=tape,
            origin=origin,
            message_ids=list(message_ids),
            pending_handoffs=[],
            join=no_join,
            buttons=[],
            fixed_reply=None,
            stored_calls=(),
            effect_key="",
            call_id="",
            shown=replace(self.shown),
            after_results=[],
            parent=self,
            metadata={**self.metadata, **{type(value): value for value in metadata}},
            runs_command=False,
            allowed_tools=allowed_tools,
            max_steps=max_steps,
        )

    def may_call(self, tool: str) -> bool:
        """Return true if its model may call the tool of this name, as far as the turn is concerned."""
        return self.allowed_tools is None or tool in self.allowed_tools

    @property
    def has_power_over_other_chats(self) -> bool:
        """True if an owner asks in person, in a direct chat.

        Elsewhere others read along, and their messages reach the model that calls the tools.
        """
        inbounds = (accepted.inbound for accepted in self.inbounds)
        is_private = all(inbound.direct and inbound.is_answered_by_person for inbound in inbounds)
        return self.role.at_least(Role.OWNER) and is_private

    def alert(self, sentence: str) -> None:
        """Tell people a sentence with the answer, or without one, if a model did what it says; a command says it itself."""
        if not self.runs_command:
            self.root.alerts.append(sentence)

    @property
    def result_texts(self) -> Texts:
        """The sentences for the result of a tool: people read the language of the chat, models English."""
        return self.texts if self.runs_command else self.texts.english

    @property
    def is_typed(self) -> bool:
        """True if people wrote what the turn answers."""
        return self.origin == HUMAN_ORIGIN

    def note_answer(self, source: Source) -> None:
        """Note how foreign words are that it answers with."""
        self.answer_source = most_foreign(source, self.answer_source)

    def find_metadata(self, kind: type[T]) -> T | None:
        """Return what the source of the turn says of it in a value of this class; None if it says nothing."""
        value: T | None = self.metadata.get(kind)
        return value

    def handoff_after_results(self, name: str, state: JsonObject) -> None:
        """Open a new window once the running step's results are on the tape (T7)."""
        self.pending_handoffs.append((name, state))

    async def end_step(self) -> None:
        """Do what waits for the running step's results, which are on the tape."""
        waiting, self.after_results[:] = list(self.after_results), []
        for call in waiting:
            await call(self)
        await self.write_handoffs()

    async def write_handoffs(self) -> None:
        """Write the requested handoffs; each new window keeps the messages that the turn answers."""
        for name, state in self.pending_handoffs:
            await self.tape.handoff(name, state, recalls=spans_of(self.message_ids))
        self.pending_handoffs.clear()


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended, and the text that people get."""

    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class SourcedReply:
    """The reply of a turn that nobody typed.

    Attributes:
        text: for people; empty for none.
        target: a message to the chat that gets the reply, without its text; None: nobody gets it.
        entries: facts for other tapes, by tape.
    """

    text: str = ""
    target: Outbound | None = None
    entries: Mapping[str, Sequence[TapeEntry]] = field(default_factory=dict)


class TurnSource(Protocol):
    """A source of inbounds that nobody typed, such as schedules. It is found by the origin of its inbounds."""

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Set the role, limits and metadata of a turn before it begins."""
        ...

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:
        """Build the reply and the facts of a turn that ended, before it is merged."""
        ...

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:
        """Build the facts about an inbound from which no turn can be made, by tape."""
        ...


class TurnGate(Protocol):
    """Decides when the next messages of a session may have their turn."""

    async def wait(self, batch: Sequence[AcceptedInbound], wake: asyncio.Event) -> ModelCallDenied | None:
        """Wait until the messages may have their turn, or until `wake` is set.

        Args:
            batch: the messages of the next turn.
            wake: set to end the wait early.

        Returns:
            The error if the messages may not have a turn, else None.
        """
        ...


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn. `text` is what people read; `merged_entries` are the entries of the delta, with their ids."""

    turn_id: str
    status: Status
    text: str = ""
    merged_entries: tuple[TapeEntry, ...] = ()
