"""What a node is shown of its task, in a whole bot."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bubbot.features.tasks.config import layer_config
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.settings import TaskSettings
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.stores.inmemory import InMemoryStore
from tests.family import OWNER, family
from tests.task_bench import NodePlan, NodePlayer, define, running_tasks
from tests.tasks import model_of, write_task


async def test_a_node_is_shown_no_more_than_the_settings_allow_whatever_it_says_itself(tmp_path: Path) -> None:
    write_task(tmp_path, "talk", '[nodes.talk]\nprompt = "TALK"\nview_tokens = 50000\n')
    async with family(tmp_path, model_of(talk="Done."), TaskSettings(max_view_tokens=200), agents={}) as bench:
        await bench.say(f",task.run talk {'many words ' * 1000}", OWNER, OWNER)
        shown = [str(each["content"]) for each in bench.model.requests[-1].messages]
        assert "[Cut: the first " in "".join(shown)
        assert estimate_tokens("".join(shown)) < 500


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (TaskNode(prompt="STEP-a {k}" * 2_000, retries=0), "task_model_failed"),
        (TaskNode(confirm="{k}" * 2_000), "task_question_wrong"),
    ],
    ids=["prompt", "question"],
)
async def test_a_text_that_the_config_makes_too_long_is_neither_shown_nor_asked(node: TaskNode, reason: str) -> None:
    """`task check` finds it before; a run of an earlier version may have it."""
    config = layer_config([("task", {"k": "x" * 65_000})])
    definition = replace(define(TaskSchema(nodes={"a": node})), config=config)
    player = NodePlayer({"a": NodePlan(answers=("A",))})
    async with running_tasks(InMemoryStore(), player.make_model(), definition) as bench:
        await bench.bench.say(",trip.begin")
        await bench.bench.quiet()
        assert (bench.run.status, bench.run.nodes[0].reason, player.asked) == ("failed", reason, [])
