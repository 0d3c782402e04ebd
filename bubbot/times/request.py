"""A request as people type it: a time, and what is to happen then, in either order. Pure.

`me to stretch at 5pm`, `5pm stretch`, `at 18:00: call Ann`, 半小时后喝水. A colon and a space end a time for sure: what follows it
may look like anything. Without one, whatever is left over must not look like a time.
"""

from __future__ import annotations

import re
from contextlib import suppress

from bubbot.times.nearest import add_nearest
from bubbot.times.phrases import TimeRun, normalize, read_run, read_words, strip_closing
from bubbot.times.reading import ReadingContext, TimedRequest, TimeReading
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import parse_rule_text

MAX_TRAILING_CHARS = 80
"""The characters at the end of a request in which a time may begin."""
_COLON = re.compile(r":\s+|：\s*")
_CRON_WORDS = re.compile(r"@\S+|(?:[\d*][\d*,/-]*\s+){2}(?:\S+\s+){2}\S+")
_ADDRESS = re.compile(
    r"(?:(?:please\s+)?(?:remind\s+)?(?:me|us)\b[,:]?\s*|(?:bitte\s+)?(?:(?:erinnere?|sag)\s+(?:mich|uns|mir)|mich)\b[,:]?\s*(?:bitte\b\s*)?|请?提醒一?下?我们?[，,：:]?\s*|(?:请|叫)?我(?=[^们的])|请?提醒(?!我))",
    re.IGNORECASE,
)
_CONNECTION = re.compile(
    r"(?:to|that|about|and|of)\b\s+|(?:please\s+)?remind\s+me\s+(?:to|that|about)\s+|(?:daran\b,?\s*)?(?:dass|zu)\b\s+|daran\b,?\s*|an\s+(?=(?:die|den|das|meine?n?|unsere?n?|deine?n?)\b)"
    r"|(?:[:，：、-]|,(?=\s))\s*|(?:请|记得)?(?:提醒|叫)(?:一下)?我(?:去|要)?",
    re.IGNORECASE,
)
_LINK_AT_END = re.compile(r"[\s,，:：、-]+$")
_GOES_ON = re.compile(
    r"\s*(?:(?:for|until|till|through|or|except|before|after|but|early|late|first thing|twice|thrice|once|sharp|ish|\w+ times)\b"
    r"|(?:to|and|than)\s+\d|[-–/~&+,]\s*\d|(?:之|以)?[前内]|左右|[到至或除多]|为止|起(?![床来飞草身立名重])|早晚"
    r"|(?:lang|oder|außer|ausser|bis|vor|nach|früh|spät|zweimal|dreimal|\w+ mal)\b|(?:und|als)\s+\d"
    r"|[一两二三四五六七八九十几\d]+次|(?:下班|放学|起床|睡觉?|[早午晚]?饭|开?会)(?:之|以)?[前后])"
)
"""What may limit or change the time before it."""
_HANGS = re.compile(
    r"(?:\b(?:and|or|to|until|till|before|after|around|about|between|from|by|since|past|for|every|each|not|except|next|last|in|of"
    r"|the|on|this|at|than|und|oder|bis|vor|nach|gegen|etwa|ungefähr|circa|ca|zwischen|von|seit|für|jede[nrs]?|alle|nicht|außer|ausser|nächste[nrs]?|letzte[nrs]?"
    r"|innerhalb|früh|spät|no|approximately|roughly|nearly|almost|within|early|late|twice|times)|[-–/+&~]|或|到|至|不|除了?|从|大概|大约|约|每|次)\s*$"
)
"""What may limit or change the time after it."""
_NUMBER_FIRST = re.compile(r"\s*\d")
_NUMBER_LAST = re.compile(r"(?:^|\s)\d{1,2}\s*$")
_STARTS = re.compile(r"(?<![\w+])(?=[\w+@])|(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[\w+@])")
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?)"
_AMOUNT = r"(?:\d+|an?|one|two|three|four|five|six|ten|half(?:\s+an?)?|a\s+few)"
_MONTH = r"(?:january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
_LOOKS_LIKE_TIME = re.compile(
    rf"\b(?:today|tonight|tomorrow|tmrw|tmr|tomm?orr?ow|yesterday|noon|midnight|midday|{_WEEKDAY}|weekends?|weekdays?"
    r"|daily|weekly|monthly|yearly|hourly|nightly|annually)\b"
    r"|\b\d{1,2}(?::\d{2}|\s*[ap]\.?m\b|\s*o'?clock\b)|\b\d{1,2}h\d{2}\b"
    r"|\bat\s+\d{1,2}\b(?!\s*%)|\b(?:by|until|till|from|before|after|around|about)\s+\d{1,4}\b(?!\s*(?:%|\w))"
    r"|\b(?:half|quarter)\s+(?:past|to)\b"
    rf"|\b(?:in|after|within)\s+{_AMOUNT}\s*{_UNIT}\b|\b{_AMOUNT}\s*{_UNIT}\s+(?:from\s+now|later|ago)\b|\bin\s+\d+\s*[mhd]\b"
    rf"|\b(?:every|each)\s+(?:other\s+|second\s+|third\s+)?(?:{_AMOUNT}\s*)?(?:{_UNIT}|{_WEEKDAY}|morning|afternoon|evening|night|mon|tue|wed|thu|fri|sat|sun)\b"
    rf"|\b(?:next|this|last)\s+(?:week|month|year|{_WEEKDAY}|morning|afternoon|evening|night|mon|tue|wed|thu|fri|sat|sun)\b"
    r"|\bin\s+the\s+(?:morning|afternoon|evening)\b|\bat\s+night\b|(?<!good )\b(?:morning|afternoon|evening)\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\b|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?\b|\bin\s+{_MONTH}\b"
    r"|\b(?:on\s+)?the\s+\d{1,2}(?:st|nd|rd|th)\b|\bon\s+(?:the\s+)?\d{1,2}(?:st|nd|rd|th)\b"
    r"|\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}/\d{1,2}(?:/\d{4})?\b|\b\d{1,2}\.\d{1,2}\.(?!\d{1,2}\.)"
    r"|(?:^|\bon\s+)(?:mon|tue|wed|thu|fri|sat|sun)\b|\b(?:mon|tue|wed|thu|fri|sat|sun)$"
    r"|[今明昨][天日晚早]|大?[前后]天|(?:周|星期|礼拜)[一二三四五六日天末\d]|[上下这本]个?(?:周|星期|礼拜|月)|每[天日周月年晚早个隔小半\d两]"
    r"|[零一二两三四五六七八九十\d]+点(?!\d)(?<!一点)|\d{1,2}点|[早晚]上[一二两三四五六七八九十\d]|凌晨|上午|中午|下午|傍晚"
    r"|(?:半|[一二两三四五六七八九十几\d]+)个?(?:小时|分钟|秒|天|周|星期|月|年|刻钟)(?:之?后|以后)"
    r"|\d{1,2}[号日](?![线楼门院房桌机店床馆])|[\d一二三四五六七八九十]+月[\d一二三四五六七八九十]+",
    re.ASCII,
)  # fmt: skip

_GERMAN_WEEKDAY = r"(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag)"
_GERMAN_UNIT = r"(?:sekunden?|minuten?|min|viertelstunden?|stunden?|std|tage?n?|wochen?|monate?n?|jahre?n?)"
_GERMAN_AMOUNT = r"(?:\d+|ein(?:e[rmns]?)?(?:\s+halbe[nr]?)?|zwei|drei|vier|fünf|sechs|acht|zehn|anderthalb|halbe)"
_LOOKS_LIKE_GERMAN_TIME = re.compile(
    rf"\b(?:heute|(?<!guten )morgens?|(?:über|ueber)morgen|(?:vor)?gestern|mitternacht|{_GERMAN_WEEKDAY}s?|werktags|wochentags"
    r"|(?:täg|taeg|wöchent|woechent|monat|jähr|jaehr|stünd|stuend)lich|vormittags|nachmittags|abends|nachts|mittags)\b"
    r"|\b\d{1,2}(?:[:.]\d{2})?\s*uhr\b|\bum\s+\d{1,2}\b(?!\s*(?:%|€|euro))|\bhalb\s+(?:\d|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zw)"
    r"|\bviertel\s+(?:vor|nach)\b"
    rf"|\b(?:in|nach|binnen)\s+{_GERMAN_AMOUNT}\s*{_GERMAN_UNIT}\b|\b(?:jede[nrs]?|alle)\s+(?:{_GERMAN_AMOUNT}\s*)?(?:zweite[nrs]?\s+)?(?:{_GERMAN_UNIT}|morgen|mittag|abend|nacht|wochenende|werktag)\b"
    rf"|\b(?:nächste|naechste|kommende|diese|letzte)[nrs]?\s+(?:woche|monat|jahr|wochenende)\b|\bam\s+(?:wochenende|morgen|vormittag|nachmittag|abend)\b"
    r"|\bam\s+\d{1,2}\.|\b\d{1,2}\.\s*(?:januar|februar|märz|maerz|april|mai|juni|juli|august|september|oktober|november|dezember)\b"
)  # fmt: skip


def _find_time(text: str) -> re.Match[str] | None:
    """Find what looks like a time in a normalized text."""
    return _LOOKS_LIKE_TIME.search(text) or _LOOKS_LIKE_GERMAN_TIME.search(text)


def split_request(source: str, context: ReadingContext) -> TimedRequest:
    """Find the time at the beginning or at the end of a request.

    Raises:
        TimeRefused: it is not sure; requests that are, and may have been meant, come with it.
    """
    try:
        return _split_request(source, context)
    except TimeRefused as error:
        raise add_nearest(error, source.strip(), lambda text: _split_request(text, context)) from None


def _split_request(source: str, context: ReadingContext) -> TimedRequest:
    typed = source.strip()
    address = _ADDRESS.match(typed)
    request = typed[address.end() :] if address else typed
    if not request.strip():
        raise TimeRefused("when_missing")
    if (found := _before_colon(request, context)) is not None:
        return found
    if cron := _CRON_WORDS.match(request):
        try:
            rule = parse_rule_text(" ".join(cron[0].split()))
        except TimeRefused:
            rule = None
        if rule is not None:
            return TimedRequest(TimeReading(rule), request[cron.end() :].strip())
    return _around(request, context)


def _before_colon(request: str, context: ReadingContext) -> TimedRequest | None:
    """Read a time that ends at a colon; return None if what stands before it is no time."""
    if (colon := _COLON.search(request)) is None:
        return None
    first, rest = request[: colon.start()], request[colon.end() :].strip()
    try:
        return TimedRequest(read_words(first, context), rest)
    except TimeRefused as error:
        text = normalize(first)
        is_time = error.code not in ("when_unknown", "when_rest") or first.strip()[:1] in "@*"
        if is_time or read_run(text, 0, context.zone, first).end == len(strip_closing(text)):
            raise
        return None


def _around(request: str, context: ReadingContext) -> TimedRequest:
    """Read a time without a colon, at the beginning or at the end."""
    text = normalize(request)
    body = strip_closing(text)
    leading = _leading(body, context, request)
    if leading is not None and leading.end >= len(body):
        return TimedRequest(leading.words.read(request.strip(), context), "")
    if leading is not None:
        return _with_leading(request, text, leading, context)
    start, trailing = _trailing(body, context, request)
    if trailing is None:
        found = _find_time(text)
        if found is not None:
            end = found.end()
            with suppress(TimeRefused):
                end = max(end, read_run(text, found.start(), context.zone, request).end)
            raise TimeRefused("when_middle", given=request, part=request[found.start() : end].strip())
        raise TimeRefused("when_unknown", given=request)
    rest = request[:start]
    has_number = _NUMBER_LAST.search(text[:start]) is not None
    clocks = trailing.words.clocks
    is_loose = bool(clocks) and clocks[0].is_loose and text.startswith(clocks[0].source, start)
    if is_loose or (has_number and not clocks and trailing.words.span is None):
        raise TimeRefused("when_number", time=request[start : len(body)].strip())
    if _HANGS.search(text[:start]):
        raise TimeRefused("when_middle", given=request, part=request[start : len(body)].strip())
    _check_rest(rest, request[start : len(body)])
    reading = trailing.words.read(request[start : len(body)].strip(), context)
    return TimedRequest(reading, _without_connection(_LINK_AT_END.sub("", rest)))


def _with_leading(request: str, text: str, leading: TimeRun, context: ReadingContext) -> TimedRequest:
    time, rest = request[: leading.end].strip(), request[leading.end :]
    clocks = leading.words.clocks
    is_open = clocks[-1].is_bare if clocks else leading.words.span is None
    if (clocks and clocks[-1].is_loose) or (is_open and _NUMBER_FIRST.match(text, leading.end)):
        raise TimeRefused("when_number", time=time)
    if goes_on := _GOES_ON.match(text, leading.end):
        raise TimeRefused("when_middle", given=request, part=f"{time}{request[leading.end : goes_on.end()]}")
    _check_rest(rest, time)
    return TimedRequest(leading.words.read(time, context), _without_connection(rest))


def _leading(text: str, context: ReadingContext, typed: str) -> TimeRun | None:
    """Return the time at the beginning, which ends with a word; None if there is none."""
    run = read_run(text, 0, context.zone, typed)
    following = text[run.end : run.end + 1]
    cut = run.end and text[run.end - 1].isascii() and text[run.end - 1].isalnum() and following.isascii()
    if not run.words.is_time or (cut and following.isalnum()):
        return None
    return run


def _trailing(text: str, context: ReadingContext, typed: str) -> tuple[int, TimeRun | None]:
    """Return the longest time at the end and where it begins; None if there is none. Raise `TimeRefused`."""
    refused: TimeRefused | None = None
    for match in _STARTS.finditer(text, max(0, len(text) - MAX_TRAILING_CHARS)):
        try:
            run = read_run(text, match.start(), context.zone, typed)
        except TimeRefused as error:
            refused = refused or error
            continue
        if run.end >= len(text) and run.words.is_time:
            return match.start(), run
    if refused is not None:
        raise refused
    return len(text), None


def _check_rest(rest: str, time: str) -> None:
    """Raise `TimeRefused` if the text that is left looks like a time, too."""
    if found := _find_time(normalize(rest).strip(" ,，.。!！?？")):
        raise TimeRefused("when_two_times", first=time.strip(), second=found[0].strip())


def _without_connection(text: str) -> str:
    """Return the text without the words that connect it with its time."""
    text = text.strip()
    while (match := _CONNECTION.match(text)) is not None and match.end() < len(text):
        text = text[match.end() :].strip()
    return text
