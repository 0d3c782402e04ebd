"""Explaining: a sub-task that reads, an answer that cites, and the check that decides whether people get it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from bubbot.concurrency import uninterrupted
from bubbot.errors import AccessError, BubbotError, CommandRefused, ConfigError, EntryNotFound, LeaseLost, StoreError
from bubbot.feature import OpenCopy, ReadSession
from bubbot.features.explain.facts import EXPLAINED, CitedStatement, ExplainStatus, ExplanationEnded
from bubbot.features.explain.reading import (
    CALLS_TOOL,
    DELIVERIES_TOOL,
    EXPLAIN_TOOL,
    TURN_TOOL,
    ExplainTask,
    read_deliveries,
    read_turn,
)
from bubbot.features.explain.sources import read_source
from bubbot.features.explain.statements import (
    AnswerInvalid,
    Citation,
    CitedEntry,
    Statement,
    check_quotations,
    find_shown,
    parse_answer,
)
from bubbot.formatting import clean
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.model import ToolCall
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import escape_tags
from bubbot.runtime.turns import TurnRecord, discarded_steps, read_calls, read_results
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry, int_field
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import CORRECTION, TapeHandle, spans_of
from bubbot.tape.query import IdRanges, TapeQuery, format_date
from bubbot.tape.service import TapeService

ORIGIN = "explain"
EXPLAIN_TOOLS = frozenset(
    {"tape.search", "tape.read", "tape.around", "tape.anchors", "chat.read", TURN_TOOL, CALLS_TOOL, DELIVERIES_TOOL}
)
"""What the model of an explanation may call; all of it only reads."""
MAX_STEPS = 12
"""Model calls of one attempt at an answer."""
ATTEMPTS = 2
"""The answer, and one repair."""
_REPAIR = "This cannot be used: {problem}\nAnswer again in the same form. Look again if you need to."
_LAST = "The last turn before this question is entries #{first} to #{last}."


class Explanation(Struct, frozen=True):
    """How an explanation ended.

    Attributes:
        status: see `ExplainStatus`.
        statements: the answer; empty unless it is founded.
        read: the entries that the model was shown.
        problems: why its answers were refused, in order.
        reason: why no model answered, or why its last answer was refused.
        conclusion: what the model concludes from the statements, in its own words; empty if it does not.
        tape: the name of the tape that it is about.
        fact: the fact of it; None before it is recorded.
    """

    status: ExplainStatus
    statements: tuple[Statement, ...] = ()
    read: frozenset[Citation] = frozenset()
    problems: tuple[str, ...] = ()
    reason: str = ""
    tape: str = ""
    conclusion: str = ""
    fact: ExplanationEnded | None = None


@dataclass(slots=True)
class _Attempt:
    """The sub-task that explains.

    Attributes:
        question: what was asked.
        head: the newest entry before it; what came later is the explanation itself, and founds nothing.
        fork: where it works.
        copy: it works on another chat's tape, of which nothing is kept.
        tapes: the names of the tapes that it was shown, as it was shown them.
    """

    question: str
    head: int
    fork: ForkedTape
    copy: bool
    tapes: dict[str, str] = field(default_factory=dict)


class ExplainService:
    """Answers questions about what happened on a tape."""

    def __init__(self, read_session: ReadSession, open_copy: OpenCopy) -> None:
        """Set how other tapes are opened.

        Args:
            read_session: those that the chat of the question was granted.
            open_copy: any, for the person at the terminal.
        """
        self._read_session = read_session
        self._open_copy = open_copy

    async def explain(self, turn: Turn, question: str, chat: str = "") -> Explanation:
        """Answer a question.

        Args:
            turn: the turn in which it was asked.
            chat: the session or tape that it is about; empty for that of the turn. Only the owner at the terminal may name
                another one.

        Raises:
            CommandRefused: another chat cannot be explained from here.
            EntryNotFound: there is none.
            ConfigError: it is not the tape of a chat.
        """
        attempt = await self._open(turn, question, chat)
        try:
            explanation = await self._run(turn, attempt)
        except asyncio.CancelledError:  # stopped, out of time, or the process is ending: the fork must not stay open
            await self._close(turn, attempt, Explanation("failed", reason="stopped"))
            raise
        fact = await self._close(turn, attempt, explanation)
        return replace(explanation, tape=attempt.fork.name, fact=fact)

    async def _open(self, turn: Turn, question: str, chat: str) -> _Attempt:
        """Open the fork, with a window of its own that begins with the question."""
        stamp = {"origin": ORIGIN}
        if not chat:
            attempt = _Attempt(question, turn.tape.base, await turn.tape.fork(stamp=stamp), copy=False)
        else:
            copy = await self._open_other(turn, chat)
            outer = await copy.open_fork(stamp={"turn": turn.id})
            attempt = _Attempt(question, outer.base, await outer.fork(stamp=stamp), copy=True)
        fork = attempt.fork
        last = await read_turn(fork, attempt.head)
        hint = f"\n\n{_LAST.format(first=last[0].id, last=last[-1].id)}" if last else ""
        opening = anchor("explain/question", {"phase": "explanation", "owner": "agent"})
        await fork.append([opening, make.message("user", clean(f"{question}{hint}"))])
        await fork.save()
        return attempt

    async def _open_other(self, turn: Turn, chat: str) -> TapeService:
        is_terminal = turn.session.partition(":")[0] == TERMINAL_CHANNEL
        if not (is_terminal and turn.has_power_over_other_chats):
            raise CommandRefused("explain_only_terminal")
        return await self._open_copy(chat)

    async def _run(self, turn: Turn, attempt: _Attempt) -> Explanation:
        """Ask the model; once more if its answer does not hold."""
        fork, problems, reason = attempt.fork, list[str](), ""
        child = turn.derive(
            fork,
            origin=ORIGIN,
            message_ids=[await fork.head()],
            allowed_tools=EXPLAIN_TOOLS,
            max_steps=MAX_STEPS,
            metadata=[ExplainTask(attempt.head)],
        )
        try:
            for _ in range(ATTEMPTS):
                answer = (await child.runner.run_model(child)).text
                try:
                    statements, conclusion = await self._check(child, attempt, answer)
                except AnswerInvalid as error:
                    problems.append(str(error))
                    reason = error.describe(turn.texts)
                    repair = _REPAIR.format(problem=escape_tags(str(error)))
                    (asked,) = await fork.append([make.message("user", clean(repair))])
                    child.message_ids = [*child.message_ids, asked.id]
                else:
                    status: ExplainStatus = "founded" if statements else "unknown"
                    read = find_read(attempt)
                    return Explanation(status, statements, read, tuple(problems), conclusion=conclusion)
        except (StoreError, LeaseLost):
            raise  # nothing can be recorded; what the fork saved is durable
        except BubbotError as error:
            await fork.append([make.error(error.kind, clean(str(error)))])
            reason = turn.texts.reason(error)
            return Explanation("failed", (), find_read(attempt), tuple(problems), reason)
        return Explanation("unfounded", (), find_read(attempt), tuple(problems), reason)

    async def _check(self, child: Turn, attempt: _Attempt, text: str) -> tuple[tuple[Statement, ...], str]:
        """Read an answer and check it; return what people read, and its conclusion.

        Raise `AnswerInvalid` with the first line that does not hold.
        """
        quotations, conclusion = parse_answer(text)
        entries = await self._find_entries(child, attempt, {each.citation for each in quotations})
        # In a thread: a long entry takes a second.
        statements = await asyncio.to_thread(check_quotations, quotations, find_read(attempt), entries, child.texts)
        return statements, conclusion

    async def _find_entries(self, child: Turn, attempt: _Attempt, cited: set[Citation]) -> dict[Citation, CitedEntry]:
        """Find what there is of cited entries."""
        found: dict[Citation, CitedEntry] = {}
        for tape in sorted({citation.tape for citation in cited}):
            ids = sorted(citation.entry for citation in cited if citation.tape == tape)
            if not tape:
                entries = await _fetch(attempt.fork, [each for each in ids if each <= attempt.head], child)
                attempt.tapes[tape] = attempt.fork.name
            elif tape.startswith(f"{OUTBOX_PREFIX}/"):
                own = (await read_deliveries(attempt.fork)).get(tape, ())
                entries = {entry.id: _cite(entry, {}, child) for entry in own if entry.id in ids}
                attempt.tapes[tape] = tape
            else:
                try:
                    other = await self._read_session(child, tape)
                except AccessError:
                    found |= {Citation(each, tape): CitedEntry(is_granted=False) for each in ids}
                    continue
                except (EntryNotFound, ConfigError):
                    continue
                entries = await _fetch(other, ids, child)
                attempt.tapes[tape] = other.name
            found |= {Citation(each, tape): entry for each, entry in entries.items()}
        return found

    @uninterrupted
    async def _close(self, turn: Turn, attempt: _Attempt, explanation: Explanation) -> ExplanationEnded:
        """Merge what the explanation did; of one on another chat's tape keep only what it cost and came to."""
        fork, fact = attempt.fork, _describe(attempt, explanation)
        if not attempt.copy:
            await fork.append([fact.to_entry()])
            await fork.merge()
            return fact
        turn.tape.raise_source(fork.source)
        await turn.tape.append([*discarded_steps(fork.delta, ORIGIN), fact.to_entry()])
        await turn.tape.save()
        return fact


def find_read(attempt: _Attempt) -> frozenset[Citation]:
    """Find the entries that the tools of an explanation have shown, without those that it wrote itself."""
    results = (
        str(result.get("content", ""))
        for entry in attempt.fork.delta
        for result in read_results(entry)
        if not result.get("is_error")
    )
    return frozenset(each for each in find_shown(results) if each.tape or each.entry <= attempt.head)


async def _fetch(tape: TapeHandle, ids: Sequence[int], turn: Turn) -> dict[int, CitedEntry]:
    """Find what there is of entries by their ids."""
    if not ids:
        return {}
    entries, events = await tape.fetch(
        [
            TapeQuery(tape.name, IdRanges(tuple(spans_of(ids)))),
            TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(CORRECTION,)),
        ]
    )
    corrections, found = Corrections.of(events), dict[int, CitedEntry]()
    for entry in entries:
        if entry.erased or entry.id in corrections.hidden:
            found[entry.id] = CitedEntry()
            continue
        corrected = int_field(entry.data, "corrects") if entry.name == CORRECTION else 0
        newest = corrections.superseded.get(corrected or entry.id, 0)
        cited = _cite(entry, await _find_calls(tape, entry), turn)
        found[entry.id] = replace(cited, newest=newest if newest != entry.id else 0)
    return found


async def _find_calls(tape: TapeHandle, entry: TapeEntry) -> dict[str, ToolCall]:
    """Find the calls before a result, by their ids; none of another entry."""
    if entry.kind != Kind.TOOL_RESULT:
        return {}
    before = IdRanges(((1, entry.id),))
    (calls,) = await tape.fetch([TapeQuery(tape.name, before, kinds=(Kind.TOOL_CALL,), newest=True, limit=1)])
    return {call.id: call for each in calls for call in read_calls(each)}


def _cite(entry: TapeEntry, calls: Mapping[str, ToolCall], turn: Turn) -> CitedEntry:
    date = format_date(entry.date, turn.zone, undated=turn.texts.say("undated"))
    return CitedEntry(read_source(entry, calls, turn.texts), date, is_explanation=is_of_explanation(entry))


def is_of_explanation(entry: TapeEntry) -> bool:
    """Return true for what an explanation wrote, this one, one that was cut off, or an earlier one, and for its answer."""
    is_answer = entry.name == "command" and entry.data.get("name") == EXPLAIN_TOOL
    return entry.meta.get("origin") == ORIGIN or entry.name == EXPLAINED or is_answer


def _describe(attempt: _Attempt, explanation: Explanation) -> ExplanationEnded:
    """Build the fact of an explanation."""
    turn = TurnRecord.of(attempt.fork.delta)
    tapes = {"": attempt.fork.name, **attempt.tapes}
    read: dict[str, list[int]] = {}
    for citation in explanation.read:
        read.setdefault(tapes.get(citation.tape, citation.tape), []).append(citation.entry)
    statements = [
        CitedStatement(text=each.text, quote=each.quote, cites=((tapes[each.citation.tape], each.citation.entry),))
        for each in explanation.statements
    ]
    return ExplanationEnded(
        question=attempt.question,
        tape=attempt.fork.name if attempt.copy else "",
        fork="" if attempt.copy else attempt.fork.id,
        status=explanation.status,
        statements=tuple(statements),
        conclusion=explanation.conclusion,
        read=[(tape, [list(span) for span in spans_of(sorted(ids))]) for tape, ids in sorted(read.items())],
        problems=explanation.problems,
        steps=len(turn.steps),
        tokens=turn.input_tokens + turn.output_tokens,
    )
