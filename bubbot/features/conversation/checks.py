"""What `bubbot doctor` finds about models: the requests that their servers refuse."""

from __future__ import annotations

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
    for lesson in lessons:
        rules.setdefault(lesson.model, []).append(lesson.rule)
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


CONVERSATION_CHECKS = (Check("what models refused", check_lessons, reads_tapes=True, needs_settings=False),)
