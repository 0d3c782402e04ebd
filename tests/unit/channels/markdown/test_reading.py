"""What a model writes is what people see, on every platform: marks beside any script, sums, formulas, simple tags."""

from __future__ import annotations

import re

import pytest

from channels.discord.dialect import render
from channels.markdown.marked_text import TextMark
from channels.telegram.dialect import parse_markdown
from channels.terminal.view import render_markdown
from tests.fakes.discord_reading import read

BOLD_IN_EVERY_SCRIPT = [
    ("**结论：**可以。", "结论：可以。", ["结论："]),
    ("请看**“重点”**一词，以及**价格（含税）**为10元。", "请看“重点”一词，以及价格（含税）为10元。", ["“重点”", "价格（含税）"]),
    ("这是**《书名》**的、**‘引’**号", "这是《书名》的、‘引’号", ["《书名》", "‘引’"]),
    ("これは**「重要」**です。**注意！**次", "これは「重要」です。注意！次", ["「重要」", "注意！"]),
    ("**ﾃｽﾄ(半角)**です", "ﾃｽﾄ(半角)です", ["ﾃｽﾄ(半角)"]),
    ("**중요(important)**는 **\"강조\"**가", "중요(important)는 \"강조\"가", ["중요(important)", '"강조"']),
    ("**สำคัญ:**คือ **\"คำ\"**นี้", "สำคัญ:คือ \"คำ\"นี้", ["สำคัญ:", '"คำ"']),
    ("**ສຳຄັນ:**ຄື **သတိ!**ပြု **ចំណាំ:**គឺ", "ສຳຄັນ:ຄື သတိ!ပြု ចំណាំ:គឺ", ["ສຳຄັນ:", "သတိ!", "ចំណាំ:"]),
    ("ב**\"הארץ\"** و**«كلمة»** **«शब्द»**का", "ב\"הארץ\" و«كلمة» «शब्द»का", ['"הארץ"', "«كلمة»", "«शब्द»"]),
    ("**„Auto“**fahrer, l'**« ami »**s **«Слово»**то", "„Auto“fahrer, l'« ami »s «Слово»то", ["„Auto“", "« ami »", "«Слово»"]),
    ("API**“重点”**API、**重点。**OK", "API“重点”API、重点。OK", ["“重点”", "重点。"]),
    ('API**"价"**API', 'API"价"API', ['"价"']),
    ("价格**💰100元**起", "价格💰100元起", ["💰100元"]),
    ("__结论：__可以", "结论：可以", ["结论："]),
    ("**重点（甲）**、**乙：**丙", "重点（甲）、乙：丙", ["重点（甲）", "乙："]),
    ("中文f(**kwargs)和g(**opts)", "中文f(**kwargs)和g(**opts)", []),
    ("（**kwargs）和（**opts）", "（**kwargs）和（**opts）", []),
    ("f(**kwargs) and g(**opts)", "f(**kwargs) and g(**opts)", []),
    ("snake_case_字_x_y", "snake_case_字_x_y", []),
]  # fmt: skip
SUMS = [
    "The area is 2*3*4 = 24 and the sum is 5*x+3*y.",
    "(2+3)*4 + 5*(6+7), 50%*2 + x*(y)",
    "a[i]*2 + b[j]*3 and (a+b)*c + d*(e)",
    "a*b*c, x*y and y*z; width*height*depth",
    "un*frigging*believable",
    "rate*time + price*quantity",
    "x**2 + y**2 = z**2, 2**10 and 10**n + 2**n",
    "(a+b)**2 + (c+d)**2, a**b + c**d",
    "base**exponent + other**power",
    "10~~20 and 30~~40",
    "½*3*2² and ٣*٤*٥",
    "面积=长*宽*高，体积＝边长*边长*边长",
    "长*宽*高",
    "面积=(长)*宽*高",
    "每天3个*5元，每周7个*2元",
    "2 * 3 * 4",
]
MARKS_IN_WORDS = [
    ("**Sum: 2*3*4 = 24**", "Sum: 2*3*4 = 24", ["Sum: 2*3*4 = 24"]),
    ("*Note: 5*x* y", "Note: 5*x y", ["Note: 5*x"]),
    ("**Area: 2**10** and", "Area: 2**10 and", ["Area: 2**10"]),
    ("**x**2 + y**2** z", "x**2 + y**2 z", ["x**2 + y**2"]),
    ("*2*3* and *x*y* z", "2*3 and x*y z", ["2*3", "x*y"]),
    ("in**ter**esting *re*cord re*cord*", "interesting record record", ["ter", "re", "cord"]),
    ("**re**cord and re**cord**", "record and record", ["re", "cord"]),
    ("Win**11**, CO**2**: **5**x **3**rd **10**th", "Win11, CO2: 5x 3rd 10th", ["11", "2", "5", "3", "10"]),
    ("第*3*章用*Python*写，这是*重点*一词", "第3章用Python写，这是重点一词", ["3", "Python", "重点"]),
    ("中**5**x 2*x*: a", "中5x 2*x*: a", ["5"]),
    ("[a **b**](https://e.example)**e** x", "a b x".replace("b", "be"), ["b", "e"]),
    ("a~~b~~c", "abc", ["b"]),
]  # fmt: skip
FORMULAS = [
    "Euler: \\(e^{i\\pi}+1=0\\), and \\[\\int_0^1 x_1\\,dx\\] is a half.",
    "\\(a*b*c\\) \\(x\\) and \\(\\{a\\}\\)",
    "$x_1*y*z_2$, $a$, $$a*b*c$$ and $$\\frac{a}{b} *x*$$",
    "\\[\na_1\n+ b_2 \\\\\n= c\n- d\n\\]",
    "Text:\n$$\nx\n= *y* \\\\\n# z\n$$\nmore",
    "\\begin{align}\na &= b \\\\\n+ c &= *d*\n\\end{align}",
    "costs $5 and $10, US$5*3, $HOME_DIR",
]
TAGS = [
    ("H<sub>2</sub>O, 10<sup>-3</sup>, x<SUB>max</SUB>, 1<sup>st</sup>", "H₂O, 10⁻³, xₘₐₓ, 1ˢᵗ", []),
    ("e<sup>iπ</sup> x<sub>Z</sub>", "e^(iπ) x_Z", []),
    ("<b>a</b> <strong>b</strong> <mark class='x'>c</mark>", "a b c", [("bold", "a"), ("bold", "b"), ("bold", "c")]),
    ("<i>a</i> <em>b</em> <u>c</u> <ins>d</ins>", "a b c d", [("italic", "a"), ("italic", "b"), ("underline", "c"), ("underline", "d")]),
    ("<s>a</s> <del>b</del> <strike>c</strike>", "a b c", [("strike", "a"), ("strike", "b"), ("strike", "c")]),
    ("<code>a &lt; *b*</code> <kbd>Ctrl</kbd>", "a < *b* Ctrl", [("code", "a < *b*"), ("code", "Ctrl")]),
    ("a<br>b<br/>c<BR />\nd", "a\nb\nc\nd", []),
    ("<b> a </b>b", " a b".strip(), [("bold", "a")]),
    ("<b>a **c** </b>", "a c ".strip(), [("bold", "a c")]),
    ("<b>open and <i>more</b></i>", "open and <i>more</i>", [("bold", "open and <i>more")]),
    ("<b>never closed", "<b>never closed", []),
    ("<b>a <b class=x>b</b> c</b> d", "a b c d", [("bold", "a b c")]),
    ("<b>a <b>b</b> c", "a <b>b c", [("bold", "a <b>b")]),
    ("closed only</b> <b></b> <b/>", "closed only</b> <b></b> <b/>", []),
    ("**x <b>y** z</b>", "**x y** z", [("bold", "y** z")]),
    ("<b>a `</b>` c", "a `` c", [("bold", "a `")]),
    ("<b>a\\</b> c", "a\\ c", [("bold", "a\\")]),
    ("`<b>x</b>` <b>y</b>", "<b>x</b> y", [("code", "<b>x</b>"), ("bold", "y")]),
    ("<div><p>x</p></div> <script>y</script>", "<div><p>x</p></div> <script>y</script>", []),
    ('<a href="javascript:x">bad</a> <a name="n">n</a>', '<a href="javascript:x">bad</a> <a name="n">n</a>', []),
    ("AT&amp;T &amp;lt; &lt;b&gt;", "AT&T &lt; <b>", []),
]  # fmt: skip


def looks(text: str, marks: tuple[TextMark, ...]) -> list[tuple[str, frozenset[str]]]:
    return [
        (char, frozenset(mark.kind for mark in marks if mark.start <= at < mark.end))
        for at, char in enumerate(text)
        if not char.isspace()
    ]


def see_on_every_platform(source: str, text: str) -> list[tuple[str, str]]:
    """See that Discord and the terminal show the text as Telegram does; return its marks."""
    marked = parse_markdown(source)
    assert marked.text.strip() == text
    lines = render(source).split("\n")
    shown = [(char, frozenset(found)) for line in lines for char, found in read(line) if not char.isspace()]
    assert shown == looks(marked.text, marked.marks)
    assert re.sub(r"\s+", "", re.sub(r"\x1b\[[\d;]*m", "", render_markdown(source, width=100, colour=False))) == re.sub(
        r"\s+", "", text
    )
    return [(mark.kind, marked.text[mark.start : mark.end]) for mark in marked.marks]


@pytest.mark.parametrize(("source", "text", "bold"), BOLD_IN_EVERY_SCRIPT)
def test_bold_is_what_stands_between_the_pair_in_every_script(source: str, text: str, bold: list[str]) -> None:
    assert see_on_every_platform(source, text) == [("bold", part) for part in bold]


@pytest.mark.parametrize("source", SUMS)
def test_a_sign_of_a_sum_is_no_mark(source: str) -> None:
    assert see_on_every_platform(source, source) == []


@pytest.mark.parametrize(("source", "text", "marked"), MARKS_IN_WORDS)
def test_a_mark_around_a_sum_or_a_part_of_a_word_is_one(source: str, text: str, marked: list[str]) -> None:
    found = see_on_every_platform(source, text) if "](" not in source else None
    found = found or [
        (mark.kind, parse_markdown(source).text[mark.start : mark.end])
        for mark in parse_markdown(source).marks
        if mark.kind != "link"
    ]
    assert [part for _, part in found] == marked


@pytest.mark.parametrize("source", FORMULAS)
def test_a_formula_is_shown_as_it_is_written(source: str) -> None:
    assert see_on_every_platform(source, source) == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("see \\[1\\], \\[1-3\\], \\[see *this* well-known note\\]", "see [1], [1-3], [see this well-known note]"),
        ("code `\\(x\\)` and $`a`$ and *y*", "code \\(x\\) and $a$ and y"),
        ("**$5**, *x* and **10$**", "$5, x and 10$"),
        ("$5-$10, $*a* b$ and US$*c*$", "$5-$10, $a b$ and US$c$"),
        ("\\(never *closed*", "(never closed"),
        ("$[a](https://e.example/$b)$", "$a$"),
        ("\\[\n\nnot *one*\n\\]", "[\n\nnot one\n]"),
        ("    \\[\n    *x*\n    \\]", "\\[\n*x*\n\\]"),
    ],
)
def test_brackets_and_dollars_of_a_text_are_no_formula(source: str, text: str) -> None:
    assert parse_markdown(source).text == text


@pytest.mark.parametrize("source", ["|| a|| b", "||a || b", "a||b|| c", "||b||c", "||||", "||a|b||"])
def test_bars_beside_spaces_and_words_hide_nothing(source: str) -> None:
    assert parse_markdown(source).text == source
    assert parse_markdown(source).marks == ()


def test_a_formula_ends_a_paragraph_and_belongs_to_its_item() -> None:
    source = "- so:\n  \\[\n  + a_1\n  \\]\n  *b*\n\n\\[\nx\n\\] *c*"
    assert parse_markdown(source).text == "• so:\n  \\[\n  + a_1\n  \\]\n  b\n\n\\[\nx\n\\] c"


def test_the_terminal_has_a_look_for_every_mark() -> None:
    drawn = render_markdown("**结论：**可以 <u>u</u> ||s|| 2*3*4 <p>", width=80, colour=True)
    assert drawn == "\x1b[1m结论：\x1b[0m可以 \x1b[4mu\x1b[0m \x1b[7ms\x1b[0m 2*3*4 <p>"


@pytest.mark.parametrize(("source", "text", "marks"), TAGS)
def test_simple_tags_are_what_a_browser_shows_and_all_others_text(
    source: str, text: str, marks: list[tuple[str, str]]
) -> None:
    assert see_on_every_platform(source, text) == marks


def test_a_link_in_html_shows_where_it_leads() -> None:
    source = (
        "<a class=x href='https://e.example/a?b=1&amp;c'>here <b>now</b></a> <a href=https://b.example>a.example</a>"
    )
    assert render(source).startswith("[here **now**](https://e.example/a?b=1&c) [a.example]")
    marked = parse_markdown(source)
    assert marked.text == "here now a.example (https://b.example)"
    assert [mark.url for mark in marked.marks if mark.kind == "link"] == [
        "https://e.example/a?b=1&c",
        "https://b.example",
    ]
    assert parse_markdown("x<sup>[1](https://e.example)</sup>").text == "x1"
    inner = "a <a href='https://c.example'>b</a>"
    assert parse_markdown(f"*x* [{inner}](https://c.example)").text == f"x {inner}"


def test_a_list_goes_on_after_one_inside_it() -> None:
    source = "1. a\n   - b\n2. c\n   1. d\n3. e"
    assert render(source) == source
    assert parse_markdown(source).text == source.replace("- b", "• b")


def test_an_address_that_is_seen_may_stand_in_columns() -> None:
    table = "a\n-------------------\nhttps://x.example/a"
    source = "| a |\n|---|\n| https://x.example/a |"
    assert parse_markdown(source).text == table
    assert render(source) == f"```\n{table}\n```"


def test_a_line_end_in_a_cell_is_a_line_of_the_table() -> None:
    source = "| Item | Notes |\n|---|--:|\n| A | one<br>two<br/> |\n| B | x |"
    table = "Item | Notes\n-----+------\nA    |   one\n     |   two\nB    |     x"
    assert parse_markdown(source).text == table
    assert render(source) == f"```\n{table}\n```"
    assert parse_markdown(source, table_columns=1).text == "Item: A\nNotes: one\ntwo\n\nItem: B\nNotes: x"
    assert render(source, table_columns=1) == "**Item:** A\n**Notes:** one\ntwo\n\n**Item:** B\n**Notes:** x"
    quoted = "\n".join(f"> {line}" for line in source.split("\n"))
    assert all(line.startswith(">") for line in render(quoted, table_columns=1).split("\n"))


@pytest.mark.parametrize(
    "source", ["**结论：**可以", "**Sum: 2*3*4** ok", "*a* <b>b c</b> d", "\\(e^{i\\pi}\\) x", "$x_1*y$ z"]
)
def test_an_answer_that_is_still_being_written_shows_its_letters_in_order(source: str) -> None:
    words = re.sub(r"\W", "", re.sub(r"</?b>", "", source))
    for end in range(len(source) + 1):
        begun = re.sub(r"</?b?$|<b>(?!.*</b>)", "", source[:end])
        shown = re.sub(r"\W", "", re.sub(r"</?b?>?$|<b>", "", parse_markdown(source[:end]).text))
        assert words.startswith(shown), source[:end]
        assert shown == re.sub(r"\W", "", re.sub(r"</?b>", "", begun)), source[:end]


@pytest.mark.parametrize(
    "unit", ["<b>", "<b>x</b>", "<b>`", "2*3 ", "a*", "a**", "重*", "\\(", "$x ", "<a href=x>", "：**", "x<br>"]
)
def test_many_of_a_sign_lose_nothing(unit: str) -> None:
    source = unit * (9_000 // len(unit))
    shown = parse_markdown(source).text
    assert re.sub(r"\W|b|br", "", shown) == re.sub(r"\W|b|br", "", re.sub("<br>", "", source))
