"""What a node is shown of its task, in a whole bot."""

from __future__ import annotations

from pathlib import Path

from bubbot.features.tasks.settings import TaskSettings
from bubbot.runtime.context.tokens import estimate_tokens
from tests.family import OWNER, family
from tests.tasks import model_of, write_task


async def test_a_node_is_shown_no_more_than_the_settings_allow_whatever_it_says_itself(tmp_path: Path) -> None:
    write_task(tmp_path, "talk", '[nodes.talk]\nprompt = "TALK"\nview_tokens = 50000\n')
    async with family(tmp_path, model_of(talk="Done."), TaskSettings(max_view_tokens=200), agents={}) as bench:
        await bench.say(f",task.run talk {'many words ' * 1000}", OWNER, OWNER)
        shown = [str(each["content"]) for each in bench.model.requests[-1].messages]
        assert "[Cut: the first " in "".join(shown)
        assert estimate_tokens("".join(shown)) < 500
