"""Run the preparation of a context strategy: in bounded time, with ports that end with it, and no failure ends the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from bubbot.errors import BubbotError, EntryInvalid, LeaseLost, ModelCallDenied, StoreError, StrategyFailed
from bubbot.formatting import clean
from bubbot.log import redact
from bubbot.ports.turn import Turn
from bubbot.runtime.context.ports import StrategyPorts, StrategySources
from bubbot.runtime.context.strategy import ContextStrategy, PreparationInput
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, event
from bubbot.tape.events import ContextPrepared, StrategyFailure
from bubbot.tape.fact import Fact
from bubbot.tape.provenance import most_foreign, stamp_of

PREPARE_SECONDS = 60.0
"""The default time limit of a preparation."""
GRACE_SECONDS = 2.0
"""How long a cancelled preparation may take to end, so that the record of its model call is written."""
MAX_FACTS = 64
"""The most facts of one preparation."""
MAX_FACT_BYTES = 131_072
"""The largest data of one fact."""
MAX_PROBLEM_CHARS = 300


@dataclass
class TurnPreparation:
    """What became of the preparations of a turn; kept in its metadata.

    Attributes:
        answered: the messages for which it was prepared last.
        failure: the strategy that failed, if any: the turn goes on with `window`.
        denial: the refusal of a budget or a rate that the strategy met, if any.
    """

    answered: tuple[int, ...] = ()
    failure: StrategyFailure | None = None
    denial: ModelCallDenied | None = None


def describe_failure(selector: str, error: BubbotError) -> StrategyFailure:
    """Describe a failed strategy in one line."""
    problem = error.problem if isinstance(error, StrategyFailed) else str(error)
    return StrategyFailure(selector, " ".join(clean(redact(problem)).split())[:MAX_PROBLEM_CHARS])


async def run_preparation(
    turn: Turn,
    strategy: ContextStrategy,
    source: PreparationInput,
    sources: StrategySources,
    seconds: float,
    *,
    is_own: bool = False,
) -> ModelCallDenied | None:
    """Let a strategy prepare the context of a turn, and append what it returns to the turn's tape.

    Args:
        sources: what its ports reach.
        seconds: its time limit.
        is_own: it is bubbot's, whose facts name entries and hold none of their words; others get the provenance of
            all that the strategy was given and has read.

    Returns:
        The newest refusal of a budget or a rate that it met, even if it went on without the answer.

    Raises:
        StrategyFailed: it raised, took too long, or returned what cannot be stored; nothing was appended, except the
            records of its model calls.
        StoreError: the store failed.
        LeaseLost: another process has taken up the session.
    """
    given = [*source.source.entries, *source.answered, *(entry for part in source.source.further for entry in part)]
    given += [source.source.opening] if source.source.opening is not None else []
    ports = StrategyPorts(turn, strategy.name, sources, given)
    try:
        found: object = ()
        if strategy.prepare is not None:
            found = await run_in_time(strategy, "prepare", partial(strategy.prepare, ports, source), ports, seconds)
        mark = stamp_of(turn.tape.source if is_own else most_foreign(turn.tape.source, ports.source))
        if not is_own and (foreign := ports.foreign_spans):  # so that an erasure and a revocation find them
            mark = {**mark, "sources": foreign}
        entries = _make_entries(strategy, source, ports, found, mark)
    except StrategyFailed as error:
        if ports.denial is not None and error.denial is None:
            error.denial = ports.denial
        if ports.calls:
            await turn.tape.save()  # what it cost stays known
        raise
    finally:
        ports.close()
    if entries:
        await turn.tape.append(entries)
    if ports.calls:
        await turn.tape.save()
    return ports.denial


async def run_in_time(
    strategy: ContextStrategy,
    hook: str,
    call: Callable[[], Awaitable[object]],
    ports: StrategyPorts,
    seconds: float,
) -> object:
    """Call a hook of the strategy in its own task, which is abandoned if it does not end when it is cancelled.

    Raises:
        StrategyFailed: it raised, or took too long; its ports are closed.
        StoreError: the store failed.
        LeaseLost: another process has taken up the session.
    """
    task = asyncio.ensure_future(_call(strategy, hook, call))
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise StrategyFailed(strategy.name, f"{hook}: it took longer than {seconds:g} seconds")
        if task.cancelled():
            raise StrategyFailed(strategy.name, f"{hook}: it cancelled itself")
        return task.result()
    finally:
        ports.close()
        if not task.done():
            task.cancel()
            task.add_done_callback(_ignore_end)
            await asyncio.wait([task], timeout=GRACE_SECONDS)


def _ignore_end(task: asyncio.Future[object]) -> None:
    """Take the error of an abandoned preparation, which nobody awaits."""
    if not task.cancelled():
        task.exception()


async def _call(strategy: ContextStrategy, hook: str, call: Callable[[], Awaitable[object]]) -> object:
    """Call the strategy; translate what it raises."""
    try:
        return await call()
    except (StoreError, LeaseLost, StrategyFailed):
        raise
    except ModelCallDenied as error:
        raise describe_error(strategy, hook, error, error) from error
    except (Exception, SystemExit) as error:  # a package is third-party code
        raise describe_error(strategy, hook, error) from error


def describe_error(
    strategy: ContextStrategy, hook: str, error: BaseException, denial: ModelCallDenied | None = None
) -> StrategyFailed:
    """Build the error that names the strategy, the hook and what it raised."""
    words = str(error)
    if not isinstance(error, BubbotError):
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    failed = StrategyFailed(strategy.name, f"{hook}: {words.rstrip('.')}")
    failed.denial = denial
    return failed


def _make_entries(
    strategy: ContextStrategy, source: PreparationInput, ports: StrategyPorts, found: object, mark: JsonObject
) -> list[TapeEntry]:
    """Make the entries to append of what a strategy returned. Raise `StrategyFailed` if it cannot be stored."""
    if isinstance(found, (str, bytes)) or not isinstance(found, Sequence):
        raise StrategyFailed(strategy.name, f"prepare: it returned a {type(found).__name__}, not a sequence of facts")
    if len(found) > MAX_FACTS:
        raise StrategyFailed(strategy.name, f"prepare: it returned {len(found)} facts; {MAX_FACTS} are allowed")
    try:
        return [_make_entry(strategy, source, ports, fact, mark) for fact in found]
    except (EntryInvalid, TypeError, ValueError, RecursionError, NotImplementedError) as error:
        raise describe_error(strategy, "prepare", error) from error


def _make_entry(
    strategy: ContextStrategy, source: PreparationInput, ports: StrategyPorts, fact: object, mark: JsonObject
) -> TapeEntry:
    if isinstance(fact, ContextPrepared):
        if not ports.knows(fact.entries):
            raise ValueError("it returned a fact that rests on entries which it was not given")
        fact = structs.replace(
            fact,
            strategy=strategy.name,
            version=strategy.version,
            messages=tuple([entry.id for entry in source.answered]),
            elsewhere=ports.foreign_spans,
        )
    entry = fact.to_entry() if isinstance(fact, Fact) else fact
    if not isinstance(entry, TapeEntry) or entry.kind != Kind.EVENT or not entry.name:
        raise TypeError(f"it returned a {type(fact).__name__}, which is no fact")
    if entry.name in ContextPrepared.EVENTS and not isinstance(fact, ContextPrepared):
        raise TypeError(f"it returned an event {entry.name} that is no ContextPrepared")
    if entry.name not in (*ContextPrepared.EVENTS, *strategy.events):
        raise TypeError(f"it returned an event {entry.name}, which its `events` do not name")
    if isinstance(fact, ContextPrepared) and ContextPrepared.try_of(entry) is None:
        raise TypeError("it returned a ContextPrepared whose fields are of other types")
    size = len(canonical(entry.payload).encode())
    if size > MAX_FACT_BYTES:
        raise ValueError(f"it returned a fact of {size} bytes; {MAX_FACT_BYTES} are allowed")
    return event(entry.name, entry.data, **mark)
