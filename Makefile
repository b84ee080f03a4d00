# The whole developer interface: setup · demo · test · check · bench · docs

PYTHON ?= python3
VENV := .venv
NUMBERS := .venv-numbers
BIN := $(VENV)/bin
# uv comes from the package index into the environment itself, so that a bare Python is all one needs.
UV = $(BIN)/uv pip install --quiet --constraint constraints.txt
EXTRAS := medical,hf,lrp,excel,ray,track,wandb
STAMP := $(VENV)/.ready
NUMBERS_STAMP := $(NUMBERS)/.ready
BROWSER := $(VENV)/.browser

.PHONY: setup demo test test-torch test-numbers test-slow test-lowest test-wheel check bench fuzz docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rightreasons needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(UV) --python $(BIN)/python --group test --group check --group browser --group docs --editable '.[$(EXTRAS)]'
	touch $@

$(NUMBERS_STAMP): pyproject.toml constraints.txt | $(STAMP)
	$(PYTHON) -m venv --without-pip $(NUMBERS)
	$(UV) --python $(NUMBERS)/bin/python --group numbers --group test
	$(UV) --python $(NUMBERS)/bin/python --no-deps --editable .
	touch $@

# A browser for the tests of pages: the machine's own, else Playwright's where it can be fetched. Without one they are skipped.
$(BROWSER): $(STAMP)
	$(BIN)/python -c 'import sys; from rightreasons.exports import browser; sys.exit(browser() is None)' \
		|| timeout 300 $(BIN)/playwright install chromium || echo "no browser: tests of pages are skipped"
	touch $@

demo: $(STAMP)
	$(BIN)/rightreasons demo --out build/demo

test: test-torch test-numbers

# One process a core with one thread each: several threads in several processes hinder each other. A file stays in one process,
# because its tests share what they make.
PARALLEL := -n auto --dist loadfile
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

test-torch: $(STAMP) $(BROWSER)
	$(ONE_THREAD) $(BIN)/python -m pytest -m "not slow" $(PARALLEL)

# The numbers wing must work where torch is not installed.
test-numbers: $(NUMBERS_STAMP)
	$(ONE_THREAD) $(NUMBERS)/bin/python -m pytest -m "not torch and not slow" $(PARALLEL)

# Minutes each: every architecture, processes killed at random, end to end, and two minutes of the inputs of `make fuzz`.
test-slow: $(STAMP) $(BROWSER)
	$(BIN)/python -m pytest -m slow

# What pyproject.toml promises, in environments of their own: its lowest versions, and the wheel on every Python that is here.
test-lowest: $(STAMP)
	$(BIN)/python tests/elsewhere.py lowest

test-wheel: $(STAMP)
	$(BIN)/python tests/elsewhere.py wheel

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(NAME)

# Ten minutes of drawn input for study.toml, model.json, tables and requests; `make test-slow` tries the first two.
fuzz: $(STAMP)
	RIGHTREASONS_FUZZ_SECONDS=600 $(BIN)/python -m pytest tests/test_fuzz.py

# Checks every link, code block and name, then builds the site in build/docs. Nothing is fetched, then or when it is read.
docs: $(STAMP)
	$(BIN)/python docs/check.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/docs: open build/docs/index.html"

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
