"""Newer weights: offered, accepted by an evaluation or by hand, used from the next window on, and taken back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.learn.weights import switching
from bubbot.features.learn.weights.digest import list_weights
from tests.e2e import inside
from tests.evals import script
from tests.weights import DIGEST, NEW, NEWER, OLD, RIGHT, WRONG, WeightsBench, weights_bench, write_weights

OTHER_DIGEST = f"sha256:{'cd' * 32}"
CASES = [f"case{number}" for number in range(8)]
MANY = "[setups.plain]\n" + "".join(f'[cases.{case}]\nmessage = "{case}"\nexpect = "yes"\n' for case in CASES)
MANY += '[[judges]]\nkind = "exact"\n'


def begins(model: str, digest: str = DIGEST) -> str:
    """What a chat is told when newer weights begin to answer there."""
    return f"From here on {model} answers, with newer weights ({digest}).\n\n"


def ends(model: str) -> str:
    """What it is told when they were taken back."""
    return f"The newer weights were taken back: from here on {model} answers.\n\n"


async def offer(bench: WeightsBench, model: str = NEW, weights: Path | str = DIGEST) -> str:
    """Offer a model at the terminal."""
    return await bench.say(f",learn.offer {model} weights={weights}", "owner")


async def take_up(bench: WeightsBench, model: str = NEW, weights: Path | str = DIGEST) -> None:
    """Offer a model and accept it by hand."""
    await offer(bench, model, weights)
    said = await bench.say(",learn.accept", "owner")
    assert said.startswith(f"Windows that open from now on are answered by {model}"), said


async def test_weights_that_pass_answer_from_the_next_window_on_until_they_are_taken_back(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "second", (("b.safetensors", b"b"), ("a.safetensors", b"a"), ("x.json", b"{}")))
    async with weights_bench(tmp_path / "home", evaluation="try") as bench:
        assert await bench.say("capital") == "Rome"
        await bench.run()
        said = await offer(bench, weights=folder)
        (offered,) = await bench.learned("learn/offered")
        digest = offered["weights"]
        assert digest in said
        await bench.act()
        assert "They have to pass try first" in await bench.say(",learn", "owner")
        await bench.run("try", f"model={NEW}")
        assert await bench.learned("learn/accepted") == []
        await bench.act()
        (accepted,) = await bench.learned("learn/accepted")
        assert (accepted["model"], accepted["weights"], accepted["before"]) == (NEW, digest, OLD)
        assert accepted["run"] in await bench.say(",eval.report try", "owner") or accepted["evaluation"] == "try"

        assert await bench.say("capital") == "Rome", "a window that is open stays as it is"
        await bench.say(",new")
        assert await bench.say("capital") == f"{begins(NEW, digest)}Paris"
        assert await bench.say("capital") == "Paris"
        assert f"\n  weights {digest}\n" in await bench.say(",why")
        assert await bench.say("capital", "another") == f"{begins(NEW, digest)}Paris"
        assert [each.get("weights") for each in await bench.steps()] == [None, None, digest, digest]
        assert "  stdin:another: openai/second\n  stdin:default: openai/second" in await bench.say(",learn", "owner")

        assert f"answered by {OLD} from their next message on" in await bench.say(",learn.back", "owner")
        assert "stdin:default: openai/second, until its next message" in await bench.say(",learn", "owner")
        assert await bench.say("capital") == f"{ends(OLD)}Rome"
        assert await bench.say("capital") == "Rome"
        assert "weights" not in await bench.say(",why")
        switches = await bench.switches()
        assert [(each["model"], each["before"]) for each in switches] == [(NEW, OLD), (OLD, NEW)]
        assert [each["accepted"] for each in switches] == [2, 0]


async def test_the_digest_is_that_which_sha256sum_computes(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "m", (("b.safetensors", b"b"), ("a.safetensors", b"a"), ("old.bin", b"c")))
    command = "sha256sum *.safetensors | sha256sum"
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", command], cwd=folder, capture_output=True, check=True, text=True
    )
    async with weights_bench(tmp_path / "home") as bench:
        assert f"sha256:{done.stdout.split()[0]}" in await offer(bench, weights=folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{NEW} weights=sha256:12", "weights is sha256:12, which is no digest: write sha256: and 64 digits"),
        (f"{NEW} weights=/nowhere/at/all", "weights is /nowhere/at/all, which is no folder here"),
        (f"{NEW} weights=relative", "weights is relative, which is no folder here"),
        (NEW, f"weights is {NEW}, which is no folder here"),
        (f"second weights={DIGEST}", "model is second, which cannot be used ("),
    ],
)
async def test_what_is_wrong_with_an_offer_is_named(tmp_path: Path, words: str, said: str) -> None:
    async with weights_bench(tmp_path / "home") as bench:
        assert said in await bench.say(f",learn.offer {words}")
        assert await bench.learned("learn/offered") == []


async def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "m", (("config.json", b"{}"),))
    async with weights_bench(tmp_path / "home") as bench:
        assert f"{folder} has no weights" in await offer(bench, weights=folder)


def test_a_folder_whose_name_there_cannot_be_has_no_weights() -> None:
    assert list_weights(Path("a\0b")) == ()


@pytest.mark.parametrize("name", ["~nobody-is-called-that/second", "/" + 300 * "a"])
async def test_a_folder_that_there_cannot_be_is_named(tmp_path: Path, name: str) -> None:
    async with weights_bench(tmp_path / "home") as bench:
        assert f"weights is {name}, which is no folder here" in await offer(bench, weights=name)
        done = await asyncio.to_thread(inside.run, tmp_path / "none", "learn", "offer", NEW, "--weights", name)
        assert b"which is no folder here" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["a\nb.safetensors", "a\\b.safetensors", os.fsdecode(b"a\xff.safetensors")])
async def test_a_file_whose_name_would_have_another_digest_elsewhere_is_named(tmp_path: Path, name: str) -> None:
    folder = write_weights(tmp_path / "second", ((name, b"w"),))
    async with weights_bench(tmp_path / "home") as bench:
        said = await offer(bench, weights=folder)
        assert "rename it" in said, said
        assert await bench.learned("learn/offered") == []


async def test_the_name_of_the_model_may_be_its_folder(tmp_path: Path) -> None:
    folder = write_weights(tmp_path / "m")
    async with weights_bench(tmp_path / "home") as bench:
        await bench.say(f",learn.offer openai/{folder}")
        (fact,) = await bench.learned("learn/offered")
        assert (fact["folder"], fact["model"]) == (str(folder), f"openai/{folder}")


async def test_the_same_offer_twice_is_one(tmp_path: Path) -> None:
    async with weights_bench(tmp_path / "home") as bench:
        await offer(bench)
        await offer(bench)
        assert len(await bench.learned("learn/offered")) == 1


class TestTheEvaluation:
    @pytest.mark.parametrize(
        "answers",
        [WRONG, {"rules": [{"when": "capital", "steps": [{"error": "unavailable"}]}]}],
        ids=["wrong", "unreachable"],
    )
    async def test_a_model_that_does_not_pass_answers_nobody(self, tmp_path: Path, answers: Any) -> None:
        async with weights_bench(tmp_path / "home", evaluation="try", scripts={NEW: answers}) as bench:
            await bench.run()
            await offer(bench)
            await bench.run("try", f"model={NEW}")
            await bench.act()
            assert await bench.learned("learn/accepted") == []
            assert "They did not pass try (" in await bench.say(",learn", "owner")
            assert await bench.say("capital", "new") == "Rome"
            assert await bench.switches("new") == []

    async def test_without_the_model_in_use_to_compare_with_nothing_is_accepted(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home", evaluation="try") as bench:
            await offer(bench)
            await bench.run("try", f"model={NEW}")
            await bench.act()
            assert await bench.learned("learn/accepted") == []
            assert "nothing to compare them with" in await bench.say(",learn", "owner")
            await bench.run()
            await bench.act()
            assert len(await bench.learned("learn/accepted")) == 1

    async def test_a_model_that_does_worse_than_the_one_in_use_is_not_accepted(self, tmp_path: Path) -> None:
        good = script(**dict.fromkeys(CASES, "yes"))
        bad = script(**{case: "yes" if case == "case0" else "no" for case in CASES})
        learn: dict[str, Any] = {"evaluation": "try", "pass_share": 0.1}
        async with weights_bench(tmp_path / "home", scripts={OLD: good, NEW: bad}, toml=MANY, **learn) as bench:
            await bench.run()
            await offer(bench)
            await bench.run("try", f"model={NEW}")
            await bench.act()
            assert await bench.learned("learn/accepted") == []
            assert "it came out worse than" in await bench.say(",learn", "owner")

    async def test_a_share_of_the_results_may_be_enough(self, tmp_path: Path) -> None:
        learn: dict[str, Any] = {"evaluation": "try", "pass_share": 0.5}
        async with weights_bench(tmp_path / "home", scripts={NEW: WRONG}, **learn) as bench:
            await bench.run()
            await offer(bench)
            await bench.run("try", f"model={NEW}")
            await bench.act()
            assert len(await bench.learned("learn/accepted")) == 1

    async def test_an_evaluation_from_before_the_offer_says_nothing_of_it(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home", evaluation="try") as bench:
            await bench.run()
            await bench.run("try", f"model={NEW}")
            await offer(bench)
            await bench.act()
            assert await bench.learned("learn/accepted") == []

    async def test_newer_weights_under_the_old_name_are_compared_with_what_was_before(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home", evaluation="try", scripts={OLD: RIGHT}) as bench:
            await bench.run()
            await offer(bench, OLD)
            await bench.act()
            assert await bench.learned("learn/accepted") == []
            await bench.run("try", f"model={OLD}")
            await bench.act()
            assert len(await bench.learned("learn/accepted")) == 1
            assert await bench.say("capital", "new") == f"{begins(OLD)}Paris"

    async def test_nobody_accepts_by_hand_what_has_to_pass(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home", evaluation="try") as bench:
            await offer(bench)
            said = await bench.say(",learn.accept", "owner")
            assert f"bubbot eval run try --model {NEW}" in said
            assert await bench.learned("learn/accepted") == []

    async def test_weights_that_changed_since_they_were_offered_are_not_accepted(self, tmp_path: Path) -> None:
        folder = write_weights(tmp_path / "m")
        async with weights_bench(tmp_path / "home", evaluation="try") as bench:
            await bench.run()
            await offer(bench, weights=folder)
            (folder / "model.safetensors").write_bytes(b"v" * 100)
            await bench.run("try", f"model={NEW}")
            await bench.act()
            assert await bench.learned("learn/accepted") == []
            assert f"The files of {NEW} have changed" in await bench.say(",learn", "owner")
            assert "has other weights now" in bench.feature.trouble


class TestTheRule:
    async def test_a_model_that_a_person_chose_stays(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await bench.say(f",model {NEWER}")
            await take_up(bench)
            await bench.say(",new")
            assert await bench.say("capital") == "Paris"
            assert [each["model"] for each in await bench.switches()] == [NEWER]

    async def test_a_person_may_choose_another_model_afterwards(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            await bench.say("capital")
            await bench.say(f",model {OLD}")
            await bench.say(",new")
            assert await bench.say("capital") == "Rome"
            await bench.say(",learn.back", "owner")
            assert await bench.say("capital") == "Rome"

    async def test_what_comes_after_goes_back_to_what_was_before(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            await bench.say("capital")
            await take_up(bench, NEWER, OTHER_DIGEST)
            assert await bench.say("capital") == "Paris"
            await bench.say(",new")
            assert await bench.say("capital") == f"{begins(NEWER, OTHER_DIGEST)}Paris"
            await bench.say(",learn.back", "owner")
            assert await bench.say("capital") == f"{begins(NEW)}Paris"
            await bench.say(",learn.back", "owner")
            assert await bench.say("capital") == f"{ends(OLD)}Rome"
            assert "there are no newer weights to take back" in await bench.say(",learn.back", "owner")

    async def test_what_was_taken_back_needs_a_new_acceptance(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            await bench.say("capital")
            await bench.say(",learn.back", "owner")
            await offer(bench)
            assert await bench.say("capital", "new") == "Rome"
            await bench.say(",learn.accept", "owner")
            assert await bench.say("capital", "newer") == f"{begins(NEW)}Paris"
            assert await bench.say("capital") == f"{ends(OLD)}Rome", "its window is from before"

    async def test_an_offer_alone_is_taken_back_too(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await offer(bench)
            assert "are not offered any more" in await bench.say(",learn.back", "owner")
            assert "no weights are offered" in await bench.say(",learn.accept", "owner")

    async def test_what_is_accepted_holds_after_a_restart(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await bench.say("capital")
            await take_up(bench)
            await bench.say("capital", "other")
        async with weights_bench(tmp_path / "home") as bench:
            assert await bench.say("capital", "other") == "Paris"
            assert await bench.say("capital") == "Rome"
            await bench.say(",learn.back", "owner")
        async with weights_bench(tmp_path / "home") as bench:
            assert await bench.say("capital", "other") == f"{ends(OLD)}Rome"

    async def test_a_model_that_can_be_had_no_more_changes_nothing(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            models = bench.bot.models
            models._loaded.pop(NEW, None)

            def refuse(name: str) -> Any:
                from bubbot.errors import ConfigError

                raise ConfigError(f"no {name}")

            models._load = refuse
            assert await bench.say("capital", "new") == "Rome"
            assert await bench.switches("new") == []


class TestTheDigest:
    async def test_of_a_folder_that_was_changed_nothing_is_said(self, tmp_path: Path) -> None:
        folder = write_weights(tmp_path / "m")
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench, weights=folder)
            await bench.say("capital")
            assert "weights sha256:" in await bench.say(",why")
            os.utime(folder / "model.safetensors", ns=(1, 1))
            await bench.say("capital")
            assert "weights sha256:" not in await bench.say(",why")

    async def test_a_model_that_a_person_chose_has_the_digest_of_its_folder_but_not_one_that_was_only_named(
        self, tmp_path: Path
    ) -> None:
        folder = write_weights(tmp_path / "m")
        async with weights_bench(tmp_path / "home") as bench:
            await offer(bench, NEW, folder)
            await bench.say(f",model {NEW}")
            await bench.say("capital")
            assert "weights sha256:" in await bench.say(",why")
            await offer(bench, NEWER)
            await bench.say(f",model {NEWER}")
            await bench.say("capital")
            assert "weights sha256:" not in await bench.say(",why")

    async def test_it_stays_with_the_answer_after_the_weights_were_taken_back(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            await bench.say("capital")
            (step,) = await bench.steps()
            await bench.say(",learn.back", "owner")
        async with weights_bench(tmp_path / "home") as bench:
            assert f"weights {DIGEST}" in await bench.say(",why")
            assert (await bench.steps())[0] == step

    async def test_a_fallback_that_answered_has_not_these_weights(self, tmp_path: Path) -> None:
        async with weights_bench(tmp_path / "home") as bench:
            await take_up(bench)
            bench.models[NEW]._name = "openai/another"
            await bench.say("capital")
            (step,) = await bench.steps()
            assert "weights" not in step


async def test_without_an_acceptance_a_turn_reads_nothing_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_tape: str) -> Any:
        raise AssertionError

    async with weights_bench(tmp_path / "home") as bench:
        await offer(bench)
        monkeypatch.setattr(switching, "switch_query", fail)
        assert await bench.say("capital") == "Rome"
