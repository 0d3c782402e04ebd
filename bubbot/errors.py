"""Every error bubbot raises, in one tree.

BubbotError
├── ConfigError                a setting, an option or a home folder that cannot be used
│   ├── UsageError             a command line that cannot be understood
│   ├── StrategyFailed         the code of an installed context strategy failed
│   ├── AddressUnavailable     an address that cannot be listened on now, and may be later
│   └── HomeLocked             another process writes to this home
├── TapeError
│   ├── TapeConflict           a stale head, or a key that stands for other content
│   ├── LeaseLost              another process has taken up the session since
│   ├── AnchorNotFound         a query names an anchor the tape does not have
│   ├── EntryNotFound          an id, blob or fork that the tape does not have
│   ├── EntryInvalid           a payload that is not JSON, or breaks the contract of its kind
│   └── TapeCorrupt            stored bytes that are unreadable or were altered
├── StoreError
│   ├── StoreUnavailable       the database currently cannot be opened, read or written
│   │   └── DatabaseLost       the home's database is missing or shorter; `fix` is a command
│   ├── StoreFull              the disk or the database has no room; nothing was written
│   └── StoreTooNew            the database was written by a newer bubbot
├── ModelError                 the model could not answer; the turn ends with a failure sentence
│   ├── ModelOverflow          the request is longer than the model's context
│   ├── ModelRateLimited       the provider asks for fewer requests; `retry_after` seconds if it says so
│   ├── ModelRefused           the provider declined this request, or the credentials
│   ├── ModelUnavailable       the provider, or the local model's process, is not reachable
│   ├── ModelUnconfigured      no model is set up
│   │   ├── ModelKeyMissing    the model's provider needs a key, and none is set
│   │   └── ModelQuarantined   a restored home calls no address that came with the backup
│   ├── ModelStepLimit         it kept calling tools until its steps were used up
│   ├── ModelRepeatsCall       it kept making the same call
│   ├── ModelCallsRefused      it kept making calls that are not allowed
│   ├── ModelEmptyAnswer       its answer has no text
│   └── ModelCallDenied        a budget or rate of this deployment forbids the call; no provider was called
│       ├── BudgetExceeded     a budget is used up
│       └── RateLimitExceeded  more messages than the rate of a person or a chat
├── ControlError               the running bot and a shell command lost or misunderstood each other
├── RequestInvalid             a request of another program that cannot be answered; `field` is the wrong one
├── OutputFailed               standard output cannot be written: closed, its disk full, or its reader gone
├── ToolError                  a tool raised, or ran out of time
│   └── CommandError           a comma command that cannot be understood; its text is the answer
├── CommandRefused             a command that cannot be carried out; `code` names its sentence, `values` are in it
│   ├── ValueInvalid           a value of the right type that names nothing here
│   ├── CommandFailed          its work cannot be done, whatever its arguments
│   └── ConfirmationNeeded     the person has to say yes first
├── AccessError                a code that does not work, or a grant that its giver may not give
├── MemoryTooLarge             a text that is too large for memory, since every version stores it again
├── TurnTimeout                a scheduled turn used up its time
├── FeatureFailed              the code of an installed feature failed
├── TraceReceiverFailed        the receiver of traces has not taken a request
├── RlProxyFailed              the proxy that records for training has not taken a request
└── ChannelError               a channel failed; it is restarted
    ├── ChannelRefused         the platform refuses the channel itself; only the operator can help
    ├── DeliveryFailed         a part could not be sent; `permanent` if a retry is useless
    └── FetchFailed            an attachment could not be fetched, or is too large

Signals a tool author raises (not errors of bubbot):
ToolSignal
├── ToolRetry                  the arguments were wrong in a way the model can fix
├── ToolFailed                 the tool cannot do it; a retry will not help
└── ToolRefused                the call is not allowed here; three in a row end the turn

Each class has `kind`, a stable word that is also stored on the tape. Its other attributes are declared in the class
with a default: an error from another process, or from an adapter that skips `__init__`, still has every attribute that
its class promises. They are ordinary classes: a frozen dataclass cannot store the traceback that a context manager sets
on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class BubbotError(Exception):
    """Base of all errors bubbot raises; `str()` is a sentence fit for a person."""

    kind = "error"


class ConfigError(BubbotError):
    """A setting, an option or the home folder cannot be used; the text names it and the fix."""

    kind = "config"


class UsageError(ConfigError):
    """A command line that cannot be understood; the text is one line that names the command for help."""

    kind = "usage"


class StrategyFailed(ConfigError):
    """The code of an installed context strategy raised, took too long, or returned what no request can be made of.

    Attributes:
        problem: which of these.
        denial: the refusal of a budget or a rate that it met, if any.
    """

    kind = "strategy_failed"
    strategy: str = ""
    problem: str = ""
    denial: ModelCallDenied | None = None

    def __init__(self, strategy: str, problem: str) -> None:
        super().__init__(f"The installed context strategy {strategy} failed: {problem}.")
        self.strategy = strategy
        self.problem = problem


class AddressUnavailable(ConfigError):
    """An address cannot be listened on: another program has it still, or its network is not up yet."""

    kind = "address_unavailable"


class HomeLocked(ConfigError):
    """Another process holds the writer's lock of this home."""

    kind = "home_locked"


class TapeError(BubbotError):
    """The tape refused an operation, or could not answer."""

    kind = "tape"


class TapeConflict(TapeError):
    """A stale `expect_head`, or a key already used for other content. Nothing was written."""

    kind = "tape_conflict"


class LeaseLost(TapeError):
    """Another holder has taken up the session since; what the older one wanted to write was not written."""

    kind = "lease_lost"


class AnchorNotFound(TapeError):
    """The query names an anchor that is not on the tape (or not after the other one)."""

    kind = "anchor_not_found"


class EntryNotFound(TapeError):
    """The tape has no entry with this id, no blob with this digest, or no such open fork."""

    kind = "entry_not_found"


class EntryInvalid(TapeError):
    """The payload or meta is not plain JSON, or breaks the contract of its kind."""

    kind = "entry_invalid"


class TapeCorrupt(TapeError):
    """Stored bytes are unreadable or altered; the text names tape and id."""

    kind = "tape_corrupt"


class StoreError(BubbotError):
    """The store failed as a whole."""

    kind = "store"


class StoreUnavailable(StoreError):
    """The database currently cannot be opened, read or written."""

    kind = "store_unavailable"


class DatabaseLost(StoreUnavailable):
    """The home had a database, which is missing or lacks its newest entries: only a person can decide how it goes on."""

    kind = "database_lost"
    fix: str = ""

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class StoreFull(StoreError):
    """No room on the disk or in the database; the append wrote nothing."""

    kind = "store_full"


class StoreTooNew(StoreError):
    """The database was written by a newer version of bubbot."""

    kind = "store_too_new"


class ModelError(BubbotError):
    """The model could not answer.

    Attributes:
        heard: estimated tokens that arrived before the failure; the provider charges for them, though nobody sees them.
        status: the HTTP status that the provider sent; None if it sent none.
        words: what the provider said, without secrets; empty if it said nothing.
    """

    kind = "model"
    heard: int = 0
    status: int | None = None
    words: str = ""


class ModelOverflow(ModelError):
    """The request is longer than the model's context."""

    kind = "model_overflow"


class ModelRateLimited(ModelError):
    """The provider asks for fewer requests; wait `retry_after` seconds if it said how long."""

    kind = "model_rate_limited"
    retry_after: float | None = None

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The provider declined this request or these credentials; a retry will not help."""

    kind = "model_refused"

    @property
    def is_of_request(self) -> bool:
        """True if the provider declined what the request holds: a request of another conversation may pass."""
        return self.status in (400, 413, 415, 422, 500, 501)


class ModelUnavailable(ModelError):
    """The provider or the local model's process is not reachable, crashed, or fell silent.

    Attributes:
        retry_after: the seconds to wait, if the provider says so.
        is_malformed: the provider says itself that what the model wrote is no answer, such as half a call.
    """

    kind = "model_unavailable"
    retry_after: float | None = None
    is_malformed: bool = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelUnconfigured(ModelError):
    """No model is set up."""

    kind = "model_unconfigured"


class ModelKeyMissing(ModelUnconfigured):
    """The provider of the model needs a key, and none is set; no provider was called."""

    kind = "model_key_missing"


class ModelQuarantined(ModelUnconfigured):
    """The address of the model came with a backup, and its home is not released; no provider was called."""

    kind = "model_quarantined"


class ModelStepLimit(ModelError):
    """The turn used up its `steps` without an answer."""

    kind = "step_limit"
    steps: int = 0

    def __init__(self, steps: int) -> None:
        super().__init__(
            f"I stopped after {steps} steps without an answer. ,retry lets me go on; [model] max_steps raises the limit."
        )
        self.steps = steps


class ModelRepeatsCall(ModelError):
    """The model kept calling the tool `name` with the same arguments."""

    kind = "repeated_call"
    name: str = ""

    def __init__(self, name: str) -> None:
        super().__init__(f"I stopped because the model kept calling {name} with the same arguments.")
        self.name = name


class ModelCallsRefused(ModelError):
    """The model made `count` calls in a row that are not allowed, the last one of the tool `name`."""

    kind = "calls_refused"
    name: str = ""
    count: int = 0

    def __init__(self, name: str, count: int) -> None:
        super().__init__(
            f"I stopped because {count} calls in a row were not allowed, the last one of {name}. They were not run."
        )
        self.name = name
        self.count = count


class ModelEmptyAnswer(ModelError):
    """The answer has no text and calls no tool."""

    kind = "empty_answer"

    def __init__(self) -> None:
        super().__init__("The model returned an empty answer.")


class ModelCallDenied(ModelError):
    """A budget or a rate of this deployment forbids the call.

    Attributes:
        scope: of the limit: `bot`, `channel`, `chat`, `user`, `job` or `model`.
        name: which one of that scope.
        renews: when calls are allowed again.
        told: the person was already notified.
        notice: the sentence that people get, in their language; empty if the person was already notified.
    """

    kind = "not_asked"
    scope: str = ""
    name: str = ""
    renews: str = ""
    told: bool = False
    notice: str = ""

    def __init__(self, message: str, *, scope: str, name: str, renews: str, told: bool = False) -> None:
        super().__init__(message)
        self.scope = scope
        self.name = name
        self.renews = renews
        self.told = told


class BudgetExceeded(ModelCallDenied):
    """A budget is used up until `renews`. `period`: `day` or `month`."""

    kind = "budget_spent"
    period: str = ""

    def __init__(self, *, scope: str, name: str, period: str, renews: str, told: bool = False) -> None:
        whose = f"{scope} {name}".rstrip()
        text = f"The budget of the {whose} for the {period} is used up; it starts again on {renews}."
        super().__init__(text, scope=scope, name=name, renews=renews, told=told)
        self.period = period


class RateLimitExceeded(ModelCallDenied):
    """More messages than the rate of a person or a chat allows: `count` in a `span` (`minute` or `hour`)."""

    kind = "too_many_messages"
    count: int = 0
    span: str = ""

    def __init__(self, *, scope: str, name: str, count: int, span: str, renews: str, told: bool = False) -> None:
        text = (
            f"More than {count} messages of the {scope} {name} within a {span}; from {renews} on there is room again."
        )
        super().__init__(text, scope=scope, name=name, renews=renews, told=told)
        self.count = count
        self.span = span


class ControlError(BubbotError):
    """The control connection broke, or received something that cannot be understood."""

    kind = "control"


class RequestInvalid(BubbotError):
    """A request of another program has a wrong `field`, or one that asks for what the bot cannot do."""

    kind = "request_invalid"
    field: str = ""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class OutputFailed(BubbotError):
    """Standard output cannot be written, for this `reason`.

    `reader_left`: it is a pipe whose reader has closed it, as after `bubbot tape list | head`.
    """

    kind = "output"
    reason: str = ""
    reader_left: bool = False

    def __init__(self, reason: str, *, reader_left: bool = False) -> None:
        super().__init__(f"The output could not be written: {reason}.")
        self.reason = reason
        self.reader_left = reader_left


class ToolError(BubbotError):
    """A tool raised, was refused, or ran out of time."""

    kind = "tool"


class CommandError(ToolError):
    """A comma command that cannot be understood or is not allowed; the text is the answer."""

    kind = "command"


class CommandRefused(BubbotError):
    """A command cannot be carried out. The catalogues have the sentence for people, in their language.

    `code` is the name of the sentence, a stable word for programs; `values` are those of its placeholders.
    """

    kind = "command_refused"
    code: str = ""
    values: Mapping[str, object] = MappingProxyType({})

    def __init__(self, code: str = "", /, **values: object) -> None:
        super().__init__(f"{code}: {', '.join(f'{name} {value}' for name, value in values.items())}".rstrip(": "))
        self.code = code
        self.values = values


class ValueInvalid(CommandRefused):
    """A value has the right type, but names nothing here."""

    kind = "value_invalid"


class CommandFailed(CommandRefused):
    """A command cannot do its work, whatever its arguments: a model gets it as `ToolFailed`."""

    kind = "command_failed"


class ConfirmationNeeded(CommandRefused):
    """The person has to say yes first; each surface asks in its way."""

    kind = "confirmation_needed"

    @classmethod
    def with_text(cls, question: str) -> ConfirmationNeeded:
        """Make one whose text is the question itself, for a program that asks in its own way."""
        error = cls("question")
        error.args = (question,)
        return error


class AccessError(BubbotError):
    """A pairing code that does not work, nothing to revoke, or a giver who may not; the text says which."""

    kind = "access"


class MemoryTooLarge(BubbotError):
    """A text that is larger than memory takes.

    Attributes:
        part: `long_term`, the date of a note, or `all` for everything together.
        size: its bytes.
        limit: how many there may be.
    """

    kind = "memory_too_large"
    part: str = ""
    size: int = 0
    limit: int = 0

    def __init__(self, part: str, size: int, limit: int) -> None:
        names = {"long_term": "the long-term memory", "all": "all of memory"}
        label = names.get(part, f"the note of {part}")
        super().__init__(f"{label} would have {size} bytes, and may have {limit}: shorten it; nothing was saved")
        self.part = part
        self.size = size
        self.limit = limit


class TurnTimeout(BubbotError):
    """A scheduled turn used up the `seconds` that its job may take."""

    kind = "over_time"
    seconds: float = 0.0

    def __init__(self, seconds: float) -> None:
        super().__init__(f"It took longer than the {seconds:g} seconds it may take.")
        self.seconds = seconds


class FeatureFailed(BubbotError):
    """The code of the installed `feature` raised, took too long or returned what it may not; `problem` says which."""

    kind = "feature_failed"
    feature: str = ""
    problem: str = ""

    def __init__(self, feature: str, problem: str) -> None:
        super().__init__(f"The installed feature {feature} failed: {problem}.")
        self.feature = feature
        self.problem = problem


class ChannelError(BubbotError):
    """A channel failed."""

    kind = "channel"


class ChannelRefused(ChannelError):
    """The platform refuses this channel, for example its token or a second poller. The text says what to do."""

    kind = "channel_refused"


class DeliveryFailed(ChannelError):
    """A part could not be sent.

    Attributes:
        permanent: the platform refused the part and would refuse it again.
        retry_after: the seconds to wait, if the platform says so.
        maybe: no answer came; the part may have arrived anyway.
        gone: the chat itself cannot be reached any more.
    """

    kind = "delivery_failed"
    permanent: bool = False
    retry_after: float | None = None
    maybe: bool = False
    gone: bool = False

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        maybe: bool = False,
        gone: bool = False,
    ) -> None:
        super().__init__(message)
        self.gone = gone
        self.permanent = permanent
        self.retry_after = retry_after
        self.maybe = maybe


class FetchFailed(ChannelError):
    """An attachment could not be fetched, or is larger than allowed; the text says which, for people.

    `permanent`: a retry is useless.
    """

    kind = "fetch_failed"
    permanent: bool = True

    def __init__(self, message: str, *, permanent: bool = True) -> None:
        super().__init__(message)
        self.permanent = permanent


class TraceReceiverFailed(BubbotError):
    """The receiver of traces has not taken a request; the text says why.

    `status`: of its answer, 0 without one. `retry_after`: seconds that it asks to wait, None if it does not. `answer`: the body of
    its answer, which may quote what it was sent.
    """

    kind = "trace_receiver"
    status: int = 0
    retry_after: float | None = None
    answer: bytes = b""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None, answer: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.answer = answer

    @property
    def is_final(self) -> bool:
        """True if it takes this request no more than now. Other refusals are about it, its address or the key."""
        return self.status in (400, 413, 415, 422)


class RlProxyFailed(BubbotError):
    """The proxy that records calls for training has not taken a request; the text says why.

    `status`: of its answer, 0 without one.
    """

    kind = "rl_proxy"

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_final(self) -> bool:
        """True if it takes this request no more than now: what it is about has ended, or is not there."""
        return self.status in (400, 401, 403, 404, 409, 410, 422)


class ToolSignal(Exception):
    """Base of the signals with which a tool's author reports an outcome to the model."""


class ToolRetry(ToolSignal):
    """The arguments were wrong in a way the model can fix; the text says how."""


class ToolFailed(ToolSignal):
    """The tool cannot do the task; a retry will not help."""


class ToolRefused(ToolSignal):
    """The call is not allowed here, whatever its arguments; the text invites no other try. Three in a row end the turn."""
