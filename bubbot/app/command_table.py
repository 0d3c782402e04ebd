"""The words of the command line: written by `python -m tests.docs.command_table` from the groups of commands.

It imports none of them, and so does `bubbot --help`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PACKAGES = "Installed packages"
"""The heading of the words of installed packages."""


class CommandRow(NamedTuple):
    """A word.

    Attributes:
        section: the heading it stands under in `bubbot --help`.
        help: its line there.
        module: the module with its `CommandGroup`: `COMMANDS` of a feature, `RUN_COMMANDS` of the command line; empty for one of an installed
            package.
    """

    section: str
    help: str
    module: str = ""


COMMANDS: Mapping[str, CommandRow] = {
    "chat": CommandRow("Talk", "talk to the bot in this terminal", "bubbot.cli.chat.command"),
    "ask": CommandRow("Talk", "ask one question and print the answer", "bubbot.cli.ask"),
    "status": CommandRow("Look", "show the state of the running bot", "bubbot.cli.status"),
    "usage": CommandRow("Look", "show model calls and their cost", "bubbot.features.usage.commands"),
    "agent": CommandRow("Look", "list the agents that the settings name", "bubbot.features.agents.commands"),
    "context": CommandRow("Look", "compare what each context strategy sends", "bubbot.features.strategies.commands"),
    "why": CommandRow("Look", "explain the last answer of a session", "bubbot.features.why.commands"),
    "explain": CommandRow("Look", "ask what happened in a chat, with sources", "bubbot.features.explain.commands"),
    "replay": CommandRow(
        "Look", "build recorded requests again, or ask another model", "bubbot.features.replay.commands"
    ),
    "trace": CommandRow("Look", "look at sessions, turns and requests in a browser", "bubbot.cli.trace"),
    "doctor": CommandRow("Look", "find out what is wrong with this home, and how to fix it", "bubbot.cli.doctor"),
    "help": CommandRow("Look", "explain a command or a topic", "bubbot.cli.topics"),
    "eval": CommandRow(
        "Look", "evaluate answers over cases, and compare setups", "bubbot.features.judge.evals.commands"
    ),
    "export": CommandRow("Look", "write turns for training or evaluation", "bubbot.features.learn.commands"),
    "tape": CommandRow("Change", "list, show, search, verify, export and import tapes", "bubbot.cli.tape.command"),
    "memory": CommandRow("Change", "show and change what a session remembers", "bubbot.features.memory.commands"),
    "schedule": CommandRow(
        "Change", "schedule prompts, commands and texts, and see their results", "bubbot.features.schedule.commands"
    ),
    "approvals": CommandRow(
        "Change", "answer what the bot asks, and see what it may do", "bubbot.features.approvals.commands"
    ),
    "access": CommandRow("Change", "manage who may talk to the bot", "bubbot.features.access.commands"),
    "view": CommandRow("Change", "show a chat what goes on in another one", "bubbot.features.views.commands"),
    "judge": CommandRow("Change", "judge answers, and list judgements", "bubbot.features.judge.commands"),
    "learn": CommandRow(
        "Change", "offer newer weights, accept them, take them back", "bubbot.features.learn.weights.commands"
    ),
    "task": CommandRow("Change", "run tasks: steps under a contract", "bubbot.features.tasks.commands"),
    "skills": CommandRow("Change", "add, accept, show and remove skills", "bubbot.features.skills.commands"),
    "mcp": CommandRow("Change", "use tools of programs, let them read chats", "bubbot.features.mcp.commands"),
    "init": CommandRow("Set up", "set up a bot: name, model, accounts", "bubbot.cli.init"),
    "model": CommandRow("Set up", "install the demonstration model", "bubbot.cli.model"),
    "completion": CommandRow("Set up", "complete commands with Tab in your shell", "bubbot.cli.completion.command"),
    "config": CommandRow("Set up", "show and change settings", "bubbot.cli.config"),
    "run": CommandRow("Operate", "run the bot with every configured channel", "bubbot.cli.run.command"),
    "reload": CommandRow("Operate", "apply changed settings to the running bot", "bubbot.cli.reload"),
    "workers": CommandRow("Operate", "list the processes that share the turns", "bubbot.cli.workers"),
    "service": CommandRow("Operate", "run the bot under systemd, and show its state", "bubbot.cli.service"),
    "backup": CommandRow("Operate", "back up everything the bot stores, even while it runs", "bubbot.cli.backup"),
    "restore": CommandRow(
        "Operate", "create a home from a backup, in quarantine until it is released", "bubbot.cli.restore"
    ),
}
SHARED: Mapping[str, str] = {
    "tape anchors": "conversation",
    "tape graph": "conversation",
    "tape search": "search",
    "access consents": "people",
    "access export": "people",
    "access forget": "people",
    "access forgotten": "people",
    "mcp client-list": "mcp.serve",
    "mcp client-add": "mcp.serve",
    "mcp client-remove": "mcp.serve",
    "mcp client-token": "mcp.serve",
    "mcp client-send": "mcp.serve",
    "mcp serve": "mcp.serve",
}
