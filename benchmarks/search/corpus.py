"""Passages of three corpora: documentation that is on the machine, words by Zipf's law, and chat messages."""

from __future__ import annotations

import gettext
import gzip
import random
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.bench.words import Words

SIZE = 200
"""Bytes of a passage, about."""
CJK_PART = 0.03
"""The part of passages in Chinese or Japanese, where there are so many."""
LONG_WORDS = 4_000
"""Different words of more than 20 letters in the corpora that are made up."""
_SUFFIXES = frozenset({".md", ".txt", ".rst", ".py", ".html", ".pyi", ".gz", ".pod", ".tex", ".js", ".c", ".h"})
_LARGEST = 4_000_000
_CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]{2,}")
_TAGS = re.compile(r"<[^>]{1,200}>")


def documentation(number: int, seed: int) -> list[str]:
    """So many passages of real text, no two the same: documentation, programs and translations that are on the machine.

    The same for the same machine and seed; fewer where it has no more text.
    """
    chance = random.Random(seed)
    foreign = list(_packed(_translations(), 90))
    chance.shuffle(foreign)
    foreign = list(dict.fromkeys(foreign))[: int(number * CJK_PART)]
    seen: set[int] = set()
    found: list[str] = []
    wanted = number - len(foreign)
    for path in _files(chance):
        for text in _packed(iter(_TAGS.sub(" ", _read(path)).splitlines()), SIZE):
            mark = hash_of(text)
            if mark not in seen and _is_said(text):
                seen.add(mark)
                found.append(text)
        if len(found) >= wanted:
            break
    del found[wanted:]
    found += foreign
    chance.shuffle(found)
    return found


def hash_of(text: str) -> int:
    """The same for passages that differ in digits, case and spaces alone: tables repeat themselves."""
    return hash(re.sub(r"[\W\d_]+", "", text).casefold())


def _is_said(text: str) -> bool:
    """Whether it is words and not numbers or lines."""
    letters = sum(map(str.isalpha, text))
    return letters > 0.5 * len(text) and text.count(" ") >= 5


def _files(chance: random.Random) -> list[Path]:
    folders = [Path("/usr/share/doc"), Path("/usr/share/perl"), Path("/usr/include"), Path("/usr/lib/python3")]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    folders += [Path(sys.base_prefix) / "lib"]
    found = {path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.suffix in _SUFFIXES}
    ordered = sorted(found)
    chance.shuffle(ordered)
    return ordered


def _read(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return ""
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, ValueError, EOFError):
        return ""


def _translations() -> Iterator[str]:
    """The Chinese and Japanese sentences of the programs that are installed."""
    root = Path("/usr/share/locale")
    for language in ("zh_CN", "ja", "zh_TW"):
        for path in sorted((root / language).glob("LC_MESSAGES/*.mo")) if root.is_dir() else ():
            try:
                with path.open("rb") as file:
                    catalog = gettext.GNUTranslations(file)
            except (OSError, ValueError):
                continue
            known = vars(catalog)["_catalog"]
            yield from (
                text for text in known.values() if isinstance(text, str) and _CJK.search(text) and "\n" not in text
            )


def _packed(lines: Iterator[str], size: int) -> Iterator[str]:
    """Lines joined until they are long enough."""
    parts: list[str] = []
    length = 0
    for line in lines:
        cleaned = " ".join(line.split())
        if not cleaned:
            continue
        parts.append(cleaned[: 2 * size])
        length += len(cleaned)
        if length >= size * 0.8:
            yield " ".join(parts)[: 2 * size]
            parts, length = [], 0


def zipf(number: int, seed: int) -> list[str]:
    """So many passages out of 20,000 words, of which few are frequent; every sixteenth is Chinese.

    Every twentieth has a long word, put together from three.
    """
    words, chance = Words(seed), random.Random(seed)
    long_words = ["".join(chance.sample(words.known, 3)) for _ in range(LONG_WORDS)]
    return [
        words.signs(24)
        if place % 16 == 3
        else words.text(28) + (f" {chance.choice(long_words)}" if place % 20 == 5 else "")
        for place in range(number)
    ]


_SMALL_TALK = """ok okay thanks thank you yes yeah haha hello morning tonight tomorrow yesterday later please sorry maybe really
sure great nice good bad dinner lunch coffee meeting train ticket hotel flight birthday weekend school kitchen garden doctor
money letter photo picture message phone house street market weather where when what why how the a is are was were will can
could should have had has to of in on at for with from about before after again still never always today week month year see
call send bring buy book forget remember arrive leave wait help think know want need tell ask find take come go home work"""
_NAMES = """Anna Ben Clara David Elena Felix Greta Hannah Ivan Jonas Katharina Leon Maria Nadia Oliver Paula Quentin Rafael
Sofia Thomas Ursula Viktor Wanda Xenia Yusuf Zoe Aleksandra Bartholomew Christopher Dominique Evangeline Fitzgerald Giovanni
Henrietta Isabella Jacqueline Konstantin Leopold Margarete Nicolette Octavia Penelope Rosalinde Sebastian Theodora Valentina
Wilhelmina Zacharias Müller Nguyen Kowalski Fernandez Papadopoulos Andersson Yamamoto Schneider O'Brien Lindqvist"""
_CHINESE = """今天 明天 昨天 早上 晚上 下午 我们 你们 他们 一起 吃饭 喝茶 开会 会议 火车 车票 飞机 医院 医生 学校 老师 学生 公园
散步 天气 下雨 生日 礼物 照片 电话 地址 厨房 花园 问题 工作 项目 数据库 服务器 备份 迁移 配置 文件 谢谢 好的 没问题 等一下
马上 已经 可能 应该 需要 觉得 知道 喜欢 记得 忘记 王小明 李思雨 陈建国 张伟 刘洋 上海 北京 杭州 深圳"""
_SOUNDS = ("bal", "cor", "den", "fal", "gri", "hol", "jan", "kel", "lum", "mar", "nor", "ost", "pel", "rud", "sal", "tor", "ul", "ven", "wes", "yor")  # fmt: skip
_ENDS = ("burg", "dale", "stein", "ville", "mere", "wick", "ford", "ano", "ia", "ex", "ix", "ora")


def chat(number: int, seed: int) -> list[str]:
    """So many messages as people write them: short, with repeated words, names, places, numbers, and mixed Chinese.

    One in 70 has a long word.
    """
    writer = _ChatWriter(random.Random(seed))
    return [writer.message() for _ in range(number)]


class _ChatWriter:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._words, self._names, self._chinese = (text.split() for text in (_SMALL_TALK, _NAMES, _CHINESE))
        self._places = [self._place() for _ in range(20_000)]
        self._long_words = [self._long_word() for _ in range(LONG_WORDS)]

    def _place(self) -> str:
        return "".join([*self._chance.choices(_SOUNDS, k=self._chance.randint(2, 4)), self._chance.choice(_ENDS)])

    def _long_word(self) -> str:
        """A name and two places in one word, as in a hashtag."""
        name = self._chance.choice([name for name in self._names if name.isascii() and name.isalpha()])
        return f"{name}{self._chance.choice(self._places)}{self._chance.choice(self._places)}".lower()

    def message(self) -> str:
        """A message."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.08:
            return " ".join([chance.choice(self._words)] * chance.randint(1, 4))
        if kind < 0.28:
            said = self._said(chance.randint(2, 8))
            return f"{said} {chance.choice(self._names)} {said[:2]}" if kind < 0.14 else said
        words = chance.choices(self._words, k=chance.randint(2, 10))
        if chance.random() < 0.45:
            words.insert(chance.randrange(len(words)), chance.choice(self._names))
        if chance.random() < 0.45:
            rank = min(int(chance.paretovariate(0.3)), len(self._places))
            words.append(self._places[rank - 1].capitalize())
        if chance.random() < 0.02:
            words.append(f"#{chance.choice(self._long_words)}")
        if chance.random() < 0.2:
            words.append(chance.choice([str(chance.randint(1, 999)), "🎉", "👍", self._said(3)]))
        return " ".join(words) + chance.choice(["", "", ".", "!", "?"])

    def _said(self, words: int) -> str:
        return "".join(self._chance.choices(self._chinese, k=words))


CORPORA: Mapping[str, Callable[[int, int], list[str]]] = {"documentation": documentation, "zipf": zipf, "chat": chat}
"""Passages by number and seed, by the corpus's name."""
