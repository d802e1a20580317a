# Two commands: `make demo` trains a parser and draws a tree, `make test` runs every check.
# Both make .venv first, if it is not there, with the versions that constraints.txt pins.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
LAUNCH := $(BIN)/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no
# Tests run in as many processes as there are cores, each with one thread of its own.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test quick lint format setup verify clean

demo: $(READY)
	$(LAUNCH) -m seqtrans.train task=parsing run=runs/demo
	$(BIN)/seqtrans evaluate run=runs/demo split=test
	@echo
	echo 'The old ferry left the harbour before the storm arrived .' | $(BIN)/seqtrans transduce run=runs/demo format=drawing

test: $(READY) lint verify
	$(PYTEST)

quick: $(READY) lint
	$(PYTEST) -m 'not slow'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

verify: $(READY)
	$(BIN)/python -m benchmarks verify

setup: $(READY)

# torch is installed by itself first, so that a CPU build which is there already is kept by the rest.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]' \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
