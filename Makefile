# Every recipe makes what it needs. PYTHON names the interpreter (3.11 or newer); VENV the environment.
PYTHON ?= python3
VENV ?= .venv
# Not quiet: pip shows what it downloads, with sizes, and people who wait see that something happens.
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --no-deps
# A viewer of traces, for the proof alone: in an environment of its own, which has other versions of everything.
export PHOENIX_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bubbot/phoenix
# Programs that read what `bubbot export` writes, for the proof alone.
export FORMATS_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bubbot/formats
# The proxy, the client and the agent worker of AReaL, for the proof alone.
export AREAL_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bubbot/areal
AREAL_REPOSITORY ?= https://github.com/areal-project/AReaL
AREAL_COMMIT = cbff54d645d2cd8ee1f1c358a82f3f473588433d
# Training and serving of a tiny model, for the proof alone.
export LOOP_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bubbot/loop
# The judge of MCP, and the Node.js that it needs, for the proof alone.
export MCP_CONFORMANCE_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bubbot/mcp-conformance
LOCKED = $(PIP) --require-hashes -r
OURS = $(PIP) --quiet --no-build-isolation --editable .

DOJO = .venv-agentdojo

.PHONY: chat install dist test test-all proof agentdojo phoenix formats areal mcp-conformance loop check soak bench mutants pictures lock clean

chat: $(VENV)/.local  ## install the bot with its demonstration model and talk to it
	@$(VENV)/bin/bubbot chat

install: $(VENV)/.base  ## the bot alone, without the demonstration model

dist: $(VENV)/.base  ## the wheel, the sdist, the locked versions and install.sh in dist/: the same bytes at each build of a commit
	@$(VENV)/bin/python requirements/dist.py

test: $(VENV)/.dev  ## every check and test
	@$(VENV)/bin/python -m pytest

proof: $(VENV)/.dev  ## the long versions: hundreds of kills, thousands of examples; PART=3/12 runs the third of twelve parts
	-@$(MAKE) --no-print-directory agentdojo
	-@$(MAKE) --no-print-directory phoenix
	-@$(MAKE) --no-print-directory formats
	-@$(MAKE) --no-print-directory areal
	-@$(MAKE) --no-print-directory mcp-conformance
	-@$(MAKE) --no-print-directory $(LOOP_FOLDER)/.installed
	@$(VENV)/bin/python -m pytest --proof $(if $(PART),--part $(PART))

agentdojo: $(DOJO)/.installed  ## AgentDojo's tasks, attacks and judge, for the proof that nothing acts without a yes

check: $(VENV)/.dev  ## style, types and layers only
	@$(VENV)/bin/python -m pytest tests/quality

soak: $(VENV)/.dev  ## the daemon under load, measured: some minutes; SOAK="--help" tells what it takes
	@$(VENV)/bin/python -m benchmarks.soak $(SOAK)

bench: $(VENV)/.dev  ## what everything costs beside plain baselines: up to half an hour; BENCH="--help" tells what it takes
	@$(VENV)/bin/python -m benchmarks.bench $(BENCH)

mutants: $(VENV)/.dev  ## whether a test fails if the code is wrong: 100 mutants, about a quarter of an hour; MUTANTS="--seed 7" draws others, MUTANTS="--only features/web/ bubbot/ops/" from these files
	@$(VENV)/bin/python -m benchmarks.mutants $(MUTANTS)

pictures: $(VENV)/.dev  ## draw docs/pictures again, from the program as it is; PICTURES="doctor status" draws some of them
	@$(VENV)/bin/python -m tests.docs.pictures $(PICTURES)

phoenix: $(PHOENIX_FOLDER)/.installed  ## a viewer of traces, for the proof; python -m tests.e2e.phoenix draws its picture

formats: $(FORMATS_FOLDER)/.installed  ## readers of the formats of exports, for the proof

areal: $(AREAL_FOLDER)/.installed  ## AReaL's own proxy, client and agent worker, for the proof

mcp-conformance: $(MCP_CONFORMANCE_FOLDER)/.installed  ## the conformance tests of MCP, for the proof: they judge our client and our server

loop: $(VENV)/.dev $(LOOP_FOLDER)/.installed  ## the whole loop: ratings, an export, training, and right answers of newer weights, printed
	@$(VENV)/bin/python -m tests.loop.story

test-all:  ## the suite on every supported Python that is installed here
	@for minor in 11 12 13; do \
	  python=$$(command -v python3.$$minor) && $$python -c '' 2>/dev/null || { echo "python3.$$minor: not installed, skipped"; continue; }; \
	  echo "python3.$$minor"; $(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-3.$$minor || exit 1; \
	done

$(VENV)/.base: requirements/base.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing bubbot (about 80 MB to download, once)"
	@$(LOCKED) requirements/base.txt
	@$(OURS)
	@touch $@

$(VENV)/.local: requirements/local.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing bubbot and its demonstration model (about 210 MB to download, once)"
	@$(LOCKED) requirements/local.txt || { echo "The demonstration model has no build for this machine; installing bubbot without it."; $(LOCKED) requirements/base.txt; }
	@$(OURS)
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing bubbot and its test tools (about 280 MB to download, once)"
	@$(LOCKED) requirements/dev.txt
	@$(OURS)
	@touch $@

$(DOJO)/.installed: requirements/agentdojo.in
	@echo "Installing AgentDojo in an environment of its own (about 70 MB to download, once)"
	@$(PYTHON) -m venv $(DOJO)
	@$(DOJO)/bin/python -m pip --disable-pip-version-check install --no-deps --require-hashes -r requirements/agentdojo.in
	@touch $@

$(PHOENIX_FOLDER)/.installed: requirements/phoenix.in
	@echo "Installing Phoenix into $(PHOENIX_FOLDER) (860 MB on the disk, once)"
	@$(PYTHON) -m venv --clear $(PHOENIX_FOLDER)
	@$(PHOENIX_FOLDER)/bin/python -m pip --disable-pip-version-check install --no-deps --require-hashes -r requirements/phoenix.in
	@touch $@

# Harbor says that it needs Python 3.12; its models of trajectories, the only part that is used, run with 3.11, too.
$(FORMATS_FOLDER)/.installed: requirements/formats.in
	@echo "Installing readers of exports into $(FORMATS_FOLDER) (640 MB on the disk, once)"
	@$(PYTHON) -m venv --clear $(FORMATS_FOLDER)
	@$(FORMATS_FOLDER)/bin/python -m pip --disable-pip-version-check install --no-deps --require-hashes --ignore-requires-python -r requirements/formats.in
	@touch $@

# A build of torch for processors alone that lies on this machine (find-links of pip) is taken before the ordinary one, which
# needs the libraries of graphics cards on Linux.
LOOP_PIP = $(LOOP_FOLDER)/bin/python -m pip --disable-pip-version-check install --no-deps --require-hashes
$(LOOP_FOLDER)/.installed: requirements/loop.in requirements/loop-cuda.in
	@echo "Installing training and serving into $(LOOP_FOLDER) (1.7 GB on the disk, or 6 GB where torch needs libraries of graphics cards, once)"
	@$(PYTHON) -m venv --clear $(LOOP_FOLDER)
	@sed -n '/^torch==/,/[^\\]$$/p' requirements/loop.in | $(LOOP_PIP) --quiet --no-index -r /dev/stdin 2>/dev/null || true
	@$(LOOP_PIP) -r requirements/loop.in
	@! $(LOOP_FOLDER)/bin/python -c 'import importlib.metadata as m; exit(not any("cuda" in each for each in m.requires("torch")))' || $(LOOP_PIP) -r requirements/loop-cuda.in
	@touch $@

# No release on the package index has the agent service: its source is fetched at one commit. Hydra needs a package without a wheel, and setuptools that has pkg_resources.
$(AREAL_FOLDER)/.installed: requirements/areal.in
	@echo "Installing AReaL's proxy and what it imports into $(AREAL_FOLDER) (some GB on the disk, once)"
	@$(PYTHON) -m venv --clear $(AREAL_FOLDER)
	@$(AREAL_FOLDER)/bin/python -m pip --disable-pip-version-check install --no-deps --require-hashes -r requirements/areal.in
	@$(AREAL_FOLDER)/bin/python -m pip --disable-pip-version-check install torch==2.13.0 "hydra-core>=1.3,<1.4" "setuptools>=77,<81"
	@git init --quiet $(AREAL_FOLDER)/source
	@git -C $(AREAL_FOLDER)/source fetch --quiet --depth 1 $(AREAL_REPOSITORY) $(AREAL_COMMIT)
	@git -C $(AREAL_FOLDER)/source checkout --quiet FETCH_HEAD
	@touch $@

# npm compares each package with its digest in the lock file. The tests need Node.js 22, which comes as a package; npm runs with an older one, too.
$(MCP_CONFORMANCE_FOLDER)/.installed: requirements/mcp-conformance/package.json requirements/mcp-conformance/package-lock.json
	@echo "Installing the conformance tests of MCP into $(MCP_CONFORMANCE_FOLDER) (240 MB on the disk, once)"
	@mkdir -p $(MCP_CONFORMANCE_FOLDER)
	@cp $^ $(MCP_CONFORMANCE_FOLDER)
	@npm ci --prefix $(MCP_CONFORMANCE_FOLDER) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"bubbot needs Python 3.11 or newer, this is {sys.version.split()[0]}: make chat PYTHON=python3.11")'
	@echo "Making a Python environment in $(VENV) (some seconds)"
	@$(PYTHON) -m venv $(VENV)

lock:  ## renew the lock files: nothing younger than a week, wheels only, hashes, every platform
	@sh requirements/lock.sh $(PYTHON)

clean:
	rm -rf $(VENV) .venv-3.* $(DOJO) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
