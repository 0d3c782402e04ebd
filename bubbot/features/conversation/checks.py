"""What `bubbot doctor` finds about models: the requests that their servers refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bubbot.errors import StoreError
from bubbot.ports.checks import Check, Finding, HomeReader, shell_quote
from bubbot.runtime.lessons import MODELS_TAPE, LessonsView


async def check_lessons(home: HomeReader) -> list[Finding]:
    """Report each model that refused a request and is asked in another form since."""
    try:
        async with home.open_tape(MODELS_TAPE) as tape:
            lessons = await tape.read(LessonsView())
    except StoreError:
        return []  # the check of the database reports it
    rules: dict[str, list[str]] = {}
    unread: dict[str, int] = {}
    for lesson in lessons:
        if tokens := lesson.find_tokens("unread"):
            unread[lesson.model] = tokens
        elif not lesson.find_tokens("assumed"):
            rules.setdefault(lesson.model, []).append(lesson.rule)
    return [*_report_unread(unread), *_report_rules(rules)]


def _report_unread(unread: Mapping[str, int]) -> Iterator[Finding]:
    for model, tokens in unread.items():
        yield Finding(
            "model.unread",
            "warning",
            f"The server of {model} read only some {tokens} tokens of longer requests, without a word: the model does not see the "
            "rest. Let the server read more (Ollama: OLLAMA_CONTEXT_LENGTH=32768), or set [model] context_tokens to what it reads; "
            "then let the bot look again.",
            f"bubbot ask {shell_quote(f',model.relearn {model}')}",
        )


def _report_rules(rules: Mapping[str, Sequence[str]]) -> list[Finding]:
    return [
        Finding(
            "model.learned",
            "warning",
            f"{model} refused requests and takes them in another form since: {', '.join(names)}. If its server was changed "
            "and takes the usual form now, let it be asked again.",
            f"bubbot ask {shell_quote(f',model.relearn {model}')}",
        )
        for model, names in rules.items()
    ]


CHECKS = (Check("what models refused", check_lessons, reads_tapes=True, needs_settings=False),)
