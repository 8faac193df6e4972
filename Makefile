# Needs GNU make and Python; dependencies are installed into .venv, from the lock files, by hash.

PYTHON ?= python3
OLDEST := $(shell sed -n 's/^requires-python = ">=\([0-9.]*\)"$$/\1/p' pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
UV := .venv-lock
PEERS := .venv-bench
# A terminal sees the progress of downloads; a log sees only errors.
PIP := $(BIN)/python -m pip --disable-pip-version-check $(shell test -t 2 || echo -qq)
PROTO := $(wildcard src/semel/*/*/proto/*.proto)
CODE := src tests docs bench
# Some tests wait for time to pass: four workers leave less of two cores idle than three do.
WORKERS ?= 4
SUITE = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)
# The tests of `make quick`: values and rules in the process of the tests, without those that take 8 s of CPU and more.
QUICK := tests/kernel tests/engine tests/*/rules tests/ledger/wire tests/jobs/model tests/ledger/model tests/deltas/model
QUICK += $(addprefix --ignore tests/,kernel/test_json_outline.py kernel/test_large_json.py kernel/test_json_messages.py \
	kernel/test_canonical_properties.py deltas/rules/test_findings_crowd.py)
# What a measurement installs besides, if it sets Semel beside other packages.
BESIDE = $(if $(filter-out jobs_depth once outbox memory host key_index,$(or $(WHAT),all)),$(PEERS)/.stamp)
# One lock for every platform and every Python that pyproject.toml allows; it names packages and hashes, and no index.
LOCK = $(UV)/bin/uv pip compile --quiet --universal --python-version $(OLDEST) --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) pyproject.toml

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help run test quick check format docs crash nightly bench lock release clean
help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.package ## start the server on http://127.0.0.1:8788, data in ./data (HOST=, PORT=, DATA=)
	@exec $(BIN)/semel serve --host $(or $(HOST),127.0.0.1) --port $(or $(PORT),8788) --data $(or $(DATA),data)

# Collecting leaves compiled modules. Beside the checks, which use one core, it costs no time; without it every worker
# compiles all modules of the tests.
test: $(VENV)/.dev ## check, then run the suite, four files at a time (PYTEST= adds options, WORKERS=4)
	@$(BIN)/python -m pytest --collect-only -qq $(PYTEST) >/dev/null 2>&1 & $(MAKE) check; code=$$?; wait; exit $$code
	@$(SUITE)

quick: $(VENV)/.dev ## models and rules in under a minute: no server, stores in memory (PYTEST= adds options, WORKERS=4)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -q -k "not postgres and not sqlite and not found_out" $(QUICK) $(PYTEST)

check: $(VENV)/.dev ## lint, formatting, types and import layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "make format would mend this:"; $(BIN)/ruff format --check .; }
	@$(BIN)/mypy --no-error-summary $(CODE)
	@$(BIN)/lint-imports

format: $(VENV)/.dev ## format the code and apply the safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

docs: $(VENV)/.dev ## write the generated parts of the docs, then build the site: build/site/VERSION/index.html (SITE=build/site)
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m docs.site --into $(or $(SITE),build/site)

crash: $(VENV)/.dev ## kill servers under load and check every answer (SURFACE=streams, KILLS=100, STORE=sqlite)
	@$(BIN)/python -m tests.nightly crash $(or $(SURFACE),streams) $(or $(KILLS),100) $(or $(STORE),sqlite)

nightly: $(VENV)/.dev ## the long runs, all in turn (NAME= one of them, NAME=list prints them; ARGS= adds options)
	@$(BIN)/python -m tests.nightly $(NAME) $(ARGS)

bench: $(VENV)/.dev $(BESIDE) ## measure beside peers: docs/internals/testing.md (WHAT= a part, ROUNDS=, ONLY=, KEEP= a folder to reuse)
	@$(BIN)/python -m bench $(or $(WHAT),all) $(if $(BESIDE),--peers $(PEERS)/bin/python) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(KEEP),--keep $(KEEP)) $(if $(ONLY),--only $(ONLY))

lock: $(UV)/.stamp ## renew the lock files from pyproject.toml (UPGRADE=1 takes the newest versions)
	@$(LOCK) $(addprefix --extra ,server) --output-file requirements.lock
	@$(LOCK) $(addprefix --extra ,dev docs server proxy postgres grpc otel) --constraint requirements.lock --output-file requirements-dev.lock
	@$(LOCK) $(addprefix --extra ,server postgres grpc) --constraint requirements-dev.lock --output-file deploy/requirements-image.lock
	@$(LOCK) $(addprefix --extra ,bench server proxy postgres) --constraint requirements-dev.lock --output-file bench/requirements.lock

release: $(VENV)/.dev $(UV)/.stamp ## build dist/: wheel, source, OpenAPI document, bill of materials (SBOM) and checksums
	@rm -rf dist
	@$(UV)/bin/uv build --quiet --out-dir dist
	@rm -f dist/.gitignore
	@$(BIN)/python -c 'from semel.server.api_document import api_document; import sys; sys.stdout.buffer.write(api_document())' > dist/openapi.json
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --output-file dist/semel.cdx.json \
		deploy/requirements-image.lock
	@cd dist && sha256sum * > SHA256SUMS
	@ls -l dist

clean: ## remove everything that make and the tools have made, but not ./data
	@rm -rf $(VENV) $(UV) $(PEERS) .ha-packages build dist .hypothesis .*_cache
	@rm -f src/semel/*/*/proto/*_pb2.py src/semel/*/*/proto/*_pb2.pyi src/semel/*/*/proto/*.binpb
	@find $(CODE) \( -name __pycache__ -o -name node_modules \) -type d -prune -exec rm -rf {} +

# Stamps inside the virtual environments: what is installed is as new as the file that asked for it.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(OLDEST)".split("."))))' || { \
		echo "Semel needs Python $(OLDEST) or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: requirements.lock | $(VENV)/.python
	@echo "installing $<"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

$(VENV)/.package: pyproject.toml hatch_build.py $(PROTO) $(VENV)/.runtime
	@$(PIP) install --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.package
	@echo "installing $<"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

# By uv: older versions of pip look at versions of psycopg[binary] that the lock does not name, and stop.
$(PEERS)/.stamp: bench/requirements.lock $(UV)/.stamp
	@echo "installing $<"
	@$(PYTHON) -m venv $(PEERS)
	@$(UV)/bin/uv pip install --quiet --python $(PEERS)/bin/python --require-hashes --requirement $<
	@touch $@

$(UV)/.stamp:
	@$(PYTHON) -m venv $(UV)
	@$(UV)/bin/python -m pip --disable-pip-version-check -qq install uv
	@touch $@
