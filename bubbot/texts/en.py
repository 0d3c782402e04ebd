"""The bot's own sentences in English."""

from __future__ import annotations

from types import MappingProxyType

from bubbot.texts.en_schedule import EN_SCHEDULE
from bubbot.texts.en_status import EN_STATUS
from bubbot.texts.language import Language, Sentence


def _form(count: int) -> str:
    return "one" if count == 1 else "other"


_TURNS: dict[str, Sentence] = {
    "no_key": "{name} needs a key, and neither [model] api_key nor {variables} is set here.",
    "no_key_elsewhere": (
        "{name} needs a key, and {variables} is not set here ([model] api_key is only for the provider in [model] name)."
    ),
    "no_model": (
        "No model is configured, so I cannot answer in my own words. Every command works (,help lists them). "
        '`bubbot init` gives me a model (or [model] name = "provider/model" in config.toml), '
        "and so does installing the demonstration model."
    ),
    "no_model_key": (
        "The key of the model is missing: {file} cannot be read, so I cannot answer in my own words. Every command works "
        "(,help lists them). `bubbot init` asks for the key."
    ),
    "stopped": "Stopped.",
    "gave_up": (
        "I was interrupted twice while answering this, so I stopped trying. "
        "What happened until then is on the tape; send it again, or ,retry, if you want me to."
    ),
    "failed": "I could not answer this: {reason}.",
    "defect": "something went wrong inside me ({name})",
    "traced": "{sentence} (trace {trace})",
    "taking_up": {
        "one": "Answering what was left open: {count} message.",
        "other": "Answering what was left open: {count} messages.",
    },
    "quarantined": (
        "This home was restored from {name} ({at} UTC) and is in quarantine: nobody outside is heard or written to until "
        "`bubbot restore --release`."
    ),
    "too_old": {
        "one": (
            "I was away. A message ({when} UTC) came too long ago to be answered now; "
            "send it again if it still matters."
        ),
        "other": (
            "I was away. {count} messages ({when} UTC) came too long ago to be answered now; "
            "send it again if it still matters."
        ),
    },
    "from_to": "{first} to {last}",
}

_GATE: dict[str, Sentence] = {
    "dropped": "I am still answering; what you wrote meanwhile was not taken up. ,stop ends the answer.",
    "nothing_to_stop": "Nothing is running here.",
    "attachment_failed": "I could not read {name}: {reason}.",
    "pairing": (
        "I do not know you yet. Your code is {code}, good for one hour: whoever runs me can let you in with\n"
        "bubbot access approve {code}"
    ),
    "unparsed": "I could not read that: {reason}. It was kept as it came.",
}

_BUDGET: dict[str, Sentence] = {
    "budget_spent_day": (
        "The budget of {whose} for today is used up, so I did not ask the model. "
        "It begins anew on {renews}; ,retry has your message answered then."
    ),
    "budget_spent_month": (
        "The budget of {whose} for this month is used up, so I did not ask the model. "
        "It begins anew on {renews}; ,retry has your message answered then."
    ),
    "skipped_minute": (
        "You sent more than {number} messages within a minute. I skip the rest; please send it again in a minute."
    ),
    "skipped_hour": (
        "You sent more than {number} messages within an hour. I skip the rest; please send it again later."
    ),
    "skipped_bytes": "You sent more than {size} within 24 hours. I take no more of it until some time has passed.",
    "too_many_minute": {
        "one": (
            "That is more than {count} message within a minute, so I did not ask the model. "
            "From {renews} on there is room again; ,retry has your message answered then."
        ),
        "other": (
            "That is more than {count} messages within a minute, so I did not ask the model. "
            "From {renews} on there is room again; ,retry has your message answered then."
        ),
    },
    "too_many_hour": {
        "one": (
            "That is more than {count} message within an hour, so I did not ask the model. "
            "From {renews} on there is room again; ,retry has your message answered then."
        ),
        "other": (
            "That is more than {count} messages within an hour, so I did not ask the model. "
            "From {renews} on there is room again; ,retry has your message answered then."
        ),
    },
    "over_rate": {
        "one": "You write faster than I may answer. Your message waits for {count} second.",
        "other": "You write faster than I may answer. Your message waits for {count} seconds.",
    },
    "waiting_for_place": {
        "one": "I am busy with many chats. Your message is kept and waits its turn; {count} is before it.",
        "other": "I am busy with many chats. Your message is kept and waits its turn; {count} are before it.",
    },
    "budget_near": "{percent} % of the budget of {whose} for {period} is used. ,usage tells where it went.",
    "budget_unpriced": (
        "I do not know what {model} costs: its calls count in tokens, and no budget in money stops them. "
        'Set input_price and output_price in [budget.models."{model}"].'
    ),
    "whose_bot": "the whole bot",
    "whose_channel": "the channel {name}",
    "whose_chat": "the chat {name}",
    "whose_user": "the person {name}",
    "whose_job": "the job {name}",
    "whose_model": "the model {name}",
    "whose_you": "your account",
    "whose_here": "this chat",
    "usage_day": "Today ({since}):",
    "usage_month": "This month (since {since}):",
    "usage_all": "Since the first call:",
    "usage_none": "No model was asked.",
    "usage_line": "{name}: {cost}; calls {calls}; tokens {input} in ({cached} cached), {output} out; entries {entries}",
    "usage_sum": "all",
    "usage_by_chat": "By chat:",
    "usage_by_user": "By person:",
    "usage_by_job": "By job:",
    "usage_by_model": "By model:",
    "usage_by_day": "By day:",
    "usage_cost": "{amount} {currency}",
    "usage_no_price": "no known price",
    "usage_unpriced": "Calls without a known price, counted in tokens alone: {calls}.",
    "usage_estimated": "Calls that were cut off, with an estimate: {calls}.",
    "usage_limits": "Budgets:",
    "usage_limit": "{whose}, {period}: {used} of {most} ({percent} %)",
    "usage_tokens": "{tokens} tokens",
    "usage_cites": "The entries are reservations on the tape bubbot/budget.",
}

_COMMANDS: dict[str, Sentence] = {
    "no_name": "a command is a comma and a name, such as ,help",
    "no_command": "there is no command ,{name}; ,help lists them all",
    "no_command_but": "there is no command ,{name}; did you mean {near}?",
    "or": " or ",
    "wrong_form": "{problem}. The form is: {usage}",
    "not_allowed": ",{command} is for the {needed}; you are a {role} here",
    "new_window": "A new window opens here (entry {entry}). Memory stays; ,resume takes up an earlier anchor.",
    "handed_off": "A new window opens at {name}.",
    "resumed": "Going on from {anchor} (entry {parent}); a new window opens at entry {entry}.",
    "answer_cut": "(Cut off here: the model reached its length limit.)",
    "correct_own": "Entry {entry} is not yours: only admins correct what others or the bot said.",
    "corrected": "Entry {entry} is corrected by entry {by}.",
    "nothing_to_retry": "there is no message in this window to answer again",
    "bye": "Bye. The conversation stays on the tape.",
    "archived": {
        "one": "The tape starts anew. {count} entry is kept as {name}; the memory was written to {path}.",
        "other": "The tape starts anew. {count} entries are kept as {name}; the memory was written to {path}.",
    },
    "erased": {
        "one": "The tape starts anew. The content of {count} entry was erased, with memory and earlier archives.",
        "other": "The tape starts anew. The content of {count} entries was erased, with memory and earlier archives.",
    },
    "reset_asks": {
        "one": (
            "This tape has {count} entry, its memory included. ,reset archive puts it aside under another name "
            "(readable with bubbot tape show) and writes the memory to a file; ,reset erase removes its content "
            "for good, here, in earlier archives of this tape, and in the inbox and outbox."
        ),
        "other": (
            "This tape has {count} entries, its memory included. ,reset archive puts them aside under another name "
            "(readable with bubbot tape show) and writes the memory to a file; ,reset erase removes their content "
            "for good, here, in earlier archives of this tape, and in the inbox and outbox."
        ),
    },
}

_MODEL: dict[str, Sentence] = {
    "model_here": "{name} answers here.",
    "model_nowhere": "No model answers here: {reason}.",
    "model_choice": "{current} There are: {names}. ,model NAME switches.",
    "model_for_owner": "only the owner switches models; you are a {role} here",
    "model_unknown": "I cannot switch to {name}: {problem}. There are: {names}.",
    "model_same": "{name} answers here already.",
    "model_switched": "{name} answers here from now on, also after a restart.",
    "model_window": " A new window opens here (entry {entry}); ,resume takes up an earlier anchor.",
}

_MEMORY: dict[str, Sentence] = {
    "memory_same": "Long-term memory says exactly this already ({cited}); nothing was written.",
    "memory_saved": "Saved to long-term memory as {version}.",
    "memory_lost": " Lines that were there before and are not any more:\n{lines}",
    "memory_lost_hint": "\nIf one of them still holds, save again with it{way_back}.",
    "memory_large": (
        "\nLong-term memory is now {size} bytes, and every prompt carries it; {advised} are plenty. "
        "Shorten it: save it again with what matters."
    ),
    "note_large": (
        "\nThe note of this day is now {size} bytes, and every prompt carries it; {advised} are plenty. "
        "Add only what matters."
    ),
    "memory_too_large": "{what} would have {size} bytes, and may have {limit}: shorten it. Nothing was saved.",
    "too_large_long_term": "long-term memory",
    "too_large_note": "the note of {day}",
    "too_large_all": "all of memory together",
    "note_added": "Added to the notes of {day} as {version}.",
    "note_goes": {
        "one": " Notes are kept for {count} day: these go when old notes are next cleared away.",
        "other": " Notes are kept for {count} days: these go when old notes are next cleared away.",
    },
    "memory_shown": "Memory: {cited}.",
    "memory_long_term": "Long-term memory: {size}.",
    "memory_notes": "Daily notes: {days}, {size}.",
    "memory_reach": {
        "one": "The prompt shows those of today and {count} day before; {kept}.",
        "other": "The prompt shows those of today and {count} days before; {kept}.",
    },
    "memory_kept": {"one": "{count} day is kept", "other": "{count} days are kept"},
    "memory_versions": "On the tape: {versions}; `,memory.restore N` brings one back.",
    "memory_recall": "memory.recall gives the text.",
    "forgot": {
        "one": (
            "Removed {count} line from memory, now {version}:\n{lines}\n"
            "Older versions remain on the tape with them, and so does what was said{way_back}."
        ),
        "other": (
            "Removed {count} lines from memory, now {version}:\n{lines}\n"
            "Older versions remain on the tape with them, and so does what was said{way_back}."
        ),
    },
    "forgot_nothing": "No line of memory contains {text} ({cited}); nothing was removed.",
    "forget_by_line": " Lines are looked at one by one: give words of a single line.",
    "restored": "Brought version {number} back as {version}{way_back}.",
    "restored_same": "Memory says what version {number} said already ({cited}); nothing was written.",
    "cleared": "Emptied memory, now {version}: {what}. Older versions remain on the tape{way_back}.",
    "cleared_already": "Memory is empty already ({cited}); nothing was written.",
    "clear_asks": (
        "Nothing was removed yet. This would empty memory ({cited}): {what}. Older versions would "
        "remain on the tape. To do it: `,memory.clear confirm=true`; a model asks the person first."
    ),
    "memory_holds": "long-term memory ({size}) and the notes of {days}",
    "no_version": "no version yet",
    "cited_entry": "entry {entry}",
    "cited_version": "version {number}, entry {entry}",
    "new_version": "version {number} (entry {entry})",
    "way_back": "; `,memory.restore {number}` brings back all of version {number}",
    "days": {"one": "{count} day", "other": "{count} days"},
    "days_listed": "{days} ({listed})",
    "lines": {"one": "{count} line", "other": "{count} lines"},
    "bytes": {"one": "{count} byte in {lines}", "other": "{count} bytes in {lines}"},
    "nothing": "nothing",
}

ENGLISH = Language(
    _form,
    MappingProxyType({**_TURNS, **_GATE, **_BUDGET, **_COMMANDS, **_MODEL, **_MEMORY, **EN_SCHEDULE, **EN_STATUS}),
)
"""English; errors, summaries and roles are English where they are made."""
