"""What people are told of how the bot is, in English."""

from __future__ import annotations

from bubbot.texts.language import Sentence

STATUS: dict[str, Sentence] = {
    "idle": "I am listening. {model} This conversation has {entries} entries on its tape.",
    "channel_ready": "{name}: receiving; last sign of life {heard}.",
    "channel_ready_but": "{name}: receiving, but {note}; last sign of life {heard}.",
    "channel_down": "{name}: not receiving ({note}); last sign of life {heard}.",
    "channel_refused": "{name}: refused, and not tried again ({note}).",
    "channel_ended": "{name}: ended.",
    "channel_begins": "{name}: about to begin.",
    "never": "never",
    "answering": {
        "one": "I am answering ({doing}); {count} message waits behind that. ,stop ends the answer.",
        "other": "I am answering ({doing}); {count} messages wait behind that. ,stop ends the answer.",
    },
    "answering_alone": "I am answering ({doing}); nothing waits behind that. ,stop ends the answer.",
    "about_to_answer": {
        "one": "I am about to answer {count} message. ,stop keeps me from it.",
        "other": "I am about to answer {count} messages. ,stop keeps me from it.",
    },
    "doing_asking": "asking the model",
    "doing_writing": "the model is writing",
    "doing_tool": "running {tool}",
    "doing_since": "{doing}, {length} so far",
    "st_bot": "bot",
    "st_bot_is": "bubbot {version}, process {pid}, since {since}",
    "st_home": "home",
    "st_quarantine": "quarantine",
    "st_quarantine_is": (
        "restored from {name}, made {at}: no channel runs and no job fires until `bubbot restore --release`, and then a "
        "new start of `bubbot run`"
    ),
    "st_channels": "channels",
    "st_work": "work",
    "st_work_is": "turns under way: {running}; messages waiting: {waiting}; conversations in memory: {sessions}",
    "st_unanswered": "messages that nobody has answered yet: {waiting}",
    "st_owed": "undelivered",
    "st_owed_is": {
        "one": "{channel}: {count} message, from {oldest}",
        "other": "{channel}: {count} messages, the oldest from {oldest}",
    },
    "st_none": "none",
    "st_next": "next firings",
    "st_next_is": "{job} in {session}: {at}",
    "st_budget": "budget",
    "st_budget_is": "{whose}, {period}: {amounts}",
    "st_limited": "{used} of {most}",
    "st_unlimited": "{used}, no limit",
    "st_and": "; ",
    "st_today": "today",
    "st_month": "this month",
    "st_database": "database",
    "st_database_is": "{entries} entries; {size}, and {wal} in its log; {free} free on the disk",
    "st_no_database": "there is none yet",
    "st_backup": "newest backup",
    "st_backup_is": "{name}, {at}",
    "st_log": "log",
    "st_log_is": "errors: {errors}; warnings: {warnings}",
    "st_log_line": "{at} {level} {action}: {message}",
    "st_ago": "{moment} ({length} ago)",
    "st_ahead": "{moment} (in {length})",
    "st_line": "{label}: {text}",
    "st_unknown": "I could not look at the rest: {reason}.",
}
