# Recipes: each works alone on a fresh clone that has Python 3.11 or newer, git and make.

VENV := .venv
BIN := $(VENV)/bin
SERVER := $(VENV)/.server
READY := $(VENV)/.ready
DATA ?= $(if $(PS2STREAM_DATA),$(PS2STREAM_DATA),../shared/data)
TWEETS := $(DATA)/tweets_us_2021_2022.parquet
SECONDS ?= 20
FUZZ_EXAMPLES ?= 100000
FUZZ_SECONDS ?= 60
MINUTES ?= 10
SEED ?= 1
JOBS ?= 2
BY_ITSELF := tests/service/test_overload.py
LONG := tests/ray/test_moves.py tests/ray/test_rebalance.py tests/packaging/test_extras.py \
    tests/kafka/test_outages.py
PYTEST := $(BIN)/python -m pytest
BY_FILE := $(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder
# A room is a folder of tests/unit; root: the modules of ps2stream/ itself, and the recipes.
ROOM_TESTS = $(if $(filter root,$(ROOM)),$(wildcard tests/unit/*.py),tests/unit/$(ROOM))
ROOM_STAGE = unit tests of $(ROOM) (less than a minute): $(BY_FILE) $(ROOM_TESTS) $(ARGS)
CHECKS = static checks (ruff, mypy --strict, import-linter, buf, generated code; the kernels are \
    compiled beside them; about 3 min): sh scripts/check.sh $(BIN)
ALL = tests side by side (all but those of overload, $(JOBS) processes, longest files first; in CI a \
    third of those that take long, about 13 min): \
    $(BY_FILE) tests $(addprefix --ignore=,$(BY_ITSELF) $(LONG))
ALONE = tests that need the machine (overload; about 30 s): $(PYTEST) $(BY_ITSELF)
TESTS = $(if $(ROOM),"$(ROOM_STAGE)",$(if $(ARGS),"tests: $(PYTEST) $(subst ",\",$(ARGS))",\
    "$(ALL)" $(if $(ALSO),"+also: $(ALSO)") "$(ALONE)"))

.DEFAULT_GOAL := help
.PHONY: help setup venv demo test lint pytest docs chart kubernetes fuzz chaos protos lock bench clean

help: ## list the recipes
	@grep -E '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(READY) ## install into .venv what all recipes need; as root, what tests start too

venv: $(SERVER) ## install into .venv what a service needs, and nothing outside of it

# What serves is enough for a demo; tests need the rest, and programs that pip does not bring.
$(SERVER): requirements.txt pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh $(VENV) server
	@touch $@

$(READY): requirements.txt pyproject.toml scripts/setup.sh scripts/test_tools.sh
	@sh scripts/setup.sh $(VENV) dev
	@sh scripts/test_tools.sh $(VENV)
	@touch $(SERVER) $@

demo: $(SERVER) ## start a service, replay posts, show live matches, verify them
	@$(BIN)/ps2stream demo --seconds $(SECONDS) $(if $(wildcard $(TWEETS)),--input $(TWEETS)) $(ARGS)

# Each stage runs whatever came of those before; the last line adds them up.
test: $(READY) ## all checks, then all tests, or the unit tests of one room: ROOM=merger
	@$(BIN)/python scripts/stages.py $(if $(ROOM),,"$(CHECKS)") $(TESTS)

pytest: $(READY)
	@$(BIN)/python scripts/stages.py $(TESTS)

lint: $(READY) ## ruff, mypy --strict, import-linter, buf lint, generated code
	@sh scripts/lint.sh $(BIN)

docs: $(READY) ## build the documentation site into site/, or serve it: ARGS=serve
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(ARGS),$(ARGS),build) --strict

chart: $(READY) ## lint, render and package the Helm chart, and have KubeRay's own code take it
	@$(BIN)/python scripts/chart.py check
	@KUBERAY=1 $(BIN)/python -m pytest tests/helm $(ARGS)

kubernetes: $(READY) ## build a Kubernetes and run it here as root, with the chart on it (docs/cluster.md)
	@$(BIN)/python -m tests.kubernetes $(ARGS)

fuzz: $(READY) ## damaged input: FUZZ_EXAMPLES requests, FUZZ_SECONDS a reader
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "atheris==3.0.0"
	@$(if $(filter-out 0,$(FUZZ_EXAMPLES)),FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(PYTEST) tests/fuzz $(ARGS))
	@$(BIN)/python -m tests.fuzz.harness $(FUZZ_SECONDS)

chaos: $(READY) ## MINUTES of kill -9, stops, restarts and plan changes under load; hosts that die; a full disk; flipped bits; a pipeline killed
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED)
	@$(BIN)/python -m tests.chaos --kafka 3 --minutes $(MINUTES) --seed $(SEED)
	@$(BIN)/python -m tests.chaos moves --seed $(SEED)
	@$(BIN)/python -m tests.hosts cut "kill amid a move"
	@$(BIN)/python -m tests.hosts disks --seed $(SEED)
	@$(BIN)/python -m tests.chaos disk
	@$(BIN)/python -m tests.chaos flips
	@$(BIN)/python -m tests.chaos pipeline
	@$(BIN)/python -m tests.chaos pipeline --reader arrow
	@$(BIN)/python -m pytest $(LONG)

protos: $(READY) ## generate ps2stream/v1 from protos/
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/protos.sh

lock: $(READY) ## renew requirements.txt within the bounds of pyproject.toml
	@sh scripts/lock.sh $(BIN)

bench: $(SERVER) ## measure the engine (one core) and the pipeline
	@$(BIN)/ps2stream bench engine $(ARGS)
	@$(BIN)/ps2stream bench pipeline $(ARGS)

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist site examples/go/ps2stream *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
