"""The explanation of an answer as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from bubbot.features.why.foreign import ForeignSource
from bubbot.features.why.lineage import Citations, Lineage, LineageAnchor
from bubbot.features.why.parts import ShownPart, find_parts
from bubbot.ports.channel import Role
from bubbot.runtime.context.evidence import find_evidence
from bubbot.runtime.turns import StepRecord, TurnRecord
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, int_field, text_field
from bubbot.tape.provenance import Source
from bubbot.texts import Texts

CALL_CHECKED = "approval.checked"
NO_CITATIONS = Citations()


def format_explanation(
    turn: TurnRecord,
    texts: Texts,
    lineage: Lineage | None,
    foreign: Sequence[ForeignSource] = (),
    names: Mapping[str, str] = MappingProxyType({}),
    *,
    citations: Citations = NO_CITATIONS,
    original: TurnRecord | None = None,
    with_hint: bool = True,
) -> str:
    """Format what is known of a turn.

    Args:
        texts: the bot's own sentences.
        lineage: that of the window of its last step, if it has any.
        foreign: the entries that made its words foreign.
        names: the sessions of other tapes, by tape.
        citations: what became of the entries of other tapes that the window's summaries rest on.
        original: what wrote its answer, if that is a copy.
        with_hint: end with the command that prints the request.
    """
    answer = texts.say("why_answer", entry=turn.answer.id) if turn.answer else texts.say("why_no_answer")
    status, first, last = texts.status(turn.status), turn.entries[0].id, turn.entries[-1].id
    lines = [texts.say("why_turn", turn=turn.id, first=first, last=last, status=status, answer=answer)]
    if turn.agent:
        lines.append(texts.say("why_agent", agent=turn.agent))
    if original is not None:
        lines.append(_format_copy(original, texts))
    writer = original or turn
    steps, told = writer.steps, tuple[ShownPart, ...]()
    for step in steps:
        lines += _format_step(step, texts, names)
        if (parts := find_parts(writer, step)) and parts != told:  # the steps of one attempt are shown the same ones
            lines.append(_format_parts(parts, texts))
            told = parts
    lines += _format_quotations(turn, texts)
    if lineage is not None:
        lines += _format_lineage(lineage, citations, texts)
    lines += [_format_foreign(each, texts) for each in foreign]
    lines += [texts.say("why_tool", name=call.name, entry=entry_id) for entry_id, call in turn.calls]
    lines += [format_check(check, texts) for _, check in find_checks(original or turn)]
    lines += [
        texts.say(
            "why_error",
            kind=error.payload.get("kind", ""),
            entry=error.id,
            message=error.payload.get("message", ""),
        )
        for error in turn.errors
    ]
    if steps and with_hint:
        lines.append(texts.say("why_hint"))
    return "\n".join(lines)


def _format_copy(original: TurnRecord, texts: Texts) -> str:
    """Say where the original of a copied answer stands."""
    first, last = original.entries[0], original.entries[-1]
    label = text_field(first.meta, "origin") or texts.say("none")
    return texts.say("why_copy", first=first.id, last=last.id, origin=label, turn=original.id)


def _format_foreign(each: ForeignSource, texts: Texts) -> str:
    """Say which entry made the words of the turn foreign, and whose words it is made of."""
    place = f"#{each.entry}" if not each.tape else f"{each.tape} #{each.entry}"
    what = ", ".join(part for part in (each.kind, each.author) if part)
    entry = f"{place} ({what})" if what else place
    return texts.say("why_foreign_world" if each.source == Source.WORLD else "why_foreign_people", entry=entry)


class CheckedCall(Struct, frozen=True, kw_only=True):
    """Whether a call ran, and what that rests on, as the fact about it says."""

    tool: str
    verdict: Literal["run", "confirm", "ask", "refuse"]
    effect: str
    row: str
    role: Role
    place: Literal["direct", "group", "job", "subtask"]
    tainted_by: tuple[tuple[str, int], ...]
    quote: tuple[str, int] | None = None
    bits: float | None = None
    spent: float = 0.0
    grant: int | None = None
    used_before: bool = False
    approval: str | None = None


def find_checks(turn: TurnRecord) -> list[tuple[int, CheckedCall]]:
    """Read the facts on which it was decided whether the calls of a turn run, with their ids; an odd one is left out."""
    found = []
    for entry in turn.entries:
        if entry.name == CALL_CHECKED:
            with suppress(msgspec.ValidationError):
                found.append((entry.id, msgspec.convert(entry.data, CheckedCall)))
    return found


def format_check(check: CheckedCall, texts: Texts) -> str:
    """Say what happened to a call, and what that rests on."""
    say, tainted = texts.say, ", ".join(f"#{entry}" for _, entry in check.tainted_by)
    facts = [
        texts.role(check.role),
        say(f"why_call_place_{check.place}"),
        say("why_call_tainted", entries=tainted) if tainted else say("why_call_clean"),
    ]
    if check.quote:
        facts.append(say("why_call_quote", entry=f"#{check.quote[1]}"))
    if check.bits is not None:
        facts.append(say("why_call_bits", bits=f"{check.bits:.1f}", spent=f"{check.spent:.1f}"))
    if check.grant is not None:
        facts.append(say("why_call_grant", number=check.grant) if check.grant else say("why_call_job_grant"))
    if check.used_before:
        facts.append(say("why_call_used_before"))
    number, verdict = check.approval, check.verdict
    if number and verdict == "run":
        facts.append(say("why_call_allowed", id=number))
    row = f"why_row_{check.row}"
    values = {
        "tool": check.tool,
        "row": say(row) if row in texts else check.row,
        "facts": say("list_comma").join(facts),
    }
    return say(f"why_call_{verdict}", **values, **({"id": number} if verdict in ("ask", "confirm") else {}))


def _format_step(step: StepRecord, texts: Texts, names: Mapping[str, str]) -> list[str]:
    """Say which model was called, which one answered, which calls failed and why, and what the step cost."""
    data, failed = step.data, step.failed_attempts
    head = texts.say(
        "why_step",
        step=step.number,
        entry=step.id,
        status=texts.status(step.status),
        cut=texts.say("why_cut") if data.get("finish") == "length" else "",
        models=step.model
        if step.model == (asked := text_field(data, "model"))
        else texts.say("why_models", model=asked, answered=step.model),
        input=step.input_tokens,
        output=step.output_tokens,
        cost=_format_cost(step, texts),
        elapsed=step.elapsed_ms,
        shown=_format_shown(step, names) or texts.say("none"),
        request=text_field(data, "request")[:12],
    )
    lines = [texts.say("why_for", label=step.label, step=head) if step.label else head]
    lines += [texts.say("why_weights", weights=step.weights)] if step.weights else []
    lines += [
        texts.say(
            "why_failed",
            model=text_field(call, "model"),
            elapsed=int_field(call, "elapsed_ms"),
            error=text_field(call, "error"),
        )
        for call in failed
    ]
    if rules := step.fit_rules:
        lines.append(texts.say("why_fitted", rules=", ".join([_format_rule(rule) for rule in rules])))
    if failure := step.strategy_failure:
        lines.append(texts.say("why_strategy_failed", strategy=failure.selector, problem=failure.problem))
    if step.error and step.error not in [call.get("error") for call in failed]:
        lines.append(f"  {step.error}")
    return lines


def _format_parts(parts: Sequence[ShownPart], texts: Texts) -> str:
    """Say for which run a sub-task worked, and of which parts what it was shown is made."""
    named = [
        texts.say("why_shown_cut", name=part.name, entry=part.entry, all=part.full_chars)
        if part.full_chars
        else texts.say("why_shown_part", name=part.name, entry=part.entry)
        for part in parts
    ]
    return texts.say("why_shown_parts", run=parts[0].run, parts=texts.say("list_comma").join(named))


def _format_rule(rule: JsonObject) -> str:
    learned = rule.get("learned")
    return text_field(rule, "rule") + (f" ({learned[0]} #{learned[1]})" if isinstance(learned, tuple) else "")


def _format_cost(step: StepRecord, texts: Texts) -> str:
    if step.data.get("attempts") == ():
        return texts.say("why_not_asked")
    if step.cost is None:
        return texts.say("why_cost_unknown")
    return texts.say("why_cost", cost=f"{step.cost:.9f}".rstrip("0").rstrip("."))


def _format_lineage(lineage: Lineage, citations: Citations, texts: Texts) -> list[str]:
    """Say which anchor opened the window, and which anchors and entries it comes from.

    The first window of a tape comes from nothing, and nothing is said of it.
    """
    opening, *older = lineage.anchors
    if opening.name == SESSION_START and not older:
        return []
    lines = [
        texts.say("why_window", anchor=_name_anchor(opening, texts), links=_format_links(opening, citations, texts))
    ]
    lines += [
        texts.say("why_from", anchor=_name_anchor(anchor, texts), links=_format_links(anchor, citations, texts))
        for anchor in older
    ]
    return [*lines, texts.say("why_more_anchors")] if lineage.is_cut else lines


def _name_anchor(anchor: LineageAnchor, texts: Texts) -> str:
    return f"#{anchor.id} {anchor.name or texts.say('none')}"


def _format_links(anchor: LineageAnchor, citations: Citations, texts: Texts) -> str:
    parents = ", ".join(f"#{parent}" for parent in anchor.parents)
    links = texts.say("why_parents", entries=parents) if parents else ""
    links += texts.say("why_elsewhere", number=anchor.elsewhere) if anchor.elsewhere else ""
    links += texts.say("why_sources", entries=_format_spans(anchor.sources)) if anchor.sources else ""
    for each in anchor.cited:
        tape, spans = each.tape, each.entries
        if tape in citations.refused:
            links += texts.say("why_cited_refused")
        else:
            gone = [
                number for low, high in spans for number in range(low, high + 1) if (tape, number) in citations.gone
            ]
            links += texts.say("why_cited", chat=citations.names.get(tape) or tape, entries=_format_spans(spans))
            links += texts.say("why_cited_gone", entries=", ".join(map(str, gone))) if gone else ""
    return links + (texts.say("why_recalls", entries=_format_spans(anchor.recalls)) if anchor.recalls else "")


def _format_shown(step: StepRecord, names: Mapping[str, str]) -> str:
    """Write the id ranges that a step showed; those of another tape follow its session, or its name without one."""
    own = [_format_spans(step.shown)] if step.shown else []
    others = [f"{names.get(tape) or tape} {_format_spans(spans)}" for tape, spans in step.shown_elsewhere]
    return "; ".join([*own, *others])


def _format_quotations(turn: TurnRecord, texts: Texts) -> list[str]:
    """Write a line for each part of another tape that a fact of the turn quotes: who has chosen it, session, tape and entries."""
    return [
        texts.say(
            "why_quoted",
            source=fact.source,
            entry=entry.id,
            session=node.session,
            tape=tape,
            entries=_format_spans(spans),
        )
        for entry, fact in find_evidence(turn.entries)
        for node in fact.nodes
        for tape, spans in node.elsewhere
    ]


def _format_spans(spans: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
