"""Words of a person who allows nothing are in no export, wherever they went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel.events import Attachment, Quote, Sender
from tests.e2e import inside
from tests.family import GROUP, MEMBER, NAMES, OWNER, family
from tests.judging import react, sent
from tests.learn.validators import CHECKS
from tests.trace.home import apart
from tests.turns import says

MESSAGE, QUOTED, FORWARDED, MEMORY, SUMMARY, ELSEWHERE, NAME, RATIONALE, FILE, JOB, TOPIC = (f"zc{number}x" for number in range(10, 21))  # fmt: skip
ALL = (MESSAGE, QUOTED, FORWARDED, MEMORY, SUMMARY, ELSEWHERE, NAME, RATIONALE, FILE, JOB, TOPIC)
UNSEEN = (RATIONALE, JOB, TOPIC)
"""What no model was shown; the others have to be in a request, or the test says nothing."""
ALLOWED, APART = "the owner's tulips", "the owner's roses"


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


SCRIPT = {
    "rules": [
        {"when": "Look for", "steps": [call("tape_search", query="garden"), says("Found.")]},
        {"when": "Read what", "steps": [call("chat_read", session=f"tg:{MEMBER}", limit=9), says("Read.")]},
        {"when": "Sum it up", "steps": [call("tape_handoff", name="phase/two", summary=f"Of {SUMMARY}."), says("New.")]},
    ]
}  # fmt: skip


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home in which the words of a member went everywhere, and all that models were shown."""
    home = tmp_path_factory.mktemp("consent") / "home"
    return home, apart(live(home))


async def live(home: Path) -> str:
    model = ScriptedModel(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NAMES, MEMBER, f"Ben {NAME}")
        member = Sender(MEMBER, NAMES[MEMBER])
        async with family(home, model) as bench:
            for purpose in ("training", "evaluation"):
                await bench.say(f",consent {purpose} yes", OWNER, OWNER)
            await bench.say(f"I like {APART}", OWNER, OWNER)
            await bench.say(f"I like {ALLOWED}", OWNER)
            await react(bench, sent(bench, ALLOWED), "👎", sender=MEMBER)
            await bench.say(f",rate 1 {RATIONALE} is why", MEMBER)
            await bench.say(f"Only my own chat knows {ELSEWHERE}", MEMBER, MEMBER)
            await bench.say(f",grant tg:{MEMBER} to tg:{GROUP}", OWNER, OWNER)
            quote = Quote("q1", member, f"I said {QUOTED}")
            await bench.say("What is that?", OWNER, quote=quote)
            await bench.say("And in private?", OWNER, OWNER, quote=quote)
            await bench.say(f"Look what I got: {FORWARDED}", OWNER, provenance="world")
            await bench.say(f"A message of the garden: {MESSAGE}", MEMBER)
            await bench.say(f",memory.save Knows {MEMORY}", MEMBER)
            await bench.say(f",schedule.add tomorrow at 9 text={JOB}", MEMBER)
            await bench.say(f",topic {TOPIC}", MEMBER)
            await bench.say(",topic garden", MEMBER)
            await bench.say("Here", MEMBER, attachments=(Attachment("file", f"{FILE}.txt", "text/plain"),))
            await bench.say("Look for the garden", OWNER)
            await bench.say("Read what he said", OWNER)
            await bench.say(",memory.show", OWNER)
            await bench.say(",schedule.list", OWNER)
            await bench.say("Sum it up", OWNER)
            await bench.say("What was it?", OWNER)
    return "\n".join(str(request) for request in model.requests)


def test_the_words_went_everywhere(shown: tuple[Path, str]) -> None:
    assert [canary for canary in ALL if canary not in UNSEEN and canary not in shown[1]] == []


@pytest.mark.parametrize("form", CHECKS)
@pytest.mark.parametrize("purpose", ["training", "evaluation"])
def test_no_export_has_a_word_of_somebody_who_allows_nothing(
    shown: tuple[Path, str], tmp_path: Path, form: str, purpose: str
) -> None:
    found = dict[str, str]()
    for chat in (OWNER, MEMBER, GROUP):
        out = tmp_path / chat
        done = inside.run(shown[0], "export", form, f"tg:{chat}", "--for", purpose, "--out", str(out))
        assert done.returncode in (0, 2), done.stderr
        if done.returncode:
            assert b"there is nothing to export (" in done.stderr
            continue
        found[chat] = out.read_text("utf-8") + out.with_name(f"{chat}.receipt.json").read_text("utf-8")
        (part,) = json.loads(out.with_name(f"{chat}.receipt.json").read_bytes())["slices"]
        assert sum(part["left_out"].values()) >= {OWNER: 1, GROUP: 9}[chat]
    assert [canary for canary in ALL for text in found.values() if canary in text] == []
    if form not in ("openai-preference", "trl-preference", "trl-kto"):
        assert (APART in found[OWNER], ALLOWED in found[GROUP]) == (True, True)
    assert MEMBER not in found
