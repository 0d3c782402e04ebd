"""A context strategy of your own, without a package: it asks the model before an answer, and its fold needs no model."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

from bubbot import (
    ContextInput,
    ContextMessage,
    ContextPrepared,
    ContextStrategy,
    ModelContext,
    PreparationInput,
    StrategyPorts,
    open_bot,
    quote_text,
    select_messages,
)

SETTINGS = {"model": {"name": "scripted"}, "context": {"selector": "brief"}}


async def prepare(ports: StrategyPorts, source: PreparationInput) -> list[ContextPrepared]:
    """Lets the model condense the question; what it says becomes a fact of the tape."""
    question = " ".join(str(entry.payload["content"]) for entry in source.answered)
    line = await ports.ask_model([{"role": "user", "content": f"In a word: {quote_text(question)}"}], "condense")
    return [ContextPrepared(data={"line": line})]


def fold(source: ContextInput) -> ModelContext:
    """Shows what was prepared, then the newest message: a pure function, so that old requests are built again."""
    newest = select_messages(source.entries, source.style)[-1:]
    prepared = source.find_prepared("brief")
    lines = [ContextMessage({"role": "user", "content": f"[{each.data['line']}]"}, ()) for each in prepared]
    return ModelContext((*lines, *newest))


async def main(folder: str) -> None:
    """Asks, and shows what the model was shown."""
    async with open_bot(folder, SETTINGS, strategies=[ContextStrategy("brief", fold, prepare=prepare)]) as bot:
        print((await bot.say("Hello")).text)
        print((await bot.say(",why yes")).text.rpartition(": ")[2].rstrip("]"))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))

# prints: equal to the recorded one, byte for byte
