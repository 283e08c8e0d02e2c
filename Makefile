# Everything a newcomer or a developer types. Needs Python 3.11 or newer and nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.txtopo-installed

.PHONY: setup demo test test-unit test-night attack check bench bench-peers bench-pace bench-words bench-rejected bench-formats bench-kafka bench-tables bench-staging bench-memory simulate clean

setup: $(STAMP)

# Once, and again whenever the dependencies change. In the mode "compat" type checkers and editors see every type: the other one hides them in an import hook.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "txtopo needs Python 3.11 or newer; say which: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing txtopo into $(VENV). PySpark unpacks to about 480 MB, so this takes a few minutes the first time."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat --editable '.[local,dev]'
	@touch $@

# The main job on real flights, with its driver killed twice on the way.
demo: setup
	@$(BIN)/txtopo demo

# All tests, on real services, three files at a time: many of them wait for others to die, to time out or to start.
# In the order of the folders: the long files come first, and the short unit tests fill up the end.
test: setup
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# What needs neither Spark nor Postgres nor ZooKeeper: the rooms one by one, the contracts on memory stores, simulated histories.
test-unit: setup
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m "not attack and not spark and not postgres and not zookeeper and not kafka" tests/unit tests/contracts tests/simulation

# All tests ROUNDS times, each time in another random order, and then what differed. SEED repeats the orders of an earlier night.
ROUNDS ?= 10
SEED ?=
test-night: setup
	@$(BIN)/python -m tests.kit.night $(ROUNDS) $(SEED)

# Attacks that take long or want the machine for themselves: clocks that jump, full disks, standbys, deadlocks. Those that mount something need root.
attack: setup
	@$(BIN)/python -m pytest -m attack

# How many times as fast txtopo is as Structured Streaming and plain Spark, and what its protocol costs; docs/benchmarks.md says how to read it.
# CASE names cases (daily-1,words-tuple), PASSES the passes of each process, BENCH further options of `python -m benchmarks`.
CASE ?=
PASSES ?= 3
BENCH ?=
bench: setup
	@$(BIN)/python -m benchmarks --passes $(PASSES) $(if $(CASE),--case $(CASE)) $(BENCH)

# The same with Apache Storm (needs Maven and a JDK; else it is skipped, with a word) and Pathway, which are installed below build/.
bench-peers: setup
	@$(BIN)/python -m benchmarks --peers --passes $(PASSES) $(if $(CASE),--case $(CASE)) $(BENCH)

# Whether the pace holds: a commit after 100 and after 100,000 batches, then a start over 1,000,000 counted files. PACE names options of `python -m benchmarks.pace`.
PACE ?=
bench-pace: setup
	@$(BIN)/python -m benchmarks.pace $(PACE)

# Words a second by every kind of bolt, with counting and acking on and off, compared with bare PySpark.
bench-words: setup
	@PYTHONPATH=. $(BIN)/python -m benchmarks.words

# What bad lines cost: a file with and without them.
bench-rejected: setup
	@$(BIN)/python -m benchmarks.rejected_rows

# How fast tasks store large results, next to Spark's JDBC append. STAGING names options of `python -m benchmarks.large_results`.
STAGING ?=
bench-staging: setup
	@$(BIN)/python -m benchmarks.large_results $(STAGING)

# Rows a second of each format of files, compared with bare Spark on the same files. FORMATS names options of `python -m benchmarks.formats`.
FORMATS ?=
bench-formats: setup
	@$(BIN)/python -m benchmarks.formats $(FORMATS)

# Messages a second of a Kafka topic, compared with a bare consumer of the same messages. KAFKA names options of `python -m benchmarks.kafka`.
KAFKA ?=
bench-kafka: setup
	@$(BIN)/python -m benchmarks.kafka $(KAFKA)

# Rows of a table a CPU second, compared with a bare SELECT and a bare COPY of the same rows. TABLES names options of `python -m benchmarks.tables`.
TABLES ?=
bench-tables: setup
	@$(BIN)/python -m benchmarks.tables $(TABLES)

# The largest memory of driver, JVM and Python workers for a small and a large file. MEMORY names options of `python -m benchmarks.memory`, such as MEMORY="200 20000".
MEMORY ?=
bench-memory: setup
	@$(BIN)/python -m benchmarks.memory $(MEMORY)

# A long search: SEEDS simulated histories with faults and deaths, or those from FIRST:END; each failure names its seed.
SEEDS ?= 20000
simulate: setup
	@TXTOPO_SIMULATION_SEEDS=$(SEEDS) $(BIN)/python -m pytest --quiet --timeout=0 tests/simulation

# Format, lint, strict types, import arrows, layout, words not to use.
check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet tests/unit/test_layout.py tests/unit/pages/test_words.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
