"""The explanation of an answer as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bubbot.features.why.foreign import ForeignEntry
from bubbot.features.why.lineage import Lineage, LineageAnchor
from bubbot.features.why.view import Explanation
from bubbot.ports.channel import Role
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject
from bubbot.tape.provenance import Source
from bubbot.texts import Texts


def format_explanation(
    turn: Explanation,
    texts: Texts,
    lineage: Lineage | None,
    foreign: Sequence[ForeignEntry] = (),
    *,
    with_hint: bool = True,
) -> str:
    """Format what is known of a turn.

    Args:
        turn: the turn.
        texts: the bot's own sentences.
        lineage: that of the window of its last step, if it has any.
        foreign: the entries that made its words foreign.
        with_hint: end with the command that prints the request.
    """
    answer = texts.say("why_answer", entry=turn.answer) if turn.answer else texts.say("why_no_answer")
    status = texts.status(turn.status)
    lines = [texts.say("why_turn", turn=turn.turn, first=turn.first, last=turn.last, status=status, answer=answer)]
    for entry_id, step in turn.steps:
        lines += _format_step(entry_id, step, texts, turn.labels.get(entry_id, ""))
    if lineage is not None:
        lines += _format_lineage(lineage, texts)
    lines += [_format_foreign(each, texts) for each in foreign]
    lines += [texts.say("why_tool", name=name, entry=entry_id) for entry_id, name in turn.tools]
    lines += [format_check(data, texts) for _, data in turn.checks]
    lines += [
        texts.say("why_error", kind=kind, entry=entry_id, message=message) for entry_id, kind, message in turn.errors
    ]
    if turn.steps and with_hint:
        lines.append(texts.say("why_hint"))
    return "\n".join(lines)


def _format_foreign(each: ForeignEntry, texts: Texts) -> str:
    """Say which entry made the words of the turn foreign, and whose words it is made of."""
    place = f"#{each.entry}" if not each.tape else f"{each.tape} #{each.entry}"
    what = ", ".join(part for part in (each.kind, each.author) if part)
    entry = f"{place} ({what})" if what else place
    return texts.say("why_foreign_world" if each.source == Source.WORLD else "why_foreign_people", entry=entry)


def format_check(data: JsonObject, texts: Texts) -> str:
    """Say what happened to a call, and what that rests on."""
    say, tainted = texts.say, ", ".join(_format_entry(entry) for entry in data["tainted_by"])
    facts = [
        texts.role(Role(data["role"])),
        say(f"why_call_place_{data['place']}"),
        say("why_call_tainted", entries=tainted) if tainted else say("why_call_clean"),
    ]
    if data.get("quote"):
        facts.append(say("why_call_quote", entry=_format_entry(data["quote"])))
    if "grant" in data:
        facts.append(say("why_call_grant", number=data["grant"]) if data["grant"] else say("why_call_job_grant"))
    if data.get("used_before"):
        facts.append(say("why_call_used_before"))
    number, verdict = data.get("approval", ""), data["verdict"]
    if number and verdict == "run":
        facts.append(say("why_call_allowed", id=number))
    values = {"tool": data["tool"], "row": say(f"why_row_{data['row']}"), "facts": say("list_comma").join(facts)}
    return say(f"why_call_{verdict}", **values, **({"id": number} if verdict in ("ask", "confirm") else {}))


def _format_entry(entry: Sequence[Any]) -> str:
    return f"#{entry[1]}"


def _format_step(entry_id: int, step: JsonObject, texts: Texts, label: str = "") -> list[str]:
    """Say which model was called, which one answered, which calls failed and why, and what the step cost."""
    usage_data = step.get("usage", {})
    shown = _format_shown(step["shown"])
    model, answered = step["model"], step.get("answered", step["model"])
    failed = [call for call in step.get("attempts", ()) if call["status"] == "failed"]
    head = texts.say(
        "why_step",
        step=step["step"],
        entry=entry_id,
        status=texts.status(step["status"]),
        cut=texts.say("why_cut") if step.get("finish") == "length" else "",
        models=model if answered == model else texts.say("why_models", model=model, answered=answered),
        input=usage_data.get("input_tokens", 0),
        output=usage_data.get("output_tokens", 0),
        cost=_format_cost(step, texts),
        elapsed=step["elapsed_ms"],
        shown=shown or texts.say("none"),
        request=step["request"][:12],
    )
    lines = [texts.say("why_for", label=label, step=head) if label else head]
    lines += [
        texts.say("why_failed", model=call["model"], elapsed=call["elapsed_ms"], error=call["error"]) for call in failed
    ]
    if "error" in step and step["error"] not in [call["error"] for call in failed]:
        lines.append(f"  {step['error']}")
    return lines


def _format_cost(step: JsonObject, texts: Texts) -> str:
    """Say what a step cost. Steps of earlier versions have only the cost that the model reported, if any."""
    if step.get("attempts") == ():
        return texts.say("why_not_asked")
    cost = step.get("cost", step.get("usage", {}).get("cost"))
    if not isinstance(cost, int | float):
        return texts.say("why_cost_unknown")
    return texts.say("why_cost", cost=f"{cost:.9f}".rstrip("0").rstrip("."))


def _format_lineage(lineage: Lineage, texts: Texts) -> list[str]:
    """Say which anchor opened the window, and which anchors and entries it comes from.

    The first window of a tape comes from nothing, and nothing is said of it.
    """
    opening, *older = lineage.anchors
    if opening.name == SESSION_START and not older:
        return []
    lines = [texts.say("why_window", anchor=_name_anchor(opening, texts), links=_format_links(opening, texts))]
    lines += [
        texts.say("why_from", anchor=_name_anchor(anchor, texts), links=_format_links(anchor, texts))
        for anchor in older
    ]
    return [*lines, texts.say("why_more_anchors")] if lineage.is_cut else lines


def _name_anchor(anchor: LineageAnchor, texts: Texts) -> str:
    return f"#{anchor.id} {anchor.name or texts.say('none')}"


def _format_links(anchor: LineageAnchor, texts: Texts) -> str:
    parents = ", ".join(f"#{parent}" for parent in anchor.parents)
    links = texts.say("why_parents", entries=parents) if parents else ""
    links += texts.say("why_elsewhere", number=anchor.elsewhere) if anchor.elsewhere else ""
    links += texts.say("why_sources", entries=_format_spans(anchor.sources)) if anchor.sources else ""
    return links + (texts.say("why_recalls", entries=_format_spans(anchor.recalls)) if anchor.recalls else "")


def _format_shown(shown: Sequence[Sequence[Any]]) -> str:
    """Write the id ranges that a step showed; those of another tape follow its name."""
    own = _format_spans([pair for pair in shown if not isinstance(pair[0], str)])
    others = [f"{tape} {_format_spans(spans)}" for tape, spans in (pair for pair in shown if isinstance(pair[0], str))]
    return "; ".join([*([own] if own else []), *others])


def _format_spans(spans: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)
