"""The graph of anchors: its links, and how they are drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bubbot.errors import ConfigError
from bubbot.features.conversation.tape import tape_tools
from bubbot.shell_command import CommandContext
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import message
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.tool import Toolbox
from tests.callers import run_shell
from tests.doubles import CountingIds, SteppingClock

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = 'a"]; click a1 "javascript:x" <script>&amp; %%{init}%% `x` \u202e\x1b[31m style:#x; end --> b'


@pytest.fixture
def draw(store: TapeStore, chat: TapeService, clock: SteppingClock, ids: CountingIds) -> Callable[..., Any]:
    async def draw(**arguments: Any) -> Any:
        """What a shell draws of the chat."""
        return await run_shell(
            "tape graph", CommandContext(store, "w", clock, ids), **({"tape": chat.name} | arguments)
        )

    return draw


async def write(chat: TapeService) -> None:
    """Write windows at 1, 3 and 9, a memory marker at 5, and anchors without a window at 6 and 10."""
    await chat.append([anchor("session/start"), message("user", "a"), anchor("two"), message("user", "b")])
    await chat.append([anchor("memory/open", window=False), anchor("topic/x", {"parents": [1]}, window=False)])
    await chat.append([message("user", "c"), message("user", "d")])
    state = {"parents": [6, 3, ["elsewhere", 7]], "summary": "  All\n is  well. " + "x" * 90}
    await chat.append([anchor("three", state, recalls=[(2, 4), (7, 7)]), anchor("later", window=False)])


async def test_the_links_are_the_order_of_windows_the_parents_and_the_recalls(
    chat: TapeService, draw: Callable[..., Any]
) -> None:
    await write(chat)
    drawn = (await draw()).data
    assert [(one["id"], one["name"], one["opens_window"]) for one in drawn["anchors"]] == [
        (1, "session/start", True),
        (3, "two", True),
        (6, "topic/x", False),
        (9, "three", True),
        (10, "later", False),
    ]
    assert drawn["anchors"][3]["summary"] == f"All is well. {'x' * 46}…"
    links = [(one["kind"], one["source"], one["target"], one["tape"], one["spans"]) for one in drawn["links"]]
    assert json.loads(json.dumps(links)) == [
        ["next", 1, 3, "", []],
        ["within", 3, 6, "", []],
        ["parent", 1, 6, "", []],
        ["next", 3, 9, "", []],
        ["parent", 6, 9, "", []],
        ["parent", 3, 9, "", []],
        ["parent", 7, 9, "elsewhere", []],
        ["recall", 1, 9, "", [[2, 2]]],
        ["recall", 3, 9, "", [[3, 4], [7, 7]]],
        ["within", 9, 10, "", []],
    ]


async def test_a_graph_as_text(chat: TapeService, draw: Callable[..., Any]) -> None:
    await write(chat)
    text = (await draw()).text
    assert re.sub(r"2026-11-21 ..:..", "DATE", text).splitlines() == [
        "● #1 session/start DATE",
        "● #3 two DATE",
        "○ #6 topic/x DATE",
        "   ⇐ parents: #1",
        f"● #9 three DATE All is well. {'x' * 46}…",
        "   ⇐ parents: #6, #3, #7 of elsewhere",
        "   ⇠ recalls #2 of the window of #1",
        "   ⇠ recalls #3-4, #7 of the window of #3",
        "○ #10 later DATE",
        "● opens a window, ○ opens none",
    ]


async def test_a_graph_as_mermaid(chat: TapeService, draw: Callable[..., Any]) -> None:
    await write(chat)
    lines = (await draw(output="a.mmd")).text.splitlines()
    assert lines[0] == "flowchart TD"
    assert [line.strip() for line in lines if re.search("-->|---|==>|-\\.", line)] == [
        *("a1 --> a3", "a3 --- a6", "a1 ==> a6", "a3 --> a9", "a6 ==> a9", "a3 ==> a9", "x1 ==> a9"),
        *('a1 -. "#35;2" .-> a9', 'a3 -. "#35;3-4, #35;7" .-> a9', "a9 --- a10"),
    ]
    assert '  x1(["#35;7 of elsewhere"])' in lines


async def test_names_and_summaries_cannot_leave_their_label(chat: TapeService, draw: Callable[..., Any]) -> None:
    await chat.append([anchor(HOSTILE, {"summary": HOSTILE, "parents": [[HOSTILE, 1]]}), anchor("\ufffe\uffff")])
    mermaid, svg = [(await draw(output=f"a.{kind}")).text for kind in ("mmd", "svg")]
    for line in mermaid.splitlines()[1:]:
        assert re.fullmatch(
            r'  (a\d+|x\d+)(\[|\(\[)"(\w|[ ,./_()…-]|#\d+;|<br/>)*"(\]|\]\))|  [ax]\d+ (==>|-->) a\d+', line
        )
    picture = ET.fromstring(svg)
    assert {child.tag.removeprefix(SVG) for child in picture.iter()} == {
        *("svg", "title", "rect", "defs", "marker", "path", "text")
    }
    assert "<script>" in "".join(picture.itertext())
    for text in (mermaid, svg, (await draw()).text):
        assert not {"\x1b", "\u202e"} & set(text)


async def test_a_graph_as_svg_has_a_box_for_each_anchor_and_a_path_for_each_link(
    chat: TapeService, draw: Callable[..., Any]
) -> None:
    await write(chat)
    drawn = await draw(output="a.svg")
    picture = ET.fromstring(drawn.text)
    assert len(picture.findall(f"{SVG}rect")) == 1 + len(drawn.data["anchors"]) + 1
    paths = picture.findall(f"{SVG}path")
    assert [path.get("class") for path in paths] == [link["kind"] for link in drawn.data["links"]]
    styles = {path.get("class"): path.get("style", "") for path in paths}
    assert "dasharray" in styles["recall"]
    assert len(set(styles.values())) == 4
    width, height = (int(picture.attrib[name]) for name in ("width", "height"))
    for rect in picture.findall(f"{SVG}rect")[1:]:
        x, y, across, down = (int(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert (x + across <= width, y + down <= height) == (True, True)


async def test_older_anchors_without_a_row_stand_beside_the_column_so_that_no_link_runs_behind_a_box(
    chat: TapeService, draw: Callable[..., Any]
) -> None:
    await write(chat)
    picture = ET.fromstring((await draw(last=2, output="a.svg")).text)
    boxes = [
        tuple(int(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in picture.iter(f"{SVG}rect")
        if rect.get("x")
    ]
    column = [box for box in boxes if box[0] == boxes[0][0]]
    stubs = [box for box in boxes if box not in column]
    right = column[0][0] + column[0][2]
    assert (len(column), len(stubs)) == (2, 3)
    assert all(box[0] > right for box in stubs)
    assert all(low[1] + low[3] < high[1] for low, high in pairwise(sorted(stubs, key=lambda box: box[1])))
    starts = [path.attrib["d"].split() for path in picture.findall(f"{SVG}path") if path.get("class") == "parent"]
    assert {int(points[-1].partition(",")[0]) for points in starts} == {right}


@pytest.mark.parametrize("count", [10, 300])
async def test_a_long_graph_is_cut_to_the_newest_and_says_so(
    chat: TapeService, draw: Callable[..., Any], count: int
) -> None:
    await chat.append(
        [anchor(f"phase/{number}", {"parents": [number - 1] if number > 1 else []}) for number in range(1, count + 1)]
    )
    text, mermaid, svg = [await draw(last=10, **to) for to in ({}, {"output": "a.mmd"}, {"output": "a.svg"})]
    assert [one["id"] for one in text.data["anchors"]] == list(range(count - 9, count + 1))
    sentence = "There are older anchors; only the newest 10 are drawn."
    for drawn in (text, mermaid, svg):
        assert (sentence in drawn.text) == (count > 10)
    assert (f"x1 ==> a{count - 9}" in mermaid.text) == (count > 10)


async def test_an_erased_anchor_is_drawn_without_its_content(chat: TapeService, draw: Callable[..., Any]) -> None:
    await chat.append([anchor("one"), anchor("two")])
    drawn = await draw(tape=await chat.reset(archive=False))
    assert [(one["name"], one["erased"]) for one in drawn.data["anchors"]] == [("", True)] * 2
    assert "○ #2 (erased) " in drawn.text


async def test_a_chat_is_told_nothing_of_other_tapes(chat: TapeService, begin: Callable[..., Any]) -> None:
    await write(chat)
    turn, tape_graph = await begin(runs_command=True), Toolbox(tape_tools()).find("tape.graph")
    answer = await tape_graph.run(turn, tape_graph.parse('{"last": 2}'))
    assert "#7 of another chat" in str(answer)
    assert "elsewhere" not in str(answer)
    assert "only the newest 2" in str(answer)
    empty = await tape_graph.run(turn, tape_graph.parse("{}"))
    assert str(empty).startswith("● #1 session/start")


async def test_a_time_that_has_not_come_is_refused(chat: TapeService, draw: Callable[..., Any]) -> None:
    await write(chat)
    head = await chat.head()
    assert (await draw(as_of=head)).text.startswith("● #1")
    with pytest.raises(ConfigError, match=f"--as-of {head + 1}: the newest entry of this tape is {head};"):
        await draw(as_of=head + 1)


async def test_the_shell_draws_into_a_file_by_its_name(chat: TapeService, draw: Callable[..., Any]) -> None:
    await write(chat)
    drawn = await draw(output="a.svg")
    assert (drawn.file, ET.fromstring(drawn.text).tag) == ("a.svg", f"{SVG}svg")
    assert (await draw(output="a.mmd")).text.startswith("flowchart TD\n")
    earlier = await draw(as_of=5)
    assert earlier.text.count("●") == 2 + 1
    with pytest.raises(ConfigError, match="at most 5000"):
        await draw(last=10**9)
