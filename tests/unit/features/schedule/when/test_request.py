"""Requests as people type them: where the time ends, and where it is not sure."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bubbot.errors import ScheduleRefused
from bubbot.features.schedule.when.reading import ReadingContext
from bubbot.features.schedule.when.request import split_request

CONTEXT = ReadingContext(datetime(2026, 11, 23, 13, 30, tzinfo=UTC), ZoneInfo("Europe/Berlin"))  # a Monday


@pytest.mark.parametrize(
    ("typed", "text", "rule"),
    [
        ("me to stretch at 5pm", "stretch", "at 2026-11-23 17:00:00"),
        ("5pm stretch", "stretch", "at 2026-11-23 17:00:00"),
        ("at 5pm, call Ann", "call Ann", "at 2026-11-23 17:00:00"),
        ("me at 5pm to call Ann", "call Ann", "at 2026-11-23 17:00:00"),
        ("remind me to sleep tonight at 11", "sleep", "at 2026-11-23 23:00:00"),
        ("call Ann at 5pm please", "call Ann", "at 2026-11-23 17:00:00"),
        ("call Ann tomorrow 9", "call Ann", "at 2026-11-24 09:00:00"),
        ("me in 20 minutes that the tea is ready", "the tea is ready", "at 2026-11-23T13:50:00Z"),
        ("in half an hour check the oven", "check the oven", "at 2026-11-23T14:00:00Z"),
        ("me every other monday to water the plants", "water the plants", "every 14d from 2026-11-30T08:00:00Z"),
        ("what is new every weekday at 8am?", "what is new", "0 8 * * 1-5"),
        ("every weekday at 8am what is new?", "what is new?", "0 8 * * 1-5"),
        ("pay rent on the 1st of every month", "pay rent", "0 9 1 * *"),
        ("say good morning every day at 8am", "say good morning", "0 8 * * *"),
        ("read chapter 5 at 6pm", "read chapter 5", "at 2026-11-23 18:00:00"),
        ("buy 2 eggs tomorrow", "buy 2 eggs", "at 2026-11-24 09:00:00"),
        ("5pm 10 pushups", "10 pushups", "at 2026-11-23 17:00:00"),
        ("at 18:00: call Ann", "call Ann", "at 2026-11-23 18:00:00"),
        ("5pm: call mom on friday", "call mom on friday", "at 2026-11-23 17:00:00"),
        ("me to buy: milk at 5pm", "buy: milk", "at 2026-11-23 17:00:00"),
        ("@daily: ,memory.show", ",memory.show", "@daily"),
        ("every day at 8am ,memory.show", ",memory.show", "0 8 * * *"),
        ("0 9 * * 1-5 stand-up", "stand-up", "0 9 * * 1-5"),
        ("0 9 * * 1-5: what is new?", "what is new?", "0 9 * * 1-5"),
        ("at 5pm", "", "at 2026-11-23 17:00:00"),
        ("半小时后 喝水", "喝水", "at 2026-11-23T14:00:00Z"),
        ("半小时后喝水", "喝水", "at 2026-11-23T14:00:00Z"),
        ("喝水 半小时后", "喝水", "at 2026-11-23T14:00:00Z"),
        ("喝水10分钟后", "喝水", "at 2026-11-23T13:40:00Z"),
        ("提醒我明天早上九点开会", "开会", "at 2026-11-24 09:00:00"),
        ("明天早上九点提醒我开会", "开会", "at 2026-11-24 09:00:00"),
        ("每天早上8点吃药", "吃药", "0 8 * * *"),
        ("每周五下午三点：写周报", "写周报", "0 15 * * 5"),
        ("每月1号交房租", "交房租", "0 9 1 * *"),
        ("叫我20分钟后起床", "起床", "at 2026-11-23T13:50:00Z"),
        ("九点十个人开会", "十个人开会", "at 2026-11-23 21:00:00"),
        ("晚上八点半价商品", "半价商品", "at 2026-11-23 20:00:00"),
        ("坐3号线 明天上午九点", "坐3号线", "at 2026-11-24 09:00:00"),
        ("买三明治明天", "买三明治", "at 2026-11-24 09:00:00"),
        ("in 2 Stunden: Wäsche", "Wäsche", "at 2026-11-23T15:30:00Z"),
        ("mich in 2 Stunden an die Wäsche", "die Wäsche", "at 2026-11-23T15:30:00Z"),
        ("Erinnere mich bitte morgen um 9, Anna anzurufen", "Anna anzurufen", "at 2026-11-24 09:00:00"),
        ("Müll rausbringen jeden Sonntag um 18 Uhr", "Müll rausbringen", "0 18 * * 0"),
        ("um 12 Uhr Mittag essen", "Mittag essen", "at 2026-11-24 12:00:00"),
        ("daran zu trinken in 10 Minuten", "trinken", "at 2026-11-23T13:40:00Z"),
        # What is German only by its looks.
        ("so do it at 5pm", "so do it", "at 2026-11-23 17:00:00"),
        ("at 9am mi casa", "mi casa", "at 2026-11-24 09:00:00"),
        ("tell them what I am at 5pm", "tell them what I am", "at 2026-11-23 17:00:00"),
        ("in 10 minutes call Alle", "call Alle", "at 2026-11-23T13:40:00Z"),
        ("die cast in 5 minutes", "die cast", "at 2026-11-23T13:35:00Z"),
    ],
)
def test_the_time_may_stand_before_or_after_the_text(typed: str, text: str, rule: str) -> None:
    request = split_request(typed, CONTEXT)
    assert (request.text, request.reading.when.text) == (text, rule)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("me tomorrow to call Ann at 5pm", "when_two_times"),
        ("5pm call mom on friday", "when_two_times"),
        ("watch sunday football at 9pm", "when_two_times"),
        ("daily standup at 9", "when_two_times"),
        ("weekly report friday 5pm", "when_two_times"),
        ("friday take pills morning", "when_two_times"),
        ("meet at 5 friends at 6", "when_two_times"),
        ("pay taxes in march at 9", "when_two_times"),
        ("tomorrow 9 call Ann", "when_number"),
        ("tomorrow 2 eggs", "when_number"),
        ("tomorrow two eggs", "when_number"),
        ("at 5 10 eggs", "when_number"),
        ("buy 2 eggs 9 tomorrow", "when_number"),
        ("明天9点 3个人", "when_number"),
        ("to call Ann at 5pm about the car", "when_middle"),
        ("提醒我和小王明天下午三点开会", "when_middle"),
        ("call before 5pm", "when_middle"),
        ("call between 9 and 10am", "when_middle"),
        ("around 5pm call", "when_middle"),
        ("at 5 or 6 call", "when_middle"),
        ("at 9-10 call", "when_middle"),
        ("every 15 minutes for an hour stretch", "when_middle"),
        ("not tomorrow", "when_middle"),
        ("五点前交作业", "when_middle"),
        ("五点左右喝水", "when_middle"),
        ("5点到6点开会", "when_middle"),
        ("下午三点多喝一点水", "when_middle"),
        ("每周三次跑步", "when_middle"),
        ("每天早晚刷牙", "when_middle"),
        ("明天下班后买菜", "when_middle"),
        ("周三之前交报告", "when_middle"),
        ("8:30-9:00 开会", "when_middle"),
        ("take pills twice every day", "when_middle"),
        ("every day twice take pills", "when_middle"),
        ("tomorrow early call Bob", "when_middle"),
        ("every weekday except friday at 9am run", "when_middle"),
        ("20 min yoga", "when_unknown"),
        ("take pills twice a day", "when_unknown"),
        ("at home call Bob", "when_unknown"),
        ("stretch", "when_unknown"),
        ("stretch soon", "when_vague"),
        ("过一会儿喝水", "when_vague"),
        ("call Ann yesterday", "when_over"),
        ("昨天喝水", "when_over"),
        ("in 0 minutes tea", "when_zero"),
        ("pay rent on 31 february", "date_unknown"),
        ("2月31日交房租", "date_unknown"),
        ("at 25:00: call", "clock_range"),
        ("25点开会", "clock_range"),
        ("at 9 and 17 take pills", "when_two_clocks"),
        ("Anna morgen um 9 Uhr anrufen", "when_middle"),
        ("morgen um 9 Uhr bis 11 Uhr lernen", "when_middle"),
        ("morgen 3 Eier kaufen", "when_number"),
        ("am 3. Mai und am 4. Mai gießen", "when_two_times"),
        ("gestern trinken", "when_over"),
        ("nachher trinken", "when_vague"),
    ],
)
def test_what_is_not_sure_is_asked(typed: str, sentence: str) -> None:
    with pytest.raises(ScheduleRefused) as raised:
        split_request(typed, CONTEXT)
    assert raised.value.sentence == sentence
    assert str(raised.value)
