"""The guard between a bot and installed features, whose code may raise, hang or return anything.

A `FeatureGuard` wraps everything that a feature provides. No failure ends the bot: the guard records and logs it, and
either ignores it or raises a `FeatureFailed`, which fails the turn with a sentence that names the feature.
`guard_strategy` does the same for a context strategy. `docs/howto/add-a-feature.md` has the table. Errors of bubbot
itself, such as a full store, pass unchanged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from bubbot.app.events import OWN_REFERENCES
from bubbot.concurrency import is_being_cancelled
from bubbot.errors import (
    BubbotError,
    ConfigError,
    DeliveryFailed,
    FeatureFailed,
    StrategyFailed,
    ToolSignal,
)
from bubbot.feature import Apply, Around, Feature, Lifecycle
from bubbot.log import redact
from bubbot.middleware import AroundDelivery, CallNext, Middleware, PartDelivery
from bubbot.ports.channel import Inbound, Outbound, Receipt, Role
from bubbot.ports.health import FeatureProblem, MetricSpec
from bubbot.ports.model import ModelReply, ModelTraits
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome, TurnSource
from bubbot.runtime.compose import PromptSection, PromptText, Withholds
from bubbot.runtime.context.ports import StrategyPorts
from bubbot.runtime.context.selectors import ContextMessage
from bubbot.runtime.context.strategy import (
    ContextInput,
    ContextStrategy,
    ModelContext,
    PreparationInput,
    PrepareContext,
)
from bubbot.shell_command import Command
from bubbot.tape.entry import Kind, TapeEntry, timestamp
from bubbot.tape.events import ContextPrepared, EvidenceQuoted
from bubbot.tape.fact import Fact
from bubbot.tape.handle import Clock
from bubbot.tape.query import Slice, TapeQuery
from bubbot.tool import RerunModel, Tool, Toolbox

log = logging.getLogger(__name__)

_SHARED_EVENTS = ("context/cut", "context/recalled")
"""Events of bubbot's strategies that a package's strategy may also write, since it may be built on one of these."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

T = TypeVar("T")
V = TypeVar("V")
R = TypeVar("R")


class GuardTimeouts(Struct, frozen=True):
    """Time limits for the code of a package, in seconds.

    Attributes:
        build: building the feature.
        lifespan: entering and leaving its lifespan, each.
        hook: one call of a hook; for middleware, its own time without the wrapped call.
    """

    build: float = 30.0
    lifespan: float = 30.0
    hook: float = 10.0


class FeatureProblems:
    """The newest problem of each installed feature, for the log and the health of the bot."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._problems: dict[str, FeatureProblem] = {}

    def __iter__(self) -> Iterator[FeatureProblem]:
        """Iterate over the problems by feature name."""
        return iter([self._problems[name] for name in sorted(self._problems)])

    def is_left_out(self, name: str) -> bool:
        """Return true if the bot runs without this feature."""
        return name in self._problems and self._problems[name].is_left_out

    def leave_out(self, name: str, reason: str, error: BaseException | None = None) -> None:
        """Record that the bot runs without a feature and all its parts."""
        self._problems[name] = FeatureProblem(name, redact(reason), timestamp(self._now()), is_left_out=True)
        log.warning("feature %s left out: %s", name, reason, exc_info=error, extra={"action": "plugin.broken"})

    def record_strategy(self, selector: str, error: BubbotError) -> None:
        """Record that a context strategy failed. Each request may repeat the failure: log equal ones only once."""
        name, reason = (
            f"context strategy {selector}",
            error.problem if isinstance(error, StrategyFailed) else str(error),
        )
        known = self._problems.get(name)
        if known is None or known.reason != redact(reason):
            self.record(name, reason, error)

    def record(
        self, name: str, reason: str, error: BaseException | None = None, *, level: int = logging.WARNING
    ) -> None:
        """Record that the code of a feature failed; the feature stays. `level` is that of the log record."""
        if not self.is_left_out(name):
            self._problems[name] = FeatureProblem(name, redact(reason), timestamp(self._now()))
        log.log(level, "feature %s failed: %s", name, reason, extra={"action": "plugin.failed"})
        log.debug("traceback", exc_info=error, extra={"action": "plugin.failed"})


class FeatureGuard:
    """Guards the code of one feature.

    Attributes:
        name: the feature.
        timeouts: time limits for its code.
    """

    def __init__(self, name: str, problems: FeatureProblems, timeouts: GuardTimeouts) -> None:
        self.name = name
        self.timeouts = timeouts
        self._problems = problems

    def build(self, build: Callable[[], object]) -> Feature | None:
        """Build the feature and wrap it; None if it is left out. Raise `ConfigError` if it refuses its settings."""
        try:
            return self._wrap(check_feature(_run_in_thread(build, self.timeouts.build), self.name))
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # a package is third-party code
            self._problems.leave_out(self.name, _describe(error), error)
            return None

    def _wrap(self, feature: Feature) -> Feature:
        around, guard, lifecycle = feature.around, self._around, feature.lifecycle
        lifespan, recovered, prepare, renew = (
            lifecycle.lifespan, lifecycle.on_recovered, lifecycle.prepare, lifecycle.renew,
        )  # fmt: skip
        wrapped = replace(
            feature,
            tools=[self._tool(tool) for tool in feature.tools],
            prompt=[part if isinstance(part, str) else self._section(part) for part in feature.prompt],
            sources={origin: GuardedSource(self, source) for origin, source in feature.sources.items()},
            around=Around(
                turn=[guard("around.turn", each, TurnOutcome) for each in around.turn],
                model=[guard("around.model", each, ModelReply) for each in around.model],
                tool=[guard("around.tool", each, str, RerunModel) for each in around.tool],
                delivery=[self._delivery(each) for each in around.delivery],
                before_step=[partial(self.notify, "before_step", each) for each in around.before_step],
                withholds=[partial(self._withhold, each) for each in around.withholds],
            ),
            on_merged=[partial(self.notify, "on_merged", each) for each in feature.on_merged],
            lifecycle=Lifecycle(
                lifespan=partial(self._lifespan, lifespan) if lifespan else None,
                on_recovered=partial(self.notify, "on_recovered", recovered) if recovered else None,
                background=self._guard_background(lifecycle.background),
                background_everywhere=self._guard_background(lifecycle.background_everywhere),
                prepare=partial(self._prepare, prepare) if prepare else None,
                renew=(lambda: self._renew(wrapped, renew)) if renew else None,
            ),
        )
        return wrapped

    def _renew(self, wrapped: Feature, renew: Callable[[], object]) -> Feature:
        """Build the feature under the settings in force, and wrap it. If that fails, it stays as it is."""
        try:
            return self._wrap(check_feature(_run_in_thread(renew, self.timeouts.hook), self.name))
        except (Exception, SystemExit) as error:  # a package is third-party code
            self.fail("renew", _describe(error), error)
            return wrapped

    def _guard_background(
        self, background: Mapping[str, Callable[[], Awaitable[None]]]
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            f"feature {self.name}: {name}": partial(self._background, name, run) for name, run in background.items()
        }

    def fail(self, where: str, problem: str, error: BaseException | None = None) -> FeatureFailed:
        """Record a failure; return it as an error."""
        failure = FeatureFailed(self.name, f"{where}: {problem}")
        self._problems.record(self.name, failure.problem, error)
        return failure

    async def call(self, where: str, timeout: float, hook: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call a hook. Raise `FeatureFailed` if it takes too long or raises anything but an error of bubbot."""
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await hook(*args)
        except BaseException as error:  # a package is third-party code
            self._raise(where, error, timeout if limit.expired() else None)

    def _raise(self, where: str, error: BaseException, timeout: float | None) -> NoReturn:
        failure = self._translate(where, error, timeout)
        raise failure from (error.__cause__ if failure is error else error)

    def _translate(self, where: str, error: BaseException, timeout: float | None) -> BaseException:
        """Translate an error of the package's code; return errors unchanged that are not its defect."""
        if isinstance(error, BubbotError | ToolSignal):
            return error
        if isinstance(error, asyncio.CancelledError):
            return error if is_being_cancelled() else self.fail(where, "it cancelled itself", error)
        if isinstance(error, TimeoutError) and timeout is not None:
            return self.fail(where, f"it took longer than {timeout:g} seconds", error)
        return self.fail(where, _describe(error), error) if isinstance(error, Exception | SystemExit) else error

    async def notify(self, where: str, hook: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Call a hook; record its failure and continue."""
        try:
            await self.call(where, self.timeouts.hook, hook, *args)
        except (BubbotError, ToolSignal) as error:
            self.pass_over(where, error)

    def pass_over(self, where: str, error: BubbotError | ToolSignal) -> None:
        """Record a failure that the bot ignores."""
        if not isinstance(error, FeatureFailed):  # which is recorded already
            self.fail(where, _describe(error), error)

    def _withhold(self, withholds: Withholds, turn: Turn, quoted: EvidenceQuoted) -> bool:
        """Ask whether evidence is withheld; it is, if the code of the package fails."""
        try:
            return bool(withholds(turn, quoted))
        except (Exception, SystemExit) as error:  # a package is third-party code
            self.fail("withholds", _describe(error), error)
            return True

    def _tool(self, tool: Tool) -> Tool:
        """Guard a tool: an error is its result, and so is an exit."""

        def guard(work: Callable[[Turn, Any], Awaitable[Any]]) -> Callable[[Turn, Any], Awaitable[Any]]:
            async def run(turn: Turn, args: Any) -> Any:
                try:
                    return await work(turn, args)
                except (SystemExit, asyncio.CancelledError) as error:
                    self._raise(tool.name, error, None)

            return run

        plan, probe = tool.plan and guard(tool.plan), tool.probe and guard(tool.probe)
        return replace(tool, run=guard(tool.run), plan=plan, probe=probe)

    def _section(self, section: PromptSection) -> PromptSection:
        async def build(turn: Turn, traits: ModelTraits) -> str | PromptText:
            try:
                text: object = await self.call("prompt", self.timeouts.hook, section, turn, traits)
            except FeatureFailed:
                return ""  # the bot answers without it
            if isinstance(text, (str, PromptText)):
                return text
            self.fail("prompt", f"it returned a {type(text).__name__}, not a text")
            return ""

        return build

    def _around(self, where: str, around: Middleware[V, R], *kinds: type) -> Middleware[V, R]:
        """Guard middleware: distinguish its own failures and time from those of the wrapped call."""
        seconds = self.timeouts.hook

        async def guarded(value: V, call_next: CallNext[V, R]) -> R:
            passed: list[BaseException] = []
            limit = asyncio.timeout(seconds)

            async def call_inner(value: V) -> R:
                _reschedule(limit, None)
                try:
                    return await call_next(value)
                except BaseException as error:
                    passed.append(error)
                    raise
                finally:
                    _reschedule(limit, seconds)

            try:
                async with limit:
                    result: R = await around(value, call_inner)
            except BaseException as error:  # a package is third-party code
                if any(error is inner for inner in passed):
                    raise
                self._raise(where, error, seconds if limit.expired() else None)
            if not isinstance(result, kinds):
                raise self.fail(where, f"it returned a {type(result).__name__}")
            return result

        return guarded

    def _delivery(self, around: AroundDelivery) -> AroundDelivery:
        """Guard middleware around a delivery: its failure must neither lose a part nor send it twice."""
        guarded = self._around("around.delivery", around, Receipt)

        async def deliver(delivery: PartDelivery, call_next: CallNext[PartDelivery, Receipt]) -> Receipt:
            receipts: list[Receipt] = []
            failures: list[Exception] = []

            async def send(delivery: PartDelivery) -> Receipt:
                if not receipts:
                    try:
                        receipts.append(await call_next(delivery))
                    except Exception as error:
                        failures.append(error)
                        raise
                return receipts[0]

            if self._problems.is_left_out(self.name):  # channels keep its middleware
                return await call_next(delivery)
            try:
                return await guarded(delivery, send)
            except (BubbotError, ToolSignal) as error:
                if receipts:  # the part arrived
                    self.pass_over("around.delivery", error)
                    return receipts[0]
                if failures or isinstance(error, DeliveryFailed):
                    raise (failures or [error])[-1] from None
                self.pass_over("around.delivery", error)
                return await call_next(delivery)

        return deliver

    @asynccontextmanager
    async def _lifespan(self, lifespan: Callable[[], AbstractAsyncContextManager[None]]) -> AsyncIterator[None]:
        """Enter and leave the lifespan; leave the feature out if entering fails."""

        async def enter() -> AbstractAsyncContextManager[None]:
            block = lifespan()
            await block.__aenter__()
            return block

        try:
            block = await self.call("lifespan", self.timeouts.lifespan, enter)
        except (BubbotError, ToolSignal) as error:
            reason = error.problem if isinstance(error, FeatureFailed) else f"lifespan: {_describe(error)}"
            self._problems.leave_out(self.name, reason, error)
            yield
            return
        try:
            yield
        finally:
            try:
                await self.call("lifespan", self.timeouts.lifespan, block.__aexit__, None, None, None)
            except (BubbotError, ToolSignal) as error:
                self.pass_over("lifespan", error)

    async def _background(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run work until it ends; its supervisor restarts it after a failure or an exit."""
        try:
            await run()
        except (Exception, SystemExit) as error:  # a package is third-party code
            problem = f"background {name}: {_describe(error)}"
            self._problems.record(
                self.name, problem, error, level=logging.DEBUG
            )  # the supervisor logs it with the wait
            raise FeatureFailed(self.name, problem) from error

    async def _prepare(self, prepare: Callable[[Any], Awaitable[Apply]], settings: Any) -> Apply:
        """Let the feature check its settings. Raise `ConfigError` if it refuses them or fails."""
        try:
            apply: object = await self.call("prepare", self.timeouts.hook, prepare, settings)
        except ConfigError:
            raise
        except (BubbotError, ToolSignal) as error:
            problem = error.problem if isinstance(error, FeatureFailed) else _describe(error)
            raise ConfigError(f"The feature {self.name!r} cannot take its settings: {problem}") from error
        if not callable(apply):
            raise ConfigError(f"The feature {self.name!r} cannot take its settings: prepare: it returned no function")

        def apply_safely() -> None:
            try:
                apply()
            except (Exception, SystemExit) as error:  # the others still apply theirs
                self.fail("prepare", _describe(error), error)

        return apply_safely


class GuardedSource:
    """A package's source of turns. See `TurnSource`."""

    def __init__(self, guard: FeatureGuard, source: TurnSource) -> None:
        self._guard = guard
        self._source = source

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Set the role and limits of a turn. Raise `FeatureFailed`, which fails its messages."""
        try:
            self._source.prepare(turn, inbound)
        except (Exception, SystemExit) as error:  # a package is third-party code
            raise self._guard.fail("sources", _describe(error), error) from error

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:
        """Build the reply; if that fails, reply with the outcome to the inbound's chat."""
        try:
            reply = self._source.build_reply(turn, inbound, outcome)
            if isinstance(reply, SourcedReply):
                return reply
            self._guard.fail("sources", f"it returned a {type(reply).__name__}")
        except (Exception, SystemExit) as error:  # a package is third-party code
            self._guard.fail("sources", _describe(error), error)
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:
        """Build the facts about an inbound that cannot become a turn; none if that fails."""
        try:
            return {tape: tuple(facts) for tape, facts in self._source.failure_entries(inbound, reason).items()}
        except (Exception, SystemExit) as error:  # a package is third-party code
            self._guard.fail("sources", _describe(error), error)
            return {}


def check_feature(feature: object, name: str) -> Feature:
    """Return a package's feature. Raise `TypeError` if it is not a feature with this name or has invalid parts."""
    if not isinstance(feature, Feature):
        raise TypeError(f"it is {type(feature).__name__}, not a Feature")
    if feature.name != name:
        raise TypeError(f"it is called {feature.name!r}")
    _check_items("tools", feature.tools, lambda item: isinstance(item, Tool))
    _check_items("traces", feature.traces, lambda item: isinstance(item, str))
    _check_items("prompt", feature.prompt, lambda item: isinstance(item, str) or callable(item))
    _check_items("sources", feature.sources.values(), lambda source: hasattr(source, "build_reply"))
    _check_items("commands", feature.commands, lambda item: isinstance(item, Command))
    _check_items("metrics", feature.metrics, lambda item: isinstance(item, MetricSpec))
    _check_items("on_merged", feature.on_merged, callable)
    _check_items("health", _given(feature.health), callable)
    _check_group("around", feature.around, Around)
    _check_group("lifecycle", feature.lifecycle, Lifecycle)
    for each in feature.tools:
        each.spec()  # its schema can be built
        if each.role not in list(Role):
            raise TypeError(f"its tool {each.name} is for {each.role!r}, which is no role")
    try:
        Toolbox(feature.tools)
    except ConfigError as error:
        raise TypeError(str(error)) from error
    return feature


def _check_group(name: str, group: object, kind: type[Around | Lifecycle]) -> None:
    """Raise `TypeError` unless it is of that kind, and its fields hold callables: one, several, or several by name."""
    if not isinstance(group, kind):
        raise TypeError(f"its {name} is {type(group).__name__}, not {kind.__name__}")
    for each in fields(group):
        value = getattr(group, each.name)
        items = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, Sequence) else _given(value)
        )
        _check_items(f"{name}.{each.name}", items, callable)


def _given(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _check_items(field: str, items: Any, is_right: Callable[[Any], bool]) -> None:
    if isinstance(items, str):
        raise TypeError(f"its {field} is one text")
    for item in items:
        if not is_right(item):
            raise TypeError(f"its {field} holds {type(item).__name__}")


def _run_in_thread(work: Callable[[], object], timeout: float) -> object:
    """Run work in a thread and return its result. Raise its error, or `TimeoutError`: then the work is abandoned."""
    results: list[object] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="build feature", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"it was not built within {timeout:g} seconds")
    return results[0]


def guard_strategy(strategy: ContextStrategy) -> ContextStrategy:
    """Wrap a package's context strategy, so that it raises only `StrategyFailed`, which names it, or returns a usable
    context.
    """

    own_names = [name for name in strategy.events if name not in OWN_REFERENCES.events]
    made = {*own_names, *ContextPrepared.EVENTS}

    def guard(hook: str, call: Callable[..., T], check: Callable[..., str]) -> Callable[..., T]:
        def guarded(*arguments: Any) -> T:
            try:
                value = call(*arguments)
                problem = check(value, *arguments)
            except (Exception, SystemExit) as error:
                raise StrategyFailed(strategy.name, f"{hook}: {_describe(error)}") from error
            if problem:
                raise StrategyFailed(strategy.name, f"{hook}: {problem}")
            return value

        return guarded

    def fold_safely(fold: Callable[[ContextInput], ModelContext]) -> Callable[[ContextInput], ModelContext]:
        def build(source: ContextInput) -> ModelContext:
            context: object = fold(source)
            if not isinstance(context, ModelContext):
                raise TypeError(f"it returned a {type(context).__name__}")
            own = [entry.id for entry in source.entries if entry.kind == Kind.EVENT and entry.name in made]
            facts = tuple([_without_meta(fact) for fact in context.facts])
            return ModelContext(tuple(context.context_messages), facts, tuple(own))

        return guard("fold", build, _find_fault)

    def list_further(tape: str, entries: Sequence[TapeEntry]) -> Sequence[TapeQuery]:
        return tuple(strategy.find_further(tape, entries))

    def check_further(queries: Sequence[object], tape: str, _entries: object) -> str:
        is_usable = all(isinstance(query, TapeQuery) and query.tape == tape for query in queries)
        return "" if is_usable else "it returned something else than queries on the tape"

    def check_part(part: object, _argument: str) -> str:
        return "" if isinstance(part, Slice) else f"it returned a {type(part).__name__}"

    return replace(
        strategy,
        fold=fold_safely(strategy.fold),
        earlier={version: fold_safely(fold) for version, fold in strategy.earlier.items()},
        part=guard("part", strategy.part, check_part),
        find_further=guard("find_further", list_further, check_further),
        prepare=None if strategy.prepare is None else partial(_prepare, strategy.name, strategy.prepare),
    )


def _without_meta(fact: Any) -> Any:
    """Drop the meta that a package gave a fact: among it may be a provenance."""
    return replace(fact, meta={}) if isinstance(fact, TapeEntry) and fact.meta else fact


async def _prepare(
    name: str, prepare: PrepareContext, ports: StrategyPorts, source: PreparationInput
) -> Sequence[TapeEntry | Fact]:
    """Let a package's strategy prepare. Raise `StrategyFailed` if it returns an event that only bubbot may write."""
    found: object = await prepare(ports, source)
    facts: Sequence[Any] = found if isinstance(found, (list, tuple)) else ()
    if event := _find_foreign_name(facts):
        raise StrategyFailed(name, f"prepare: it returned an event {event}, which is bubbot's own")
    if not isinstance(found, (list, tuple)):
        raise TypeError(f"it returned a {type(found).__name__}, not a list of facts")
    return facts


def _find_foreign_name(facts: Sequence[object]) -> str:
    """Return the name of the first event that only bubbot may write; empty if there is none."""
    names = [
        fact.EVENTS[0] if isinstance(fact, Fact) and fact.EVENTS else fact.name if isinstance(fact, TapeEntry) else None
        for fact in facts
    ]
    allowed = {*ContextPrepared.EVENTS, *_SHARED_EVENTS}
    return next((name for name in names if name in OWN_REFERENCES.events and name not in allowed), None) or ""


def _find_fault(context: ModelContext, source: ContextInput) -> str:
    """Describe why a third-party strategy's context cannot become a request; empty if it can."""
    known = {entry.id for entry in chain(source.entries, *source.further)}
    if source.opening is not None:
        known.add(source.opening.id)
    for each in context.context_messages:
        if not isinstance(each, ContextMessage):
            return f"it returned a {type(each).__name__} as a message"
        if fault := _find_message_fault(each.message):
            return f"it returned a message with {fault}"
        if fault := _find_unknown(each.ids, known):
            return f"it returned a message of {fault}"
    facts: Sequence[object] = context.facts
    if not all(isinstance(fact, TapeEntry) and fact.kind == Kind.EVENT for fact in facts):
        return "it returned a fact that is no event"
    name = _find_foreign_name(facts)
    return f"it returned an event {name}, which is bubbot's own" if name else ""


def _find_unknown(ids: object, known: set[int]) -> str:
    if not isinstance(ids, tuple) or any(type(each) is not int for each in ids):
        return "entries without ids"
    unknown = [each for each in ids if each not in known]
    return f"the entry {unknown[0]}, which it was not given" if unknown else ""


def _find_message_fault(message: Mapping[str, Any]) -> str:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "tool"):
        return f"the role {role!r}"
    calls = message.get("tool_calls")
    if calls is not None and (role != "assistant" or not _are_calls(calls)):
        return "calls that are none"
    if role == "tool":
        is_result = isinstance(content, str) and isinstance(message.get("tool_call_id"), str)
        return "" if is_result else "a result that is none"
    if isinstance(content, str):
        return "" if content.strip() or calls else "no text"
    return "" if isinstance(content, list) and content and all(map(_is_part, content)) else "a content that is none"


def _is_part(part: object) -> bool:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        return False
    return part["type"] != "text" or (isinstance(part.get("text"), str) and bool(part["text"].strip()))


def _are_calls(calls: object) -> bool:
    if not isinstance(calls, (list, tuple)) or not calls:
        return False
    ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    return all(map(_is_call, calls)) and all(isinstance(each, str) and each for each in ids) and len({*ids}) == len(ids)


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
        return False
    try:
        return bool(_TOOL_NAME.fullmatch(name)) and isinstance(json.loads(function.get("arguments", "")), dict)
    except (ValueError, TypeError, RecursionError):
        return False


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _reschedule(limit: asyncio.Timeout, seconds: float | None) -> None:
    """Set a running timeout to so many seconds from now; None: no limit."""
    with suppress(RuntimeError):  # the timeout is over: the package continues in its own task
        limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)
