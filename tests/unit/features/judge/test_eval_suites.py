"""The suites of the package: their judges tell good answers from bad ones."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from tests.docs.pages import ROOT
from tests.evals import eval_bench, write_eval

BAD = ROOT / "tests" / "data" / "evals" / "bad_everyday.json"


def read_suite() -> str:
    folder = files("bubbot.features.judge.evals") / "suites" / "everyday"
    return (folder / "everyday.toml").read_text(encoding="utf-8")


async def test_the_everyday_suite_passes_offline_with_its_script(tmp_path: Path) -> None:
    async with eval_bench(tmp_path) as bench:
        report = await bench.run("everyday")
        assert [each for each in report.results if not each.has_passed] == []
        assert (len(report.results), report.setups[0].mean, report.state) == (10, 1.0, "complete")


async def test_each_of_the_ten_scenarios_fails_for_a_bad_answer(tmp_path: Path) -> None:
    write_eval(tmp_path, read_suite(), "everyday", everyday=json.loads(BAD.read_text(encoding="utf-8")))
    async with eval_bench(tmp_path) as bench:
        report = await bench.run("everyday")
        assert [each.case for each in report.results if each.has_passed is not False] == []
        assert len(report.results) == 10


async def test_a_model_that_says_nothing_of_use_passes_no_scenario_but_silence(tmp_path: Path) -> None:
    async with eval_bench(tmp_path, scripts={"scripted/other": {"default": [{"text": "[SILENT]"}]}}) as bench:
        report = await bench.run("everyday", "model=scripted/other")
        assert {each.case for each in report.results if each.has_passed} == {"group"}
