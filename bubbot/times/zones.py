"""Time zones as people say them with a time: `9am EST`, `18:00 UTC+2`, `8pm Berlin time`, 北京时间九点, `18 Uhr MEZ`. Pure.

An abbreviation names the clock that people in its zone have on that day: 9am EST in July is 9:00 in New York, where it is
EDT then; the reading by the letter is offered. One that stands for several zones is refused with their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta, timezone, tzinfo
from functools import cache
from types import MappingProxyType
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import find_zone


class SpokenZone(Struct, frozen=True):
    """A zone that was said with a time.

    Attributes:
        zone: the zone; None: that of the chat, as in `local time`.
        literal: the offset that the abbreviation has by the letter; None if it can mean nothing else.
    """

    zone: tzinfo | None
    literal: tzinfo | None = None

    @property
    def name(self) -> str:
        """The name by which a job keeps the zone; empty if it has none: it is a mere offset."""
        return self.zone.key if isinstance(self.zone, ZoneInfo) else ""


MAX_OFFSET_HOURS = 14
ABBREVIATIONS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "est": ("America/New_York", -5), "edt": ("America/New_York", -4), "cdt": ("America/Chicago", -5),
        "mst": ("America/Denver", -7), "mdt": ("America/Denver", -6), "pst": ("America/Los_Angeles", -8),
        "pdt": ("America/Los_Angeles", -7), "akst": ("America/Anchorage", -9), "akdt": ("America/Anchorage", -8),
        "hst": ("Pacific/Honolulu", -10), "wet": ("Europe/Lisbon", 0), "west": ("Europe/Lisbon", 1),
        "cet": ("Europe/Berlin", 1), "cest": ("Europe/Berlin", 2), "mez": ("Europe/Berlin", 1), "mesz": ("Europe/Berlin", 2),
        "eet": ("Europe/Helsinki", 2), "eest": ("Europe/Helsinki", 3), "msk": ("Europe/Moscow", 3),
        "jst": ("Asia/Tokyo", 9), "kst": ("Asia/Seoul", 9), "hkt": ("Asia/Hong_Kong", 8), "pkt": ("Asia/Karachi", 5),
        "wib": ("Asia/Jakarta", 7), "sast": ("Africa/Johannesburg", 2), "awst": ("Australia/Perth", 8),
        "acst": ("Australia/Adelaide", 9.5), "acdt": ("Australia/Adelaide", 10.5), "aest": ("Australia/Sydney", 10),
        "aedt": ("Australia/Sydney", 11), "adt": ("America/Halifax", -3), "nst": ("America/St_Johns", -3.5),
        "ndt": ("America/St_Johns", -2.5), "brt": ("America/Sao_Paulo", -3), "clt": ("America/Santiago", -4),
        "trt": ("Europe/Istanbul", 3), "npt": ("Asia/Kathmandu", 5.75), "pht": ("Asia/Manila", 8), "nzst": ("Pacific/Auckland", 12), "nzdt": ("Pacific/Auckland", 13),
    }
)  # fmt: skip
"""Abbreviations with one clear meaning, and their hours from UTC by the letter."""
CAPITALS: Mapping[str, str] = MappingProxyType(
    {
        "ET": "America/New_York", "CT": "America/Chicago", "MT": "America/Denver", "PT": "America/Los_Angeles",
        "SGT": "Asia/Singapore",
    }
)  # fmt: skip
"""Those that are also words or initials: only capitals are a zone."""
AMBIGUOUS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ist": ("Asia/Kolkata", "Asia/Jerusalem", "Europe/Dublin"), "cst": ("America/Chicago", "Asia/Shanghai", "America/Havana"),
        "bst": ("Europe/London", "Asia/Dhaka"), "ast": ("America/Halifax", "Asia/Riyadh"),
        "gst": ("Asia/Dubai", "Atlantic/South_Georgia"), "sst": ("Pacific/Pago_Pago", "Asia/Singapore"),
        "amt": ("America/Manaus", "Asia/Yerevan"),
    }
)  # fmt: skip
ZONE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "EAT": "Africa/Nairobi", "CAT": "Africa/Maputo", "WAT": "Africa/Lagos", "MET": "Europe/Berlin", "GET": "Asia/Tbilisi",
        "ART": "America/Argentina/Buenos_Aires", "PET": "America/Lima", "ICT": "Asia/Bangkok",
    }
)  # fmt: skip
"""Those that are words in capitals, too: nobody can tell."""
REGIONS: Mapping[str, str] = MappingProxyType(
    {
        "eastern": "America/New_York", "central": "America/Chicago", "mountain": "America/Denver",
        "pacific": "America/Los_Angeles", "greenwich mean": "UTC", "universal": "UTC", "coordinated universal": "UTC",
        "utc": "UTC", "gmt": "UTC", "central european": "Europe/Berlin", "eastern european": "Europe/Helsinki",
        "western european": "Europe/Lisbon", "british": "Europe/London", "uk": "Europe/London", "india": "Asia/Kolkata",
        "indian": "Asia/Kolkata", "china": "Asia/Shanghai", "beijing": "Asia/Shanghai", "japan": "Asia/Tokyo",
        "korea": "Asia/Seoul", "german": "Europe/Berlin", "frankfurt": "Europe/Berlin", "munich": "Europe/Berlin",
        "hamburg": "Europe/Berlin", "san francisco": "America/Los_Angeles", "seattle": "America/Los_Angeles",
        "california": "America/Los_Angeles", "boston": "America/New_York", "washington": "America/New_York",
        "miami": "America/New_York", "atlanta": "America/New_York", "dallas": "America/Chicago", "houston": "America/Chicago",
        "texas": "America/Chicago", "mumbai": "Asia/Kolkata", "delhi": "Asia/Kolkata", "bangalore": "Asia/Kolkata",
        "milan": "Europe/Rome", "barcelona": "Europe/Madrid", "geneva": "Europe/Zurich", "kyiv": "Europe/Kiev",
        "deutsch": "Europe/Berlin", "mitteleuropäisch": "Europe/Berlin", "wien": "Europe/Vienna", "zürch": "Europe/Zurich",
        "zürich": "Europe/Zurich", "moskau": "Europe/Moscow", "peking": "Asia/Shanghai", "tokiot": "Asia/Tokyo",
    }
)  # fmt: skip
CHINESE_REGIONS: Mapping[str, str] = MappingProxyType(
    {
        "北京": "Asia/Shanghai", "中国": "Asia/Shanghai", "上海": "Asia/Shanghai", "香港": "Asia/Hong_Kong", "台北": "Asia/Taipei",
        "台湾": "Asia/Taipei", "新加坡": "Asia/Singapore", "东京": "Asia/Tokyo", "日本": "Asia/Tokyo", "首尔": "Asia/Seoul",
        "韩国": "Asia/Seoul", "印度": "Asia/Kolkata", "莫斯科": "Europe/Moscow", "柏林": "Europe/Berlin", "德国": "Europe/Berlin",
        "巴黎": "Europe/Paris", "伦敦": "Europe/London", "英国": "Europe/London", "欧洲中部": "Europe/Berlin", "中欧": "Europe/Berlin",
        "美东": "America/New_York", "美国东部": "America/New_York", "纽约": "America/New_York", "美国中部": "America/Chicago",
        "美西": "America/Los_Angeles", "美国西部": "America/Los_Angeles", "太平洋": "America/Los_Angeles",
        "洛杉矶": "America/Los_Angeles", "旧金山": "America/Los_Angeles", "悉尼": "Australia/Sydney", "格林尼治": "UTC",
        "格林威治": "UTC", "世界": "UTC", "协调世界": "UTC",
    }
)  # fmt: skip
_OFFSET = r"[+−-]\d{1,2}(?::?[0-5]\d)?(?![\w:])"
_ABBREVIATION = re.compile(
    rf"\(?(?:(?P<utc>utc|gmt)\s?(?P<offset>{_OFFSET}(?:\s\([a-z]{{2,5}}\))?)?|(?P<name>[a-z]{{2,4}}))(?![\w/])(?P<time>\s+time\b)?\)?",
    re.ASCII,
)
_BARE_OFFSET = re.compile(r"(?P<offset>\+\d{2}:?[0-5]\d|(?<=\s)[−-]\d{4})(?![\w:])", re.ASCII)
"""With a minus and a colon it is rather the end of an interval."""
_IANA = re.compile(r"(?:in\s+)?\(?(?P<name>[a-z]{2,}/[a-z_+\d-]+(?:/[a-z_]+)?)(?![\w/])\)?", re.ASCII)
_CITY = re.compile(
    r"(?:in\s+)?\(?(?:(?P<local>(?:local|my|our)\s+time|ortszeit)|(?:the\s+)?(?P<name>\w+(?:[ ]\w+){0,2}?)(?:\s+(?:standard|daylight|summer))?\s+time"
    r"|(?:(?:nach|in)\s+)?(?P<german>\w+(?:[ -]\w+)?)er\s+zeit"
    r"|(?P<region>eastern|central|mountain|pacific)(?:\s+(?:standard|daylight))?(?=\)?\s*(?:$|[:,;.!?]|today\b|tomorrow\b))"
    r"|(?P<unsure>eastern|pacific)(?=\s))(?!\w)\)?"
)
_CHINESE_ZONE = re.compile(
    rf"[(（]?(?:(?P<name>{'|'.join(sorted(CHINESE_REGIONS, key=len, reverse=True))})(?:标准)?(?:时间|时)|(?P<local>当地|本地)时间)[)）]?的?"
)


def read_zone(text: str, typed: str, position: int, own: tzinfo, *, has_half: bool) -> tuple[SpokenZone, int] | None:
    """Read the zone that stands after a time; return where it ends, too. Raise `TimeRefused` if it is unclear.

    Args:
        text: `typed`, normalized.
        typed: as people typed it.
        position: where the time ended.
        own: the zone of the chat, which decides what an abbreviation with several meanings is.
        has_half: `am` or `pm` stands before it.
    """
    if match := _IANA.match(text, position):
        zone = _named(typed[match.start("name") : match.end("name")])
        return (SpokenZone(zone), match.end()) if zone is not None else None
    if match := _BARE_OFFSET.match(text, position):
        return SpokenZone(_offset(match["offset"], match[0])), match.end()
    if (match := _CITY.match(text, position)) and (found := _city(match)) is not None:
        return found, match.end()
    match = _ABBREVIATION.match(text, position)
    if match is None:
        return None
    if match["utc"]:
        zone = _offset(match["offset"], match[0]) if match["offset"] else find_zone("UTC")
        return SpokenZone(zone), match.end()
    given, is_sure = typed[match.start("name") : match.end("name")], has_half or bool(match["time"])
    abbreviated = _abbreviation(match["name"], given, own, is_sure=is_sure)
    return None if abbreviated is None else (abbreviated, match.end())


def read_chinese_zone(text: str, position: int) -> tuple[SpokenZone, int] | None:
    """Read the zone that stands before or after a time in Chinese; return where it ends, too."""
    match = _CHINESE_ZONE.match(text, position)
    if match is None:
        return None
    return SpokenZone(find_zone(CHINESE_REGIONS[match["name"]]) if match["name"] else None), match.end()


def _abbreviation(name: str, typed: str, own: tzinfo, *, is_sure: bool) -> SpokenZone | None:
    is_capital = typed.isupper()
    if name in ABBREVIATIONS and (is_capital or name not in ("wet", "west")):
        zone, hours = ABBREVIATIONS[name]
        return SpokenZone(find_zone(zone), timezone(timedelta(hours=hours)))
    if name in AMBIGUOUS and (is_capital or is_sure or name != "ist"):  # `ist` is German for `is`
        if str(own) in AMBIGUOUS[name]:
            return SpokenZone(own)
        raise TimeRefused("zone_ambiguous", given=typed, zones=", ".join(AMBIGUOUS[name]))
    upper = name.upper()
    if upper in CAPITALS and is_capital:
        return SpokenZone(find_zone(CAPITALS[upper]))
    if (upper in ZONE_WORDS and is_capital) or (upper in CAPITALS and is_sure):
        raise TimeRefused("zone_word", given=typed, zones=(dict(ZONE_WORDS) | dict(CAPITALS))[upper])
    return None


def _city(match: re.Match[str]) -> SpokenZone | None:
    if match["local"]:
        return SpokenZone(None)
    if match["unsure"]:
        raise TimeRefused("zone_word", given=match["unsure"], zones=REGIONS[match["unsure"]])
    name = match["name"] or match["german"] or match["region"]
    zone = REGIONS.get(name) or _cities().get(name.replace(" ", "_"))
    return SpokenZone(find_zone(zone)) if zone is not None else None


def _named(typed: str) -> tzinfo | None:
    """Return the zone of an IANA name in any case; None if it is other text. Raise `TimeRefused`."""
    region = typed.partition("/")[0].lower()
    if region not in _iana_regions():
        return None
    try:
        return find_zone(_iana_names().get(typed.lower(), typed))
    except TimeRefused:
        raise TimeRefused("zone_unknown", name=typed) from None


def _offset(text: str, source: str) -> tzinfo:
    digits = re.sub(r"\D", "", text.partition("(")[0])
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    if hours > MAX_OFFSET_HOURS:
        raise TimeRefused("zone_unknown", name=source)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if text[0] == "+" else -offset)


@cache
def _iana_names() -> Mapping[str, str]:
    """Return the IANA names by their form in lower case."""
    return MappingProxyType({name.lower(): name for name in available_timezones()})


@cache
def _iana_regions() -> frozenset[str]:
    return frozenset(name.partition("/")[0] for name in _iana_names() if "/" in name)


@cache
def _cities() -> Mapping[str, str]:
    """Return the IANA names by their cities, such as `new_york`."""
    names = sorted(name for name in _iana_names().values() if "/" in name and not name.startswith(("Etc/", "US/")))
    return MappingProxyType({name.rpartition("/")[2].lower(): name for name in names})
