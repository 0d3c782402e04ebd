"""A turn: one or more joined inbounds and all their effects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from bubbot.errors import ModelCallDenied
from bubbot.identity import is_id
from bubbot.ports.access import Allowance
from bubbot.ports.agents import THE_BOT, Agent
from bubbot.ports.channel import (
    AGENT_ORIGIN,
    APPROVAL_ORIGIN,
    HUMAN_ORIGIN,
    TASK_ORIGIN,
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
from bubbot.ports.people import Account
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock, spans_of
from bubbot.tape.provenance import Source, most_foreign
from bubbot.texts import Texts

T = TypeVar("T")
Status = Literal["answered", "silent", "failed", "stopped", "too_old"]
"""The status of an ended turn. `too_old`: its messages were recorded, and the chat got a notice that they came too late."""


class AcceptedInbound(Struct, frozen=True):
    """An inbound stored on the inbox tape.

    Attributes:
        id: its id on the inbox tape.
        inbound: the message.
        attempts: interrupted turns that began for it.
        interrupted_turn: the id of the last one; all inbounds that share it are resumed together. Empty if there is
            none or it was not recorded.
    """

    id: int
    inbound: Inbound
    attempts: int = 0
    interrupted_turn: str = ""

    def after_interruption(self, turn: str) -> AcceptedInbound:
        """Return the inbound with one more attempt, unless it was read after this interruption was recorded."""
        if turn in ("", self.interrupted_turn):
            return self
        return structs.replace(self, attempts=self.attempts + 1, interrupted_turn=turn)


class TapeChange(Struct, frozen=True):
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


class AddressQuote(Struct, frozen=True):
    """The occurrence of an address in the shown entries of a turn.

    Attributes:
        entry: the newest entry in which it occurs, not written by the model.
        choices: the number of addresses to choose from: all shown ones, except those in the answered message.
        is_asked: it occurs in the answered message, which a person wrote.
    """

    entry: EntryRef
    choices: int
    is_asked: bool


def find_no_quote(text: str) -> AddressQuote | None:  # noqa: ARG001 - the signature of `ShownEntries.find_quote`
    """Find nothing: no entry was shown."""
    return None


class Receiver(Struct, frozen=True):
    """Who gets the words of a call, and wrote the results of some tools: it knows these words already.

    Attributes:
        tools: the names of these tools, as models write them.
        since: when it was first reached by them, ISO 8601 in UTC; older results may be those of another one.
    """

    tools: frozenset[str]
    since: str


def weigh_no_query(text: str, earlier: int, receiver: Receiver | None = None) -> float | None:  # noqa: ARG001 - the signature of `ShownEntries.weigh_query`
    """Find no word: no entry was shown."""
    return None


def stands_nowhere(address: str) -> bool:  # noqa: ARG001 - the signature of `ShownEntries.stands`
    """Find no address: no entry was shown."""
    return False


@dataclass
class ShownEntries:
    """The shown entries of a turn, as far as decisions about its calls depend on them.

    Attributes:
        world: entries with words from anywhere, newest first; at least one of them if any were shown.
        people: entries with words of people who are not owners, each with a role; like `world`.
        find_quote: returns the occurrence of an address, verbatim; None if it occurs nowhere or a model wrote it.
        weigh_query: returns how many bits the words of a query reveal, after so many queries since the answered
            message: its own words none at first, other shown words the choice among them; None if a word occurs in
            neither.
        stands: returns true if an address occurs in the words of a person or a tool and no model wrote it before.
    """

    world: tuple[EntryRef, ...] = ()
    people: tuple[tuple[EntryRef, Role], ...] = ()
    find_quote: Callable[[str], AddressQuote | None] = find_no_quote
    weigh_query: Callable[[str, int, Receiver | None], float | None] = weigh_no_query
    stands: Callable[[str], bool] = stands_nowhere

    @property
    def source(self) -> Source:
        """The most foreign provenance among them."""
        return Source.WORLD if self.world else Source.PEOPLE if self.people else Source.OWN


class TurnRunner(Protocol):
    """Asks models on behalf of a turn. Calls are metered for its person and recorded on its tape."""

    async def run_model(self, turn: Turn) -> TurnOutcome:
        """Run model calls and tools on the turn's tape until there is an answer, and return it.

        For a sub-task pass its own turn, `turn.derive(fork, …)`: its text is not streamed to people.

        Raises:
            ModelError: see `ModelRunner.run_model`; the tape has the work so far.
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
        elsewhere: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (),
        tools: Sequence[ToolSpec] = (),
    ) -> ModelReply:
        """Call the turn's model once, without streaming to people and without running a tool.

        The call passes the middleware (budgets) and is recorded on the turn's tape as a `loop.step` with `purpose`,
        tokens and cost, even if it fails.

        Args:
            messages: chat messages in a provider's form; the last one is a user's.
            purpose: a word, such as `summary`.
            shown: ids of the tape's entries that the messages show.
            elsewhere: entries of other tapes that they show, as pairs of a tape and id ranges.
            tools: tools to offer; the caller must answer the calls.

        Raises:
            ModelError: the call failed or was denied; `ModelOverflow` if the request is too long for the model.
        """
        ...

    async def find_model(self, turn: Turn) -> Model:
        """Return the model that the turn asks."""
        ...

    async def needs_handoff(self, turn: Turn) -> bool:
        """Return true if the context strategy of the turn's answer wants a turn of its own, in which it hands off.

        Raises:
            StoreError: the store failed.
        """
        ...

    async def hand_off(self, turn: Turn, owner: str) -> Sequence[str]:
        """Let the chat's context strategy open a new window, and return what people are told.

        If it cannot, or fails, the one that hands off for all others does.

        Args:
            owner: who asked for it: `human` or `agent`.
        """
        ...


@dataclass
class Turn:
    """The part of a running turn that a tool may use.

    Attributes:
        session: the id of its session.
        tape: its fork of the session's tape, never the parent.
        role: the role of the sender.
        zone: the chat's time zone.
        inbounds: the answered messages.
        message_ids: the entries of the answered messages on the tape, and of what corrects them; the newest message is the last.
        origin: `human`, or the source of a turn that no person typed.
        pending_handoffs: handoffs (name and state) to write once the running step's results are on the tape.
        join: takes in messages that may steer the turn; called between two steps. It gets the turn as its argument: if
            it held the turn, the cycle would leave every turn to the garbage collector.
        texts: the bot's own sentences in the language of the chat.
        files: files to send with the answer.
        notices: sentences of the bot that precede the answer.
        alerts: like `notices`, but sent even without an answer: a model cannot suppress them.
        buttons: the buttons that tools offer below the answer, for its sender. If several tools offer some, none are
            shown: people could not tell to what they belong.
        cause: the cause of a turn that no person typed, such as the id of a job; empty for turns of people.
        time_limit_seconds: the time limit of the turn; 0 for none.
        fixed_reply: the text that the turn sends instead of an answer; None to ask the model.
        metadata: values of its source and of features, one per class.
        replies_elsewhere: the answer goes to a chat other than its session's.
        runs_command: a command is running, not a call of the model.
        runner: asks models on its behalf.
        allowed_tools: the names of the tools that the model may call, among those of the role; None: all.
        allowed_before: what its calls may do without asking, as whoever set it up has allowed.
        max_steps: the most model calls; 0: the limit of the settings.
        shown: the entries shown to its model so far.
        stored_calls: stored calls of an earlier turn that run before its model is asked.
        effect_key: for a tool that acts outside: the idempotency key of the running call, the same in each attempt;
            else empty.
        call_id: for a tool with concurrent calls: the id of the running call; else empty.
        answer_source: the provenance of its commands' answers, which may not be on the tape.
        answers_people_alone: a command ran that no model is shown, so that none may be shown what the turn sends either.
        copied: entries of other tapes whose words the next stored result or answer of a command copies.
        after_results: called once, in order, with the turn, after the running step's results are on the tape and before
            they are saved.
        parent: the turn whose sub-task it is, if any.
        agent: who answers it.
        following: inbounds of the bot itself that follow the turn in its chat; they are accepted with its merge.
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
    allowed_before: tuple[Allowance, ...] = ()
    max_steps: int = 0
    replies_elsewhere: bool = False
    shown: ShownEntries = field(default_factory=ShownEntries)
    stored_calls: Sequence[ToolCall] = ()
    effect_key: str = ""
    call_id: str = ""
    answer_source: Source = Source.OWN
    answers_people_alone: bool = False
    copied: list[tuple[str, Sequence[tuple[int, int]]]] = field(default_factory=list)
    after_results: list[Callable[[Turn], Awaitable[None]]] = field(default_factory=list)
    parent: Turn | None = None
    agent: Agent = THE_BOT
    following: list[Inbound] = field(default_factory=list)

    @property
    def is_subtask(self) -> bool:
        """True if its tape is a fork of another turn's fork: people see only the outcome in that turn."""
        return self.tape.is_nested

    @property
    def root(self) -> Turn:
        """The turn that people see: itself, or the outermost one whose sub-task it is."""
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
        agent: Agent | None = None,
    ) -> Turn:
        """Build the turn of a sub-task on a fork of this turn's tape, with the same person and role, and the same or
        lower limits.

        Args:
            origin: its cause, such as `agent:research`.
            message_ids: the entries of the fork to answer.
            allowed_tools: the tools that its model may call, among this turn's; None: the same.
            max_steps: the most model calls; 0: the limit of the settings.
            metadata: values to add to this turn's metadata.
            agent: who works on it; None: whoever answers this turn.
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
            copied=[],
            fixed_reply=None,
            stored_calls=(),
            effect_key="",
            call_id="",
            shown=replace(self.shown),
            after_results=[],
            parent=self,
            agent=self.agent if agent is None else agent,
            following=[],
            metadata={**self.metadata, **{type(value): value for value in metadata}},
            runs_command=False,
            allowed_tools=allowed_tools,
            max_steps=max_steps,
        )

    def may_call(self, tool: str) -> bool:
        """Return true if the turn allows its model to call this tool."""
        return self.allowed_tools is None or tool in self.allowed_tools

    @property
    def is_direct(self) -> bool:
        """True if nobody else reads along: never without the messages that it answers."""
        return bool(self.inbounds) and all(accepted.inbound.direct for accepted in self.inbounds)

    @property
    def works_for_person(self) -> bool:
        """True if a person wrote what it answers, or said yes to what it continues, or if an agent or a task goes on for one."""
        origins = {accepted.inbound.origin for accepted in self.inbounds} or {self.origin}
        return origins <= {HUMAN_ORIGIN, APPROVAL_ORIGIN, AGENT_ORIGIN, TASK_ORIGIN}

    @property
    def has_power_over_other_chats(self) -> bool:
        """True if an owner asks in person, in a direct chat.

        In other chats people read along, and their messages reach the model that calls the tools.
        """
        is_by_person = all(accepted.inbound.is_answered_by_person for accepted in self.inbounds)
        return self.role.at_least(Role.OWNER) and self.is_direct and is_by_person

    def alert(self, sentence: str) -> None:
        """Send people a sentence about an action of the model, with or without an answer; commands report their own
        actions.
        """
        if not self.runs_command:
            self.root.alerts.append(sentence)

    @property
    def result_texts(self) -> Texts:
        """The sentences for the result of a tool: people read the language of the chat, models English."""
        return self.texts if self.runs_command else self.texts.english

    @property
    def is_typed(self) -> bool:
        """True if people wrote the answered messages."""
        return self.origin == HUMAN_ORIGIN

    @property
    def typing_account(self) -> Account | None:
        """The account of the one person who typed what it answers; None if several did, or a bot, or nobody."""
        people = {self.sender.id, *(accepted.inbound.sender.id for accepted in self.inbounds)}
        if self.sender.bot or len(people) > 1 or not is_id(self.sender.id) or not self.is_typed:
            return None
        return self.session.partition(":")[0], self.sender.id

    def note_answer(self, source: Source) -> None:
        """Note the provenance of words in its answer."""
        self.answer_source = most_foreign(source, self.answer_source)

    def note_copied(self, tape: str, ids: Sequence[int]) -> None:
        """Note entries of another tape whose words the running call or command returns."""
        if ids:
            self.copied.append((tape, spans_of(ids)))

    def take_copied(self) -> JsonObject:
        """Return the meta that names what was copied since the last time: `sources`; empty if nothing was."""
        copied, self.copied = self.copied, []
        return {"sources": [[tape, [list(span) for span in spans]] for tape, spans in copied]} if copied else {}

    def find_metadata(self, kind: type[T]) -> T | None:
        """Return the metadata of this class, if any."""
        value: T | None = self.metadata.get(kind)
        return value

    def handoff_after_results(self, name: str, state: JsonObject) -> None:
        """Open a new window once the running step's results are on the tape (T7)."""
        self.pending_handoffs.append((name, state))

    async def end_step(self) -> None:
        """Run `after_results` and write the handoffs; the running step's results must be on the tape."""
        waiting, self.after_results[:] = list(self.after_results), []
        for call in waiting:
            await call(self)
        await self.write_handoffs()

    async def write_handoffs(self) -> None:
        """Write the requested handoffs; each new window keeps the answered messages."""
        for name, state in self.pending_handoffs:
            await self.tape.handoff(name, state, recalls=spans_of(self.message_ids))
        self.pending_handoffs.clear()


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The status of a turn and the text for people."""

    status: Status
    text: str


class SourcedReply(Struct, frozen=True):
    """The reply of a turn that no person typed.

    Attributes:
        text: for people; empty for none.
        target: a message without text to the chat that gets the reply; None: nobody gets it.
        entries: facts for other tapes, by tape.
    """

    text: str = ""
    target: Outbound | None = None
    entries: Mapping[str, Sequence[TapeEntry]] = msgspec.field(default_factory=dict)


class TurnSource(Protocol):
    """A source of inbounds that no person typed, such as schedules. The origin of its inbounds names it."""

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Set the role, limits and metadata of a turn before it begins."""
        ...

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:
        """Build the reply and the facts of an ended turn, before its merge."""
        ...

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:
        """Build the facts about an inbound that cannot become a turn, by tape."""
        ...


class TurnGate(Protocol):
    """Decides when the next messages of a session get their turn."""

    async def wait(self, batch: Sequence[AcceptedInbound], wake: asyncio.Event) -> ModelCallDenied | None:
        """Wait until the messages may have their turn, or until `wake` is set.

        Args:
            wake: set to end the wait early.

        Returns:
            The error if the messages may not have a turn, else None.
        """
        ...


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn. `text` is for people; `merged_entries` are the entries of the delta with their ids."""

    turn_id: str
    status: Status
    text: str = ""
    merged_entries: tuple[TapeEntry, ...] = ()
