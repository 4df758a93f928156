# Recipes: each works alone on a fresh clone that has Python 3.11 or newer, git and make.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= $(if $(PS2STREAM_DATA),$(PS2STREAM_DATA),../shared/data)
TWEETS := $(DATA)/tweets_us_2021_2022.parquet
SECONDS ?= 20
FUZZ_EXAMPLES ?= 100000
FUZZ_SECONDS ?= 60
MINUTES ?= 10
SEED ?= 1
JOBS ?= 2
BY_ITSELF := tests/map tests/service/test_overload.py
LONG := tests/ray/test_moves.py tests/ray/test_rebalance.py
PYTEST := $(BIN)/python -m pytest
# A room is a folder of tests/unit; root: the modules of ps2stream/ itself, and the recipes.
ROOM_TESTS = $(if $(filter root,$(ROOM)),$(wildcard tests/unit/*.py),tests/unit/$(ROOM))
TESTS = $(if $(ROOM),"unit tests of $(ROOM): $(PYTEST) -n $(JOBS) --dist loadfile $(ROOM_TESTS) $(ARGS)",\
    $(if $(ARGS),"tests: $(PYTEST) $(subst ",\",$(ARGS))",\
    "tests side by side: $(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder tests \
    $(addprefix --ignore=,$(BY_ITSELF) $(LONG))" \
    "tests that need the machine: $(PYTEST) $(BY_ITSELF)"))

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint pytest docs chart fuzz chaos protos lock bench clean

help: ## list the recipes
	@grep -E '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv and install the pinned packages and ps2stream itself

$(READY): requirements.txt pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh $(VENV)

demo: $(READY) ## start a service, replay posts, show live matches, verify them
	@$(BIN)/ps2stream demo --seconds $(SECONDS) $(if $(wildcard $(TWEETS)),--input $(TWEETS)) $(ARGS)

# Each stage runs whatever came of those before; the last line adds them up.
test: $(READY) ## all checks, then all tests, or the unit tests of one room: ROOM=merger
	@$(BIN)/python scripts/stages.py $(if $(ROOM),,"static checks: sh scripts/check.sh $(BIN)") \
	    $(TESTS) $(if $(ALSO),"also: $(ALSO)")

pytest: $(READY)
	@$(BIN)/python scripts/stages.py $(TESTS)

lint: $(READY) ## ruff, mypy --strict, import-linter, buf lint, generated code
	@sh scripts/lint.sh $(BIN)

docs: $(READY) ## build the documentation site into site/, or serve it: ARGS=serve
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(ARGS),$(ARGS),build) --strict

chart: $(READY) ## lint, render and package the Helm chart, and have KubeRay's own code take it
	@$(BIN)/python scripts/chart.py check
	@KUBERAY=1 $(BIN)/python -m pytest tests/helm $(ARGS)

fuzz: $(READY) ## damaged input: FUZZ_EXAMPLES requests, FUZZ_SECONDS a reader
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "atheris==3.0.0"
	@FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz $(ARGS)
	@for target in $$($(BIN)/python -m tests.fuzz.harness); do \
	    echo "== $$target, $(FUZZ_SECONDS) s"; \
	    $(BIN)/python -m tests.fuzz.harness $$target $(FUZZ_SECONDS) || exit 1; \
	done

chaos: $(READY) ## MINUTES of kill -9, stops, restarts and plan changes under load; hosts that die; a full disk; flipped bits
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) --seed $(SEED)
	@$(BIN)/python -m tests.chaos moves --seed $(SEED)
	@$(BIN)/python -m tests.hosts cut "kill amid a move"
	@$(BIN)/python -m tests.chaos disk
	@$(BIN)/python -m tests.chaos flips
	@$(BIN)/python -m pytest $(LONG)

protos: $(READY) ## generate ps2stream/v1 from protos/
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/protos.sh

lock: $(READY) ## renew requirements.txt within the bounds of pyproject.toml
	@sh scripts/lock.sh $(BIN)

bench: $(READY) ## measure the engine (one core) and the pipeline
	@$(BIN)/ps2stream bench engine $(ARGS)
	@$(BIN)/ps2stream bench pipeline $(ARGS)

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist site examples/go/ps2stream *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
