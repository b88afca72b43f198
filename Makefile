# Each target makes what it needs; nothing is installed outside this folder and one cache folder of the user.
PYTHON ?= python3
BIN := .venv/bin
SCENARIO ?= config/scenarios/quickstart.yaml
WORKERS ?= 2
SIDE_BY_SIDE := --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
HERE := --ignore=tests/cluster
SERIAL_FILES = $$(grep -rl 'mark\.serial' tests --include='test_*.py')
SLOWEST := --durations=40 --durations-min=5
QUICK := not services and not e2e and not cluster and not slow and not sweep and not serial
UV_ALONE := --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: -r envs/uv.lock
TIER ?= test
PARALLEL.test := not sweep and not serial
PARALLEL.all := not serial
PARALLEL.quick := $(QUICK)
SERIAL.test := serial and not sweep
SERIAL.all := serial

unexport PYTHONDONTWRITEBYTECODE # each process of a test would compile all modules anew

.PHONY: help demo test test-all test-sweep test-cluster test-here test-quick test-serial test-slurm test-apptainer coverage check lint format docs messages lock schemas clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 12

demo: .venv/base ## set-up, then the quickstart: real services, a report
	$(BIN)/bench submit -c $(SCENARIO)

test: .venv/dev ## set-up, then every test: quick ones, real servers, whole scenarios, a real Slurm and Apptainer
	beside=0; $(MAKE) --jobs=2 --keep-going test-here test-slurm test-apptainer || beside=$$?; $(MAKE) test-serial && exit $$beside

test-all: test test-sweep ## `make test`, then harm matrices, fuzzing and long sweeps, with a table of each

test-cluster: .venv/dev ## set-up, then a real Slurm and a real Apptainer, and what runs on them
	$(MAKE) --jobs=2 --keep-going test-slurm test-apptainer

test-here: .venv/dev
	$(BIN)/pytest $(SIDE_BY_SIDE) $(HERE) $(SLOWEST) -m "$(PARALLEL.test)"

test-serial: .venv/dev # what measures time runs while nothing else does; the other files are not read
	$(BIN)/pytest $(SERIAL_FILES) $(SLOWEST) -m "$(SERIAL.test)"

test-sweep: .venv/dev # the longest files have hundreds of cases, so cases are shared out, not files
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=load $(HERE) --ignore=tests/e2e -m "sweep and not serial"
	$(BIN)/pytest $(SIDE_BY_SIDE) tests/e2e -m "sweep and not serial"
	$(BIN)/pytest $(HERE) -m "sweep and serial"
	$(BIN)/pytest tests/cluster -m sweep

test-slurm: .venv/dev
	$(BIN)/pytest $(SLOWEST) -m "not sweep" tests/cluster/test_slurm_*.py

test-apptainer: .venv/dev
	$(BIN)/pytest $(SLOWEST) -m "not sweep" tests/cluster/test_apptainer_*.py

coverage: .venv/dev ## lines and branches that tests reach, also in processes that they start; TIER=quick for those of `check`
	$(BIN)/pytest $(SIDE_BY_SIDE) $(HERE) -m "$(PARALLEL.$(TIER))" --cov --cov-report=
	test $(TIER) = quick || $(BIN)/pytest $(HERE) -m "$(SERIAL.$(TIER))" --cov --cov-append --cov-report=
	$(BIN)/coverage report

check: .venv/dev ## set-up, then formatting, lint, types, the workflow's lint and the quick tests
	$(MAKE) --jobs=2 --keep-going lint test-quick

test-quick: .venv/dev
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "$(QUICK)"

lint: .venv/dev ## set-up, then what `check` does without tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint --quiet > /dev/null

format: .venv/dev ## put code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt Snakefile workflow/rules

docs: .venv/dev ## what is derived from the code: layers, traceability, schemas
	$(BIN)/python docs/make.py

messages: .venv/dev ## how mistakes are worded: tests/messages.txt, to be read in review
	$(BIN)/python tests/support/messages.py

lock: .venv/dev ## renew the lock files from pyproject.toml and envs/*.in
	PATH=$(CURDIR)/$(BIN):$$PATH ./envs/lock.sh

clean: ## remove the environment and the caches of this folder; results stay
	rm -rf .venv .coverage .snakemake .seamark .mypy_cache .ruff_cache .pytest_cache

.venv/base: envs/base.lock envs/uv.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Seamark needs Python 3.11 or newer; say which with PYTHON=")'
	$(PYTHON) -m venv .venv
	-@$(BIN)/python -m pip install $(UV_ALONE)
	$(BIN)/python envs/install.py $(BIN)/python --require-hashes --no-deps -r envs/base.lock
	$(BIN)/python envs/install.py $(BIN)/python --no-deps --no-build-isolation -e .
	touch .venv/base

.venv/dev: .venv/base envs/dev.lock
	$(BIN)/python envs/install.py $(BIN)/python --require-hashes --no-deps -r envs/dev.lock
	touch .venv/dev
