# Needs GNU make and Python 3.11 or later; dependencies are installed into .venv, from the lock files, by hash.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := .venv-lock
PEERS := .venv-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
PROTO := $(wildcard src/semel/*/*/proto/*.proto)
CODE := src tests docs $(if $(wildcard bench/*.py),bench)

HOST ?= 127.0.0.1
PORT ?= 8788
DATA ?= data
PYTEST ?=
WORKERS ?= 3
LONGEST ?= 3
EVERY ?= 4
UPGRADE ?=
KILLS ?= 100
STORE ?= sqlite
FAILOVERS ?= 20
ROUNDS ?= 5
FRAMES ?= 100000
SEEDS ?= 20
RUNS ?= 20
KEEP ?=
PART ?=
ONLY ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/.package ## start the server on http://127.0.0.1:8788, data in ./data (HOST=, PORT=, DATA=)
	@exec $(BIN)/semel serve --host $(HOST) --port $(PORT) --data $(DATA)

.PHONY: test
test: check ## check, then run every test, three files at a time (PYTEST= adds options, WORKERS=3)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

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

.PHONY: diagrams
diagrams: $(VENV)/.dev ## write the tables and diagrams of the docs that are made from the code
	@$(BIN)/python -m docs.generate

.PHONY: official
official: $(VENV)/.dev ## run only the official Durable Streams suite
	@$(BIN)/python -m pytest tests/official $(PYTEST)

.PHONY: stutter
stutter: $(VENV)/.dev ## run the tests while their processes stand still now and then (PYTEST= chooses, LONGEST=3, EVERY=4 seconds)
	@$(BIN)/python -m bench.stutter --longest $(LONGEST) --every $(EVERY) -- \
		$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

.PHONY: crash
crash: $(VENV)/.dev ## kill a server under load, again and again, and check every append (KILLS=100, STORE=sqlite)
	@$(BIN)/python -m bench.crash --kills $(KILLS) --store $(STORE)

.PHONY: failover
failover: $(VENV)/.dev ## fail a PostgreSQL over under two nodes with load, and check every append (FAILOVERS=20)
	@$(BIN)/python -m bench.failover --rounds $(FAILOVERS)

.PHONY: bench
bench: $(VENV)/.dev ## measure appends beside the bare HTTP host, alternating; prints ratios (ROUNDS=5)
	@$(BIN)/python -m bench.appends --rounds $(ROUNDS)

.PHONY: benchpg
benchpg: $(VENV)/.dev ## measure appends on PostgreSQL beside one transaction a request, alternating (ROUNDS=5)
	@$(BIN)/python -m bench.postgres --rounds $(ROUNDS)

.PHONY: benchevents
benchevents: $(VENV)/.dev ## measure committed events and fan-out beside Insieme's own server, alternating (ROUNDS=5)
	@$(BIN)/python -m bench.events --rounds $(ROUNDS)

.PHONY: benchjobs
benchjobs: $(VENV)/.dev $(PEERS)/.stamp ## measure jobs beside Procrastinate, DBOS and BullMQ, alternating (ROUNDS=5)
	@$(BIN)/python -m bench.jobs --rounds $(ROUNDS) --peers $(PEERS)/bin/python

.PHONY: benchdepth
benchdepth: $(VENV)/.dev ## measure what a claim costs with 1,000 and with 1,000,000 queued jobs (ROUNDS=5)
	@$(BIN)/python -m bench.jobs_depth --rounds $(ROUNDS)

.PHONY: benchpeers
benchpeers: $(VENV)/.dev $(PEERS)/.stamp ## kill one application at every point under semel.once, idemkit, DBOS and others, and count effects
	@$(BIN)/python -m bench.peers --peers $(PEERS)/bin/python

.PHONY: benchonce
benchonce: $(VENV)/.dev ## measure once.transaction beside the same transaction without it, alternating (ROUNDS=5)
	@$(BIN)/python -m bench.once_costs --rounds $(ROUNDS)

.PHONY: benchledger
benchledger: $(VENV)/.dev ## measure transactions on SQLite and PostgreSQL, over HTTP and gRPC, alternating (ROUNDS=5)
	@$(BIN)/python -m bench.ledger --rounds $(ROUNDS)

.PHONY: benchproofs
benchproofs: $(VENV)/.dev ## measure proofs and state roots as the ledger grows to 1,000,000 (ROUNDS=5; KEEP= a folder to reuse)
	@$(BIN)/python -m bench.ledger_growth --rounds $(ROUNDS) $(if $(KEEP),--keep $(KEEP)) \
		--picture docs/internals/ledger-state-root.svg

.PHONY: benchdeltas
benchdeltas: $(VENV)/.dev ## measure pushes, pulls and starts with 1,000 to 1,000,000 stored deltas (ROUNDS=5; KEEP= a folder to reuse)
	@$(BIN)/python -m bench.deltas --rounds $(ROUNDS) $(if $(KEEP),--keep $(KEEP))

.PHONY: mutants
mutants: $(VENV)/.dev ## plant every bug of the table, one at a time, and see that a test notices (PART=1 to 5, ONLY= a word)
	@$(BIN)/python -m bench.mutants $(if $(PART),--part $(PART)) $(if $(ONLY),--only $(ONLY))

.PHONY: fuzz
fuzz: $(VENV)/.dev ## send mutated frames to the events surface and judge every answer (FRAMES=100000)
	@$(BIN)/python -m bench.fuzz_events --frames $(FRAMES)

.PHONY: model
model: $(VENV)/.dev ## random clients, cuts, restarts and kills against a model of the event log (SEEDS=20)
	@$(BIN)/python -m bench.model_events --seeds $(SEEDS)

.PHONY: crashevents
crashevents: $(VENV)/.dev ## kill a server under submissions, again and again, and check every event (KILLS=100, STORE=sqlite)
	@$(BIN)/python -m bench.crash_events --kills $(KILLS) --store $(STORE)

.PHONY: crashjobs
crashjobs: $(VENV)/.dev ## kill servers and workers under a load of jobs and check every key, lease and end (KILLS=100, STORE=sqlite)
	@$(BIN)/python -m bench.crash_jobs --kills $(KILLS) --store $(STORE)

.PHONY: modeljobs
modeljobs: $(VENV)/.dev ## random commands, clocks and crashes against a model of jobs (SEEDS=20)
	@$(BIN)/python -m bench.model_jobs --seeds $(SEEDS)

.PHONY: crashledger
crashledger: $(VENV)/.dev ## kill servers under a load of transactions and check every block and answer (KILLS=100, STORE=sqlite)
	@$(BIN)/python -m bench.crash_ledger --kills $(KILLS) --store $(STORE)

.PHONY: modelledger
modelledger: $(VENV)/.dev ## random requests, clocks and crashes against a model of the ledger (SEEDS=20; 500 are 200,000)
	@$(BIN)/python -m bench.model_ledger --seeds $(SEEDS)

.PHONY: crashdeltas
crashdeltas: $(VENV)/.dev ## kill servers under pushes and pulls and check every delta, page and row (KILLS=100, STORE=sqlite)
	@$(BIN)/python -m bench.crash_deltas --kills $(KILLS) --store $(STORE)

.PHONY: modeldeltas
modeldeltas: $(VENV)/.dev ## random pushes, pulls, clocks and crashes against a model of deltas, and three clients (RUNS=20)
	@$(BIN)/python -m bench.model_deltas --runs $(RUNS)

.PHONY: crashreplica
crashreplica: $(VENV)/.dev ## kill a replica of deltas while it writes and syncs, and check every change (KILLS=100)
	@$(BIN)/python -m bench.crash_replica --kills $(KILLS)

.PHONY: memory
memory: $(VENV)/.dev ## measure memory: ten thousand idle readers, and writers against a slow disk
	@$(BIN)/python -m bench.memory

.PHONY: law
law: $(VENV)/.dev ## measure how long the worst requests hold the event loop, and their memory, and write the table (ONLY=)
	@$(BIN)/python -m bench.loop_law --only "$(ONLY)"

.PHONY: lock
lock: $(UV)/.stamp ## renew the lock files from pyproject.toml (UPGRADE=1 takes the newest versions)
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra server --output-file requirements.lock
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra dev --extra server --extra proxy --extra postgres --extra grpc --extra parquet \
		--constraint requirements.lock --output-file requirements-dev.lock
	@$(UV)/bin/uv pip compile $(LOCK) pyproject.toml --extra bench --extra server --extra proxy --constraint requirements-dev.lock \
		--output-file requirements-bench.lock

.PHONY: clean
clean: ## remove everything that make and the tools have made, but not ./data
	@rm -rf $(VENV) $(UV) $(PEERS) build dist
	@rm -rf tests/official/node_modules tests/events/insieme/node_modules bench/bullmq/node_modules bench/restate/node_modules
	@rm -rf tests/deltas_identity/node_modules
	@rm -f src/semel/*/*/proto/*_pb2.py src/semel/*/*/proto/*_pb2.pyi src/semel/*/*/proto/*.binpb
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# One lock for every platform and every Python from 3.11 on; it names packages and hashes, and no index.
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

# Stamps inside the virtual environment: what is installed is as new as the file that asked for it.

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Semel needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
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

$(PEERS)/.stamp: requirements-bench.lock
	@echo "installing $<"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check -qq install --require-hashes --requirement $<
	@touch $@

$(UV)/.stamp:
	@$(PYTHON) -m venv $(UV)
	@$(UV)/bin/python -m pip --disable-pip-version-check -qq install uv
	@touch $@
