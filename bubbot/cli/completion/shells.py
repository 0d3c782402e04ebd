"""Completion in shells: click's classes with fixes for its scripts.

Bash splits words at `:` and `=`, which session names contain. Neither bash nor click's script quotes the offered words,
so names of jobs, which people in chats choose, would be executed. Zsh and fish replace a whole word `--option=value`,
but click offers only the value; click's script for fish cuts values at a comma.
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
    """Completion in bash: click splits the line up to the cursor; offers lack the part that bash keeps."""

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
        """Return the script; click's method would start bash to check its version."""
        return ShellComplete.source(self)


class _WholeWord(ShellComplete):
    """Completion in a shell that replaces a whole word `--option=value`."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Offer values together with their option."""
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
    """Return the completion script for a shell."""
    return SHELLS[shell](root, {}, "bubbot", COMPLETE_VARIABLE).source()


def print_completions(root: click.Command, request: str) -> int:
    """Print the words for a shell to offer; return the exit code.

    Args:
        request: the script's request, such as `bash_complete`.
    """
    shell = SHELLS.get(request.removesuffix("_complete"))
    if shell is None:
        return 1
    if lines := shell(root, {"obj": Invocation()}, "bubbot", COMPLETE_VARIABLE).complete():
        click.echo(lines.encode())
    return 0
