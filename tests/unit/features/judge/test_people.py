"""What a person gets of their judgements, and what goes with a person or with what was judged."""

from __future__ import annotations

import json
from pathlib import Path

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.own_features import copying_events
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement
from bubbot.tape.copies import CopyIndex
from tests.family import GROUP, MEMBER, OWNER, family
from tests.judging import ANSWER, labels, told


async def test_an_export_has_the_judgements_of_the_person_and_of_nobody_else(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel({"default": [ANSWER]}), agents={}) as bench:
        bench.channel.blob = bench.daemon.bot.tape(f"tg:{MEMBER}").get_blob
        await bench.say("when?", MEMBER)
        await bench.say(",rate 2 much too late", MEMBER)
        await bench.say(",rate 5 just right", OWNER)
        await bench.say(",export.me", MEMBER, MEMBER)
        lines = [json.loads(line) for line in bench.channel.received["about-me.jsonl"].splitlines()]
        (judged,) = [line for line in lines if line["data"].get("event") == "judge/labelled"]
        wanted = {"name": "quality", "score": 2.0, "label": "", "rationale": "much too late"}
        assert {name: judged["data"][name] for name in wanted} == wanted
        assert "just right" not in str(lines)


async def test_a_person_who_is_forgotten_takes_their_judgements_along(tmp_path: Path) -> None:
    script = {"default": [ANSWER]}
    async with family(tmp_path, ScriptedModel(script), agents={}) as bench:
        await bench.say("when?", OWNER)
        await bench.say(",rate 2 much too late", MEMBER)
        await bench.say(",rate 5 just right", OWNER)
        await bench.say(",forget.me confirm=yes", MEMBER, MEMBER)
    async with family(tmp_path, ScriptedModel(script), agents={}) as bench:
        assert told(await labels(bench)) == [(5.0, OWNER, True)]
        assert "much too late" not in str([entry.all_text() for entry in await bench.entries(GROUP)])


def test_a_judgement_goes_with_the_entry_that_it_is_about() -> None:
    facts = [
        Judgement(
            JudgedTarget("slice", ((low, high),)), "quality", 1.0, "", "it says: nine", Annotator("code", "exact")
        )
        for low, high in ((1, 3), (4, 5))
    ]
    index = CopyIndex(OWN_REFERENCES, copying_events())
    index.add("chat", [fact.to_entry().with_id(number) for number, fact in enumerate(facts, 6)])
    assert index.find_copies({"chat": [2]}) == {"chat": {6}}
