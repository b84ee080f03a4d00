# The whole developer interface: setup · demo · test · check · bench · docs

PYTHON ?= python3
VENV := .venv
NUMBERS := .venv-numbers
BIN := $(VENV)/bin
# uv comes from the package index into the environment itself, so that a bare Python is all one needs.
UV = $(BIN)/uv pip install --quiet --constraint constraints.txt
EXTRAS := medical,hf,lrp,ray
STAMP := $(VENV)/.ready
NUMBERS_STAMP := $(NUMBERS)/.ready
BROWSER := $(VENV)/.browser

.PHONY: setup demo test test-torch test-numbers test-slow check bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rightreasons needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	$(UV) --python $(BIN)/python --group test --group check --group browser --editable '.[$(EXTRAS)]'
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

test-torch: $(STAMP) $(BROWSER)
	$(BIN)/python -m pytest -m "not slow"

# The numbers wing must work where torch is not installed.
test-numbers: $(NUMBERS_STAMP)
	$(NUMBERS)/bin/python -m pytest -m "not torch and not slow"

# Minutes each: every architecture, processes killed at random, end to end.
test-slow: $(STAMP) $(BROWSER)
	$(BIN)/python -m pytest -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(NAME)

docs: $(STAMP)
	$(BIN)/python docs/build.py

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
