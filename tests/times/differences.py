"""Phrases of the corpora that bubbot reads in another way on purpose, or refuses, by the reason."""

from __future__ import annotations

_REASONS: dict[str, tuple[str, ...]] = {
    "An approximate time of day is no instant: the exact one is offered.": (
        "around next tuesday", "3ish pm", "3pm approximately", "at about 3pm", "approximately 1030", "around 1030",
        "tomorrow at 150ish",
    ),
    "A deadline is not when to remind: its end would be too late; `in` is offered.": (
        "within 10 day", "within 1 hour", "within half an hour", "within two weeks", "within a month", "within a few months",
        "within one year", "within around 3 hours", "within 12 month", "within 3 days", "tomorrow before 4pm",
        "tomorrow after 4pm", "五日内", "5日之内", "十日内", "一个钟之内", "半小时之内", "两个礼拜内", "1个月之内", "几个月之内", "一年内",
        "1年之内", "五日內", "5日之內", "十日內", "一個鐘之內", "半小時之內", "兩個禮拜內", "1個月之內", "幾個月之內", "一年內", "1年之內",
    ),
    "A mere length, or one with `for`, is rather how long something takes: `in` and `every` are offered.": (
        "for 5 minutes", "for 5 minutes 30 seconds", "for 5 minutes, 30 seconds", "for 1 hour, 5 minutes, 30 seconds",
        "for 5 minutes and 30 seconds", "for 1 hour, 5 minutes, and 30 seconds", "2 months", "1 hour", "1 month",
        "15 minute out", "a min out", "the min after",
    ),
    "`for` before a time of day is rather what something is for: `book a table for 8pm`.": (
        "for a quarter past 3pm", "for a quarter past noon", "for a quarter past 1pm", "for a quarter past 2pm",
        "for a quarter past 8pm", "on saturday for 9am",
    ),
    "A stretch of time is no instant.": (
        "upcoming two days", "upcoming two day", "upcoming 2 days", "upcoming 2 day", "two upcoming days", "two upcoming day",
        "2 upcoming days", "2 upcoming day", "next 2 weeks", "next 2 days", "next two years", "next 2 weeks 3 days",
        "next hour", "next decade", "july 2017", "04/2016", "march",
    ),
    "Few and several are no number.": (
        "in a few minutes", "in a few hours", "in few hours", "in several hours", "in a few year",
    ),
    "A number without a unit, or with a sign for one, is no length.": ('in 1"', "in 1'", "in 15'", "in 15"),
    "A date on another day of the week than the one that was said is a mistake, and not one of another year.": (
        "fri, jul 18", "jul 18, fri", "tues 9th aug, 2015", "tuesday, 10 january", "tue, 10 january", "tuesday, january 10",
    ),
    "A date with an open order of day and month is two dates: both are offered.": ("8/10/2012",),
    "A number after a date is a year or an hour: both are offered.": ("14th april 15",),
    "Two numbers with a dash are a range.": ("2-15", "2 - 15"),
    "A day has two midnights: both are offered.": ("december 13, 2014 at midnight",),
    "A date that has just passed is rather a mistake than one of next year.": ("5/31",),
    "The abbreviation stands for several zones: all are offered.": (
        "thursday 9 am bst", "thursday 9 am (bst)", "thursday at 9:30pm ist",
    ),
    "An abbreviation names the clock of its people on that day; by the letter is offered.": ("10:30 pst today",),
    "The part of the day does not have that hour, or today's has passed.": (
        "this evening at 2", "tonight at 2", "this morning at 12", "this afternoon at 11", "this afternoon at 12",
        "tonight @ 3:20", "this morning at 3",
    ),
    "Holidays are not known.": (
        "one year after christmas", "a year from christmas", "three days after easter", "third tuesday after christmas 2014",
    ),
    "A schedule goes up to ten years ahead.": (
        "in 100 decades", "in 1 decade 2 months", "in 1 decade 12 years", "in 1 decade +2 years", "in 1000 years",
        "in 5000 months", "+1 decade -2 years",
    ),
    "`in 3 years` is this day then, and not the first of its month.": ("at 7 in 3 years", "in 4 years at 5pm"),
    "The same day of the week today or in a week, and `next` before one: both are offered.": (
        "tuesday", "next wednesday", "next saturday", "2 days after next friday", "next week", "星期二", "礼拜二", "周二", "禮拜二",
        "週二", "dienstag",
    ),
    "In Chinese, 下周 is the week after this one and 这周 is this one, of which Monday has passed.": (
        "下周三", "下礼拜三", "下週三", "下禮拜三", "下星期三", "下星期天", "这周一", "这礼拜一", "這週一", "這禮拜一", "今個星期一",
        "今個礼拜一", "今個禮拜一",
    ),
    "Before dawn is the one part of the day whose hour nobody can guess.": ("后天凌晨", "後天凌晨"),
    "In German, the day has 24 hours with the word `Uhr`.": ("3 uhr",),
}  # fmt: skip
DIFFERENCES = {phrase: reason for reason, phrases in _REASONS.items() for phrase in phrases}
