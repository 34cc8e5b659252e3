# SPDX-License-Identifier: Apache-2.0
# Everything a developer or a reader runs. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PY := .venv/bin/python
# The cluster tests start real daemons as several users: root, or sudo, once.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=CI)
# More for pytest: make test ARGS='-k recover -x'
ARGS ?=
PREFIX ?= /usr
SYSCONFDIR ?= /etc
DESTDIR ?=

.PHONY: help
help: ## this list
	@echo 'usage: make TARGET'
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what demo and test need: Debian or Ubuntu packages, then .venv (starts no service)
	@etc/setup/packages python run
	etc/setup/venv
	@$(PY) -m compileall -q slurm_coloc # a lab's daemons and the tests write no bytecode: a sixth of each start

.PHONY: .venv
.venv: ## the Python environment alone, remade when pyproject.toml changes
	@etc/setup/packages python
	etc/setup/venv

# The CPU build does: what trains in the tests are small networks.
.PHONY: torch
torch: ## .venv-torch: an environment with torch for the tests that train (they are skipped without it)
	@[ -x .venv-torch/bin/python ] || "$$(etc/setup/venv --find-python)" -m venv .venv-torch
	.venv-torch/bin/python -c 'import torch' 2>/dev/null || .venv-torch/bin/pip install -q --disable-pip-version-check '$(TORCH_WHEEL)'

.PHONY: test-torch
test-torch: torch ## the tests that run PyTorch in their own process: coloc summarize, checkpoints, what estimator/ makes
	@echo 'test-torch: on fake tensors and small networks (a minute)'
	.venv-torch/bin/python -c 'import hypothesis, torchinfo' 2>/dev/null || .venv-torch/bin/pip install -q --disable-pip-version-check -e '.[dev]' 'torchinfo>=1.8'
	.venv-torch/bin/python -m pytest -p no:cacheprovider tests/unit/summarize tests/unit/checkpoint tests/unit/estimator $(ARGS)

TORCH_WHEEL ?= torch>=2.2
TORCH_PYTHON = $(or $(COLOC_TORCH_PYTHON),$(wildcard $(CURDIR)/.venv-torch/bin/python))

.PHONY: demo
demo: setup ## a private Slurm with emulated GPUs: jobs share them, one runs out of memory and comes back
	@echo 'demo: bringing up a private Slurm with emulated GPUs (under five minutes)'
	$(AS_ROOT) $(PY) tests/demo/demo.py

# So many tests at a time, with labs of their own: most of their time is waiting for Slurm. 0: one after
# another, in this process.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 3 ? 3 * n : 8)))
# What is tested leaves no bytecode and no cache behind: it runs as root.
AS_TEST = $(AS_ROOT) env PYTHONDONTWRITEBYTECODE=1 COLOC_TORCH_PYTHON=$(TORCH_PYTHON)
PYTEST = $(PY) -m pytest -p no:cacheprovider
# Directories that are not there yet are no error; an empty run is.
TESTS = $(wildcard tests/unit tests/contract tests/cluster)

.PHONY: test
test: setup ## unit, contract, and real Slurm daemons (needs root or sudo); a quarter of an hour on 2 cores
	@etc/setup/packages limits pages
	@echo "test: $(TESTS) with Slurm $$(PATH=$$PATH:/usr/sbin slurmctld -V | cut -d' ' -f2), $$($(PY) --version)"
	$(AS_TEST) $(PYTEST) --durations=8 -n $(JOBS) $(TESTS) $(ARGS)

.PHONY: test-long
test-long: setup ## what `make test` leaves out: chaos, waits, a trace, waits of minutes; soak and burst on a Docker cluster (half an hour)
	@echo 'test-long: on a private Slurm, then on a Docker cluster; each test says what it does'
	command -v chromium >/dev/null || apt-get -qq -y install --no-install-recommends chromium >/dev/null
	$(AS_TEST) COLOC_CHAOS_ROUNDS=$(ROUNDS) COLOC_CHAOS_SEED=$(SEED) $(PYTEST) --long -m long --durations=0 -n 3 tests/cluster $(ARGS)
	docker/cluster test --long -m long $(ARGS)

.PHONY: check
check: ## what continuous integration runs, here: lint, all tests on three Slurm releases (root; half an hour)
	@.ci/run

# Fifty rounds take about ten minutes; SEED=n for others.
ROUNDS ?= 50
SEED ?= 1

.PHONY: chaos
chaos: setup ## sharing jobs while they are cancelled and requeued and daemons are killed at random (ROUNDS=50 SEED=1)
	@echo 'chaos: $(ROUNDS) rounds from seed $(SEED) on a private Slurm; they follow from the seed'
	$(AS_TEST) COLOC_CHAOS_ROUNDS=$(ROUNDS) COLOC_CHAOS_SEED=$(SEED) $(PYTEST) tests/cluster/test_chaos.py $(ARGS)

# Three hundred jobs take about a quarter of an hour.
PROMISE_JOBS ?= 300

.PHONY: promise
promise: setup ## five users' 300 jobs in the default configuration: does every promise hold? (PROMISE_JOBS=300 SEED=1 ARGS=--write)
	@echo 'promise: $(PROMISE_JOBS) jobs of five users from seed $(SEED) on a private Slurm, each GPU looked at every second'
	$(AS_TEST) $(PY) tests/promise/run.py --jobs $(PROMISE_JOBS) --seed $(SEED) $(ARGS)

RUNS ?= 100
LANES ?= 6
SCALE ?= 3

# Ten million inputs together: RUNS=2500000 JOBS=8, two hours and a half. `make -C spank fuzz` has clang's libFuzzer.
FUZZ_RUNS = $(if $(filter command line,$(origin RUNS)),$(RUNS),20000)

.PHONY: fuzz
fuzz: .venv ## changed inputs to parsers, estimates, messages, the hook's Lua and the plugin's C (RUNS=20000 of each SEED=1 JOBS=8)
	@etc/setup/packages python run
	echo 'fuzz: $(FUZZ_RUNS) inputs to each target from seed $(SEED), a tenth of them to the estimates'
	$(PY) -m tests.fuzz.run --runs $(FUZZ_RUNS) --seed $(SEED) --jobs $(JOBS) parsers protocol
	$(PY) -m tests.fuzz.run --runs $$(($(FUZZ_RUNS) / 10)) --seed $(SEED) --jobs $(JOBS) estimate
	lua5.1 tests/fuzz/wire.lua $$(($(FUZZ_RUNS) / 2)) $(SEED)
	$(MAKE) -C spank fuzz RUNS=$(FUZZ_RUNS) SEED=$(SEED)

.PHONY: fair-waits
fair-waits: setup ## how long whole GPUs are waited for with sharing and without, random mixes (RUNS=100 SEED=1 LANES=6 SCALE=3)
	@echo 'fair-waits: $(RUNS) mixes from seed $(SEED), native and, on Slurm 24.11 and later, steered'
	$(AS_TEST) COLOC_WAITS_RUNS=$(RUNS) COLOC_WAITS_SEED=$(SEED) COLOC_WAITS_LANES=$(LANES) COLOC_WAITS_SCALE=$(SCALE) $(PYTEST) -s tests/cluster/test_fair_waits.py $(ARGS)

.PHONY: fair-waits-sim
fair-waits-sim: .venv ## the same question to the simulator, hundreds of traces (ARGS='--seeds 100')
	@echo 'fair-waits-sim: made-up traces, each also with whole GPUs for all'
	$(PY) -m tests.sweeps.waits $(ARGS)

.PHONY: test-unit
test-unit: .venv ## the tests that need neither Slurm nor root
	@echo 'test-unit: tests/unit'
	$(PY) -m pytest tests/unit $(ARGS)

# The Docker cluster: SLURM=trixie|sid|bookworm, NAME=... for one beside others, KEEP=1 leaves it up.
SLURM ?= trixie
cluster-up cluster-down cluster-test rollout-test: export SLURM := $(SLURM)

.PHONY: cluster-up
cluster-up: ## six containers: controller, slurmdbd, MariaDB, two GPU nodes, login (SLURM=trixie|sid|bookworm)
	@docker/cluster up

.PHONY: cluster-down
cluster-down: ## remove that cluster's containers, network and volumes
	@docker/cluster down

.PHONY: cluster-test
cluster-test: .venv ## tests/compose on that cluster, brought up if it is not; KEEP=1 leaves it up
	@docker/cluster test $(ARGS)

.PHONY: rollout-test
rollout-test: .venv ## the guide's order and wrong ones on three hosts of Debian's Slurm in Docker (SLURM=trixie|sid)
	@docker/rollout test $(ARGS)

.PHONY: bench
bench: setup ## simulator, hook latency, submission rate on a private Slurm (needs root or sudo)
	@echo 'bench: measures on a private Slurm; prints tables'
	$(AS_ROOT) $(PY) tests/bench/run.py $(ARGS)

# The published values and traces are no part of this tree: COLOC_FACTS names their folder, ../shared/facts without it.
.PHONY: paper
paper: .venv ## the thesis' scheduling results beside ours, where the facts are there (ARGS=--write: into RESULTS.md)
	@echo 'paper: tests/paper; published values against simulation'
	$(PY) tests/paper/run.py $(ARGS)

.PHONY: sweeps
sweeps: .venv ## the simulations behind the defaults (docs/adr), some minutes: ARGS='budget --seeds 2'
	@echo 'sweeps: budget, margin, gate, sharing rule, pool, recovery over made-up traces'
	$(PY) tests/sweeps/run.py $(ARGS)

# exclusive, native and steered side by side take some 25 minutes at COMPRESS=30. COLOC_FACTS: the folder
# of the traces 60 and 90. Steered needs Slurm 24.11:
# docker/test-in --copy ../shared/facts:/src/shared/facts trixie make trace-lab
TRACE ?= 60
POLICIES ?= exclusive native steered
COMPRESS ?= 30
MACHINE ?= dgx-station-a100

.PHONY: trace-lab
trace-lab: setup ## a trace through a private Slurm beside the simulator's word (TRACE=60|90|example|CSV POLICIES= COMPRESS=30 MACHINE=)
	@echo 'trace-lab: $(TRACE) by $(POLICIES), $(COMPRESS) times as fast, on emulated GPUs'
	$(AS_ROOT) $(PY) tests/tracelab/run.py --trace '$(TRACE)' --policies $(POLICIES) --compress $(COMPRESS) --machine $(MACHINE) $(ARGS)

# A Python that has the extra gpu-estimates: TORCH=/path/to/python. Without a GPU it runs dry.
TORCH ?= $(PY)

.PHONY: gpu-estimates
gpu-estimates: .venv ## 534 trainings measured on the GPU here, beside all estimates (ARGS='--minutes 60'; goes on where it stopped)
	@echo 'gpu-estimates: needs the packages of slurm-coloc[gpu-estimates]'
	$(TORCH) -m estimator.measure $(ARGS)

.PHONY: generated-models
generated-models: .venv ## 500 models that nobody chose: their texts' estimates beside their recordings' (goes on where it stopped)
	@echo 'generated-models: needs the packages of slurm-coloc[generated-models] in TORCH=PYTHON; an hour or so a core'
	$(TORCH) -m estimator.generated build/generated-models $(ARGS)

# As root: daemons and trainings run as another user. A Python with torch: TORCH=/path/to/python.
.PHONY: test-gpu
test-gpu: .venv ## MPS, the fence, NVML and sharing on the GPU that is here; on the emulated one elsewhere
	@$(AS_ROOT) env TORCH='$(if $(filter $(PY),$(TORCH)),,$(TORCH))' $(abspath $(PY)) tests/gpu/run.py $(ARGS)

.PHONY: lint
lint: .venv ## ruff, mypy --strict, codespell, clang-format, shellcheck, luacheck
	@etc/setup/packages python lint
	etc/setup/lint $(ARGS)

.PHONY: lock
lock: ## etc/requirements.lock: the packages that an installation of today consists of, with their hashes
	@etc/setup/lock

# The suites are bookworm, trixie and sid: SUITES=trixie for one.
SUITES ?= bookworm trixie sid

.PHONY: packages
packages: ## .deb files for Debian bookworm, trixie and sid, each built in a container, into build/packages (SUITES=)
	@echo 'packages: $(SUITES)'
	docker/packages $(SUITES)

# The commit whose packages are upgraded: the first that had any.
OLDER ?= 62aa6e5

.PHONY: packages-test
packages-test: export SLURM := $(SLURM)
packages-test: .venv ## those packages on four hosts with systemd in Docker: install, share, leave, purge, upgrade (SLURM=trixie|sid)
	@docker/packages $(SLURM) $(if $(filter trixie,$(SLURM)),sid)
	docker/packages --older $(OLDER) $(SLURM)
	docker/install test $(ARGS)

.PHONY: docs
docs: .venv ## the pages as a site in build/docs; writes docs/reference anew and fails on a wrong link
	@$(PY) -c 'import mkdocs' 2>/dev/null || $(PY) -m pip install -q --disable-pip-version-check -e '.[docs]'
	$(PY) -m slurm_coloc.cli.texts.pages docs/reference
	$(PY) -m slurm_coloc.cli.texts.manual >etc/man/coloc.1
	$(PY) -m slurm_coloc.cli.texts.manual_conf >etc/man/coloc.toml.5
	$(PY) -m slurm_coloc.cli.texts.completion etc/completions
	$(PY) -m mkdocs build --strict --quiet -f .mkdocs.yml
	echo 'docs: build/docs/index.html'

.PHONY: screens
screens: .venv ## the screens in docs/pictures, drawn anew: tables, coloc top, and the pages where Chromium is installed
	$(PY) -m tests.screens docs/pictures

.PHONY: spank
spank: ## build the SPANK plugin for the Slurm release installed here
	@echo 'spank: building the plugin against the installed slurm/spank.h'
	$(MAKE) -C spank

# The plugin's directory is that of the installed Slurm's own plugins.
PLUGINDIR ?= $(firstword $(wildcard /usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib64/slurm /usr/lib/slurm))
LIBEXEC = $(DESTDIR)$(PREFIX)/libexec/slurm-coloc
UNITDIR ?= $(PREFIX)/lib/systemd/system
MANDIR ?= $(PREFIX)/share/man

.PHONY: install
install: spank ## copy plugin, Lua, hooks, unit and manual for an admin (DESTDIR=, PREFIX=/usr); changes no Slurm setting
	@plugins='$(PLUGINDIR)'
	[ -n "$$plugins" ] || { echo 'install: no Slurm plugin directory found: give PLUGINDIR=' >&2; exit 1; }
	install -d "$(DESTDIR)$$plugins" "$(LIBEXEC)" "$(DESTDIR)$(SYSCONFDIR)/slurm-coloc"
	find spank -name '*.so' -exec install -m 755 -t "$(DESTDIR)$$plugins" {} +
	find spank -name coloc-ticket -type f -exec install -m 755 -t "$(LIBEXEC)" {} +
	for f in prolog/* epilog/*; do
	  if [ -f "$$f" ] && [ -x "$$f" ]; then install -m 755 "$$f" "$(LIBEXEC)/$$(basename "$$f")"; fi
	done
	find etc -maxdepth 1 -name '*.lua' -exec install -m 644 -t "$(LIBEXEC)" {} +
	install -D -m 644 -t "$(DESTDIR)$(UNITDIR)" etc/systemd/slurm-coloc.service etc/systemd/slurm-coloc-agent.service
	install -D -m 644 -t "$(DESTDIR)$(MANDIR)/man1" etc/man/coloc.1
	install -D -m 644 -t "$(DESTDIR)$(MANDIR)/man8" spank/spank_coloc.8
	echo "install: plugin in $(DESTDIR)$$plugins, hooks and Lua in $(LIBEXEC)"
	echo 'install: colocd'"'"'s unit in $(DESTDIR)$(UNITDIR), not enabled; it makes the spool of reports (SlurmUser, 0700)'
	echo 'install: the Python package: pip install . into a virtual environment that SlurmUser and root can read'
	echo 'install: nothing takes effect before slurm.conf and plugstack.conf name these files: see docs/admin/install.md'

.PHONY: clean
clean: ## remove .venv and what was built
	@echo 'clean: .venv, build, compiled objects, caches'
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find spank slurm_coloc/lab/emulator \( -name '*.o' -o -name '*.so' -o -name '*.so.*' -o -name coloc-ticket \) -delete 2>/dev/null || true
