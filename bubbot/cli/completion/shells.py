"""How shells complete: click's classes, with what its scripts lack.

Bash splits words at `:` and `=`, which names of sessions contain, and neither quotes what it is offered nor is quoted by
click's script: names of jobs are chosen by people in chats, and would be run. Zsh and fish replace a whole word
`--option=value`, of which click offers the value alone; click's script for fish cuts values at a comma.
"""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from bubbot.cli.invocation import Invocation
from bubbot.cli.tree import COMPLETE_VARIABLE


class BubbotBashComplete(BashComplete):
    """Completion in bash: the line up to the cursor is split by click, and what bash replaces of it is left out again."""

    source_template = r"""
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} program=${COMP_WORDS[0]/#\~/$HOME} cut='' value quoted
    local typed=${line##*[[:space:]]}
    # An empty word behind a space is a word, too.
    [[ $line != *[[:space:]] ]] || line+="''"
    [[ $typed != --*=* ]] || typed=${typed#*=}
    # Bash replaces only what follows the last ":" or "=" of the word.
    if [[ $COMP_WORDBREAKS == *:* && $typed == *:* ]]; then cut=${typed%%"${typed##*:}"}
    elif [[ $COMP_WORDBREAKS == *=* && $typed == *=* ]]; then cut=${typed%%"${typed##*=}"}; fi
    while IFS= read -r value; do
        case $value in
            file,*) compopt -o default 2>/dev/null; COMPREPLY=(); return ;;
            plain,*) value=${value#plain,} ;;
            *) continue ;;
        esac
        if [[ ${COMP_WORDS[COMP_CWORD]} == [\"\']* ]]; then
            # Others choose these names, and bash does not quote them again: none may end the quotes or run anything.
            [[ $value != *[\$\`\"\'\\!]* ]] || continue
            quoted=$value
        else
            printf -v quoted '%%q' "$value"
        fi
        COMPREPLY+=("${quoted#"$cut"}")
    done < <(env COMP_WORDS="$line" COMP_CWORD=-1 %(complete_var)s=bash_complete "$program" 2>/dev/null)
}

complete -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        """Write the script; click would start bash to ask for its version."""
        return ShellComplete.source(self)


class _WholeWord(ShellComplete):
    """Completion in a shell that replaces a whole word `--option=value`."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Offer values with the option before them."""
        option, equals, _ = incomplete.partition("=")
        items = super().get_completions(args, incomplete)
        if equals and option.startswith("--"):
            return [CompletionItem(f"{option}={item.value}", item.type, item.help) for item in items]
        return items


class BubbotZshComplete(_WholeWord, ZshComplete):
    """Completion in zsh."""


class BubbotFishComplete(_WholeWord, FishComplete):
    """Completion in fish."""

    source_template = """
function %(complete_func)s
    for completion in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
            COMP_CWORD=(commandline -t | string collect) (string replace -r -- '^~' $HOME (commandline -opc)[1]) 2>/dev/null)
        set -l parts (string split -m 1 ',' -- $completion)
        switch $parts[1]
            case file
                __fish_complete_path (commandline -ct)
            case plain
                echo -- $parts[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BubbotBashComplete,
    "zsh": BubbotZshComplete,
    "fish": BubbotFishComplete,
}


def write_script(shell: str, root: click.Command) -> str:
    """Write the completion script of a shell for the program."""
    return SHELLS[shell](root, {}, "bubbot", COMPLETE_VARIABLE).source()


def print_completions(root: click.Command, request: str) -> int:
    """Print what a shell is to offer; return the exit code.

    Args:
        root: the program.
        request: what the script asks for, such as `bash_complete`.
    """
    shell = SHELLS.get(request.removesuffix("_complete"))
    if shell is None:
        return 1
    if lines := shell(root, {"obj": Invocation()}, "bubbot", COMPLETE_VARIABLE).complete():
        click.echo(lines.encode())
    return 0
