# Needs GNU make and Python; dependencies are installed into .venv, from the lock files, by hash.

PYTHON ?= python3
OLDEST := $(shell sed -n 's/^requires-python = ">=\([0-9.]*\)"$$/\1/p' pyproject.toml)
VENV := .venv
BIN := $(VENV)/bin
UV := .venv-lock
PEERS := .venv-bench
PACKAGES := .ha-packages
# A terminal sees the progress of downloads; a log sees only errors.
PIP := $(BIN)/python -m pip --disable-pip-version-check $(shell test -t 2 || echo -qq)
PROTO := $(wildcard src/semel/*/*/proto/*.proto)
CODE := src tests docs $(if $(wildcard bench/*.py),bench)

HOST ?= 127.0.0.1
PORT ?= 8788
DATA ?= data
PYTEST ?=
# Some tests wait for time to pass: four workers leave less of two cores idle than three do.
WORKERS ?= 4
SURFACE ?=
WHAT ?=
STORE ?= sqlite
KILLS ?= 100
SEEDS ?= 20
RUNS ?= $(SEEDS)
FAILOVERS ?= 20
LAYOUT ?= direct
FRAMES ?= 100000
CASES ?= 1000000
ROUNDS ?=
KEEP ?=
PART ?=
ONLY ?=
LONGEST ?= 3
EVERY ?= 4
UPGRADE ?=
SITE ?= build/site
DAY ?=

# Which share of the exhaustive cases the tests try: tests/harness/share.py.
ifneq ($(DAY),)
export TEST_DAY := $(DAY)
endif

# What crash, soak and bench can be asked for, and what they take when nothing is named.
CRASHES := streams forks subscriptions events groups jobs ledger deltas replica
CRASH_OF_forks := tests.streams.forks
CRASH_OF_groups := tests.events.crash.groups
CRASH_OF_subscriptions := tests.streams.crash.subscriptions
CRASH_OF_replica := tests.client.crash
MODELS := events jobs ledger deltas
CRASH := $(or $(SURFACE),streams)
MODEL := $(or $(SURFACE),events)
SOAKS := model express powercut fuzz law stutter openapi
SOAK := $(or $(WHAT),model)
BENCH := $(or $(WHAT),all)
# What a measurement installs besides, if it sets Semel beside other packages.
BESIDE := $(if $(filter all appends receipts latency jobs streams events deltas ledger postgres growth peers,$(BENCH)),$(PEERS)/.stamp)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/.package ## start the server on http://127.0.0.1:8788, data in ./data (HOST=, PORT=, DATA=)
	@exec $(BIN)/semel serve --host $(HOST) --port $(PORT) --data $(DATA)

.PHONY: test
test: $(VENV)/.dev ## check, then run every test, four files at a time (PYTEST= adds options, WORKERS=4, DAY=0 to 6 or all: which exhaustive cases)
	@$(COMPILE) & $(MAKE) check; code=$$?; wait; exit $$code
	@$(SUITE)

.PHONY: quick
quick: $(VENV)/.dev ## models and rules in under a minute: no server, stores in memory (PYTEST= adds options, WORKERS=4)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --quiet -k "not postgres and not sqlite and not found_out" $(QUICK) $(PYTEST)

.PHONY: check
check: $(VENV)/.dev ## lint, formatting, types and import layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "make format would mend this:"; $(BIN)/ruff format --check .; }
	@$(BIN)/mypy --no-error-summary $(CODE)
	@$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/.dev ## format the code and apply the safe fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: docs
docs: tables ## write the generated tables, then build the site: build/site/VERSION/index.html (SITE=build/site)
	@$(BIN)/python -m docs.site --into $(SITE)

.PHONY: tables
tables: $(VENV)/.dev ## write the tables and diagrams of the docs that are generated from the code
	@$(BIN)/python -m docs.generate

.PHONY: crash
crash: $(VENV)/.dev ## kill servers under load and check every answer (SURFACE=streams|forks|subscriptions|events|groups|jobs|ledger|deltas|replica, KILLS=100, STORE=sqlite)
	@$(call known,$(CRASH),$(CRASHES))
	@$(BIN)/python -m $(or $(CRASH_OF_$(CRASH)),tests.$(CRASH).crash) --kills $(KILLS) $(if $(filter-out replica,$(CRASH)),--store $(STORE))

.PHONY: failover
failover: $(VENV)/.dev ## fail a PostgreSQL over under two nodes with load, and check every append (FAILOVERS=20)
	@$(BIN)/python -m tests.failover --rounds $(FAILOVERS)

.PHONY: ha
ha: $(VENV)/.dev $(PACKAGES)/.stamp ## faults of a Patroni cluster under two nodes with load, and check every append (ROUNDS=20, LAYOUT=direct|pgbouncer; Debian 12)
	@$(call known,$(LAYOUT),direct pgbouncer)
	@$(BIN)/python -m tests.ha --rounds $(or $(ROUNDS),20) --layout $(LAYOUT)

.PHONY: mutants
mutants: $(VENV)/.dev ## plant every bug of the table, one at a time, and see that a test notices (PART=1 to 31, ONLY= a word)
	@$(BIN)/python -m tests.mutants.run $(if $(PART),--part $(PART)) $(if $(ONLY),--only $(ONLY))

.PHONY: exhaustive
exhaustive: $(VENV)/.dev ## try every case of the tests that deal theirs out by day, of which make test tries a seventh (WORKERS=4)
	@TEST_DAY=all $(SUITE) $(EXHAUSTIVE)

.PHONY: soak
soak: $(VENV)/.dev ## long runs: WHAT=model (SURFACE=, SEEDS=20), express (CASES=), powercut (RUNS= cuts), fuzz (FRAMES=), law (ONLY=), stutter (PYTEST=, LONGEST=3, EVERY=4), openapi (RUNS= seeds)
	@$(call known,$(SOAK),$(SOAKS))
	@$(call known,$(MODEL),$(MODELS))
	@$(soak_$(SOAK))

.PHONY: bench
bench: $(VENV)/.dev $(BESIDE) ## measure WHAT=all|appends|receipts|latency|jobs|streams|events|deltas|ledger|postgres|growth|report|nodes|namespaces|scaling|fanout|jobs_depth|ledger_wires|proofs|deltas_growth|peers|once|memory|host|clients|fronts|hostile|key_index|quotas|find (ROUNDS=, ONLY=, KEEP= a folder to reuse)
	@$(BIN)/python -m bench $(BENCH) $(if $(BESIDE),--peers $(PEERS)/bin/python) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(KEEP),--keep $(KEEP)) $(if $(ONLY),--only $(ONLY))

.PHONY: lock
lock: $(UV)/.stamp ## renew the lock files from pyproject.toml (UPGRADE=1 takes the newest versions)
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra server --output-file requirements.lock
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra dev --extra docs --extra server --extra proxy --extra postgres --extra grpc --extra parquet --extra otel --extra s3 \
		--constraint requirements.lock --output-file requirements-dev.lock
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra server --extra postgres --extra grpc --extra s3 \
		--constraint requirements-dev.lock --output-file deploy/requirements-image.lock
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra bench --extra server --extra proxy --extra postgres \
		--constraint requirements-dev.lock --output-file requirements-bench.lock

.PHONY: fixture
fixture: $(VENV)/.dev ## write the data folder of the present schema that later versions must open, into tests/upgrades
	@$(BIN)/python -m tests.upgrades.fixture

.PHONY: release
release: $(VENV)/.dev $(UV)/.stamp ## build dist/: wheel, source, OpenAPI document, bill of materials (SBOM) and checksums
	@$(BIN)/python -m pytest --quiet tests/upgrades
	@rm -rf dist
	@$(UV)/bin/uv build --quiet --out-dir dist
	@rm -f dist/.gitignore
	@$(BIN)/python -c 'from semel.server.api_document import api_document; import sys; sys.stdout.buffer.write(api_document())' > dist/openapi.json
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --output-file dist/semel.cdx.json \
		deploy/requirements-image.lock
	@cd dist && sha256sum * > SHA256SUMS
	@ls -l dist

.PHONY: clean
clean: ## remove everything that make and the tools have made, but not ./data
	@rm -rf $(VENV) $(UV) $(PEERS) $(PACKAGES) build dist
	@rm -rf tests/official/node_modules tests/events/insieme/node_modules bench/bullmq/node_modules bench/restate/node_modules \
		bench/durable_streams/node_modules
	@rm -rf tests/deltas/identity/node_modules tests/server/console/node_modules
	@rm -f src/semel/*/*/proto/*_pb2.py src/semel/*/*/proto/*_pb2.pyi src/semel/*/*/proto/*.binpb
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests of `make quick`: values and rules in the process of the tests.
QUICK := tests/kernel tests/engine tests/*/rules tests/ledger/wire tests/jobs/model tests/ledger/model tests/deltas/model
# These take more than 8 s of CPU each; make test runs them.
QUICK += $(addprefix --ignore tests/,kernel/test_json_outline.py kernel/test_large_json.py kernel/test_json_messages.py \
	kernel/test_canonical_properties.py deltas/rules/test_findings_crowd.py)

# The long runs: random commands, clocks and crashes against a model; the express paths beside the full ones; power
# cuts under the SQLite store; mutated frames to the events surface; how long the worst requests hold the event loop, which
# writes the table of docs/internals/loop-law.md; requests made from the OpenAPI document; and the tests while their processes are stopped for up to LONGEST
# seconds, about every EVERY seconds.
soak_model = $(BIN)/python -m tests.$(MODEL).model $(if $(filter deltas,$(MODEL)),--runs $(RUNS),--seeds $(SEEDS))
EXPRESS := $(addsuffix .differential,streams.rules streams.shapes jobs.rules jobs.shapes events.rules deltas.rules)
EXPRESS += ledger.shapes.differential jobs.shapes.bodies events.rules.plain_messages
soak_express = $(foreach part,$(EXPRESS),$(BIN)/python -m tests.$(part) --cases $(CASES) &&) true
soak_powercut = $(BIN)/python -m tests.store.powercut --cuts $(if $(filter file,$(origin RUNS)),1000,$(RUNS))
soak_fuzz = $(BIN)/python -m tests.events.fuzz --frames $(FRAMES)
soak_openapi = $(BIN)/python -m tests.openapi --runs $(RUNS)
soak_law = $(BIN)/python -m tests.law.run --only "$(ONLY)"
soak_stutter = $(BIN)/python -m tests.harness.stutter --longest $(LONGEST) --every $(EVERY) -- $(SUITE)
# Collecting leaves compiled modules. Beside the checks, which use one core, it costs no time; without it every worker
# compiles all modules of the tests.
COMPILE = $(BIN)/python -m pytest --collect-only --quiet --quiet $(PYTEST) >/dev/null 2>&1
SUITE = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

# Ends the recipe unless the first word is one of the others.
known = $(if $(filter $(1),$(2)),:,echo "There is no '$(1)' here; take one of: $(2)" >&2; exit 2)

# The test files that deal out their cases.
EXHAUSTIVE = $(shell grep -rl --include='test_*.py' 'tests.harness.share import' tests)

# One lock for every platform and every Python that pyproject.toml allows; it names packages and hashes, and no index.
LOCK := --quiet --universal --python-version $(OLDEST) --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

CLUSTER := patroni python3-etcd etcd-server etcd-client postgresql-15 postgresql-client-15 pgbouncer

# Stamps inside the virtual environment: what is installed is as new as the file that asked for it.

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
$(PEERS)/.stamp: requirements-bench.lock $(UV)/.stamp
	@echo "installing $<"
	@$(PYTHON) -m venv $(PEERS)
	@$(UV)/bin/uv pip install --quiet --python $(PEERS)/bin/python --require-hashes --requirement $<
	@touch $@

# Debian's packages of a Patroni cluster, downloaded with what the machine lacks and unpacked into a folder: nothing is
# installed, no service is started. --reinstall downloads the programs themselves even where they are installed.
$(PACKAGES)/.stamp:
	@echo "unpacking $(CLUSTER)"
	@rm -rf $(PACKAGES)
	@mkdir -p $(PACKAGES)/archives/partial
	@apt-get -qq -o Dir::Cache::archives=$(CURDIR)/$(PACKAGES)/archives -o Debug::NoLocking=1 -o APT::Sandbox::User= \
		--download-only --reinstall --no-install-recommends --yes install $(CLUSTER) >/dev/null
	@for package in $(PACKAGES)/archives/*.deb; do dpkg -x $$package $(PACKAGES) || exit; done
	@rm -rf $(PACKAGES)/archives
	@touch $@

$(UV)/.stamp:
	@$(PYTHON) -m venv $(UV)
	@$(UV)/bin/python -m pip --disable-pip-version-check -qq install uv
	@touch $@
