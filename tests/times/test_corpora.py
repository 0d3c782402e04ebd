"""The judge of times reads the shapes of the three corpora; in the long version, the corpora themselves."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.times.corpora import count_by_language, judge_corpora, read_corpora, right_share
from tests.times.differences import DIFFERENCES

DUCKLING = """
allExamples :: [Example]
allExamples = concat
  [ examples (datetime (2013, 2, 13, 18, 0, 0) Hour)
             [ "tomorrow at 6pm"
             , "tomorrow at \\"six\\""
             ]
  , examples (datetime (2013, 2, 13, 17, 0, 0) Hour)
             [ "tomorrow at 7pm"
             ]
  , examples (datetime (2013, 2, 11, 0, 0, 0) Day)
             [ "yesterday"
             ]
  , examples (datetimeInterval ((2013, 2, 13, 0, 0, 0), (2013, 2, 15, 0, 0, 0)) Day)
             [ "tomorrow and the day after"
             ]
  ]
"""
CHRONO = """
test("Test - one", () => {
    testSingleCase(chrono.zh.hans, "记得明天上午9点浇花", new Date(2012, 8 - 1, 10, 12), (result) => {
        expect(result.text).toBe("明天上午9点");
        expect(result.start.get("year")).toBe(2012);
        expect(result.start).toBeDate(new Date(2012, 7, 11, 9));
    });

    testSingleCase(chrono.zh.hans, "明天9点到10点", new Date(2012, 7, 10, 12), (result) => {
        expect(result.text).toBe("明天9点到10点");
        expect(result.start).toBeDate(new Date(2012, 7, 11, 9));
        expect(result.end).toBeDate(new Date(2012, 7, 11, 10));
    });
});
"""
DATEPARSER = """
class TestDates:
    @parameterized.expand(
        [
            # English dates
            param("14 May 2014 at 9am", datetime(2014, 5, 14, 9, 0)),
            # French dates
            param("le 14 mai 2014", datetime(2014, 5, 14)),
        ]
    )
    def test_dates_parsing(self, date_string, expected):
        self.given_parser(settings={"RELATIVE_BASE": datetime(2012, 11, 13)})
"""


def test_the_judge_reads_each_shape(tmp_path: Path) -> None:
    for name, text in {
        "duckling/Duckling/Time/EN/Corpus.hs": DUCKLING,
        "chrono/test/zh/some.test.ts": CHRONO,
        "dateparser/tests/test_date_parser.py": DATEPARSER,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert judge_corpora(tmp_path) == {
        ("en", "duckling"): Counter(right=1, wrong=1, refused=1),
        ("zh", "chrono"): Counter(right=1),
        ("en", "dateparser"): Counter(right=1),
    }


@pytest.mark.proof
def test_the_published_corpora_are_read_rightly_or_refused() -> None:
    """Duckling's, Chrono's and dateparser's checkouts lie below the path."""
    if not (path := os.environ.get("BUBBOT_TIME_CORPORA")):
        pytest.skip("BUBBOT_TIME_CORPORA names no folder with the corpora")
    total = count_by_language(judge_corpora(Path(path)))
    assert {language: row["wrong"] for language, row in total.items()} == {"en": 0, "zh": 0, "de": 0}
    assert right_share(total["en"]) >= 0.85
    assert right_share(total["zh"]) >= 0.9
    different = {one.phrase.lower() for one in read_corpora(Path(path)) if one.judge()[0] != "right"}
    assert sorted(set(DIFFERENCES) - different) == []  # what is read as the corpora have it needs no reason
