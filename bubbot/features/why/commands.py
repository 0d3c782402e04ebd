"""The command that explains an answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from bubbot.errors import ConfigError, ToolRetry
from bubbot.features.why.view import Explanation, TurnSpansView, WhyView
from bubbot.ports.model import ModelRequest
from bubbot.ports.tool import CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import embed_images, rebuild_request
from bubbot.runtime.context.view import CONTEXT_VERSION, ContextStrategies
from bubbot.tape.entry import JsonObject
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.query import TapeQuery, WholeTape
from bubbot.tape.references import ReferenceRegistry
from bubbot.texts import Texts

_TRACE = re.compile(r"[0-9a-f]{4,32}")


class WhyArgs(ToolArgs):
    """The arguments of `session.why`."""

    request: bool = Field(default=False, description="print the request of the last step")
    turn: str = Field(default="", description="the turn to explain: its trace, which a failure tells")
    positional: ClassVar[tuple[str, ...]] = ("request",)

    @model_validator(mode="before")
    @classmethod
    def _parse_trace(cls, arguments: Any) -> Any:
        """Read a trace that was typed as a plain word; no word for yes or no looks like one."""
        word = arguments.get("request")
        is_trace = len(arguments) == 1 and isinstance(word, str) and _TRACE.fullmatch(word)
        return {"turn": word} if is_trace else arguments


def why_tool(strategies: ContextStrategies, references: ReferenceRegistry = KERNEL_REFERENCES) -> Tool:
    """Make the command; the strategies and the references of entries rebuild requests."""

    @tool(
        "session.why",
        commands=("why",),
        for_model=False,
        help=CommandHelp(HelpTopic.HISTORY, "How the last answer came about", (",why", ",why 1a2b3c4d")),
    )
    async def session_why(turn: Turn, args: WhyArgs) -> str:
        """Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, time."""
        trace = args.turn.strip()
        for span in await turn.tape.read(TurnSpansView(trace)):
            explanation = await turn.tape.read(WhyView(span, without_model=bool(trace)))
            if explanation is not None:
                if args.request and explanation.steps:
                    return await _format_request(turn, explanation, strategies, references)
                return _format_explanation(explanation, turn.texts)
        if trace:
            raise ToolRetry(turn.texts.say("why_unknown", trace=trace))
        return turn.texts.say("why_none")

    return session_why


def _format_explanation(turn: Explanation, texts: Texts) -> str:
    answer = texts.say("why_answer", entry=turn.answer) if turn.answer else texts.say("why_no_answer")
    status = texts.status(turn.status)
    lines = [texts.say("why_turn", turn=turn.turn, first=turn.first, last=turn.last, status=status, answer=answer)]
    for entry_id, step in turn.steps:
        lines += _format_step(entry_id, step, texts)
    lines += [texts.say("why_tool", name=name, entry=entry_id) for entry_id, name in turn.tools]
    lines += [
        texts.say("why_error", kind=kind, entry=entry_id, message=message) for entry_id, kind, message in turn.errors
    ]
    if turn.steps:
        lines.append(texts.say("why_hint"))
    return "\n".join(lines)


def _format_step(entry_id: int, step: JsonObject, texts: Texts) -> list[str]:
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
    lines = [head]
    lines += [
        texts.say("why_failed", model=call["model"], elapsed=call["elapsed_ms"], error=call["error"]) for call in failed
    ]
    if "error" in step and step["error"] not in [call["error"] for call in failed]:
        lines.append(f"  {step['error']}")
    return lines


def _format_shown(shown: Sequence[Sequence[Any]]) -> str:
    """Write the id ranges that a step showed; those of another tape follow its name."""
    own = [pair for pair in shown if not isinstance(pair[0], str)]
    others = [f"{tape} {_format_shown(spans)}" for tape, spans in (pair for pair in shown if isinstance(pair[0], str))]
    spans = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in own)
    return "; ".join([*([spans] if spans else []), *others])


def _format_cost(step: JsonObject, texts: Texts) -> str:
    """Say what a step cost. Steps of earlier versions have only the cost that the model reported, if any."""
    if step.get("attempts") == ():
        return texts.say("why_not_asked")
    cost = step.get("cost", step.get("usage", {}).get("cost"))
    if not isinstance(cost, int | float):
        return texts.say("why_cost_unknown")
    return texts.say("why_cost", cost=f"{cost:.9f}".rstrip("0").rstrip("."))


async def _format_request(
    turn: Turn, explanation: Explanation, strategies: ContextStrategies, references: ReferenceRegistry
) -> str:
    """Rebuild the last step's request from the tape and check it against its recorded digest."""
    _, step = explanation.steps[-1]
    batches = await turn.tape.fetch([TapeQuery(turn.tape.name, WholeTape())])
    system = (await turn.tape.get_blob(step["system"])).decode()
    tools = (await turn.tape.get_blob(step["tools"])).decode()

    def rebuild() -> ModelRequest:
        entries = batches.pop()
        return rebuild_request(
            step,
            entries,
            tape=turn.tape.name,
            system=system,
            tools=tools,
            references=references,
            strategies=strategies,
        )

    try:
        request = await asyncio.to_thread(rebuild)  # the thread reads the whole tape and frees it, off the event loop
    except ConfigError as error:
        return str(error)
    is_equal = (await embed_images(request, turn.tape.get_blob)).digest() == step["request"]
    texts = turn.texts
    verdict = texts.say("why_equal" if is_equal else "why_not_equal")
    if not is_equal and step["view"].get("version", 1) != CONTEXT_VERSION:
        verdict = texts.say("why_other_version")
    # Printed with the digests of images: the output goes onto the tape, which must not hold their bytes.
    # The translation for the provider adds the model's name and orders keys in its own way; nothing records that.
    return f"{request.as_bytes().decode()}\n{texts.say('why_request', model=step['model'], verdict=verdict)}"
