# `make demo` and `make test` set everything up by themselves, in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRAMEWORKS := .venv-frameworks
PACKAGING := .venv-packaging
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Two cores, two test processes, one thread each unless the caller wants more: small models gain nothing from it.
ONE_THREAD := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} MKL_NUM_THREADS=$${MKL_NUM_THREADS:-1}

.PHONY: demo test test-long test-default-cpu test-machines test-frameworks lint format bench docs site dist browser clean

demo: $(READY)
	$(BIN)/steadyrun demo rare-token-spike

test: $(READY) browser
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long"

# What takes longest: every command of the tutorial and of the how-to pages, the examples, public logs, whole stories.
test-long: $(READY) browser
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m long

# The first of every ten tests of each file, with the results of a CPU without AVX: no test may depend on last bits.
test-default-cpu: $(READY) browser
	ATEN_CPU_CAPABILITY=default $(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not long" --every 10

# The whole suite under each setting that changes last bits: about an hour.
test-machines: $(READY) browser
	$(BIN)/python tests/machines.py --test

# Integrations, trackers and importers against the real frameworks, in an environment of their own: `make test` runs
# where none of them is installed. Workers have a process of their own, and nothing captures its output: a cluster may
# close the streams that it finds.
test-frameworks: $(FRAMEWORKS)/.ready
	$(ONE_THREAD) $(FRAMEWORKS)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" tests/frameworks \
		--ignore-glob '*_workers.py'
	$(ONE_THREAD) $(FRAMEWORKS)/bin/python -m pytest -m "not slow" --capture no $(wildcard tests/frameworks/*_workers.py)
	$(ONE_THREAD) $(FRAMEWORKS)/bin/python tests/frameworks/install_lines.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow
	$(BIN)/python benchmarks/run_all.py

# Everything in docs/ that is generated: pages from the code, output of executed commands, pictures of trained runs.
docs: $(READY) browser
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/executed_pages.py
	$(ONE_THREAD) $(BIN)/python docs/screenshots.py
	$(ONE_THREAD) $(BIN)/python docs/gallery.py

# The docs as a site in build/site, with search; open build/site/index.html, no server and no network needed.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

# The sdist and the wheel, which must install and start. With TAG=v1.2.3 in the environment, the version must be 1.2.3.
dist:
	PYTHONPATH=src $(PYTHON) -c 'import os, sys, steadyrun; tag = os.environ.get("TAG"); version = steadyrun.__version__; \
	sys.exit(f"the tag is {tag}, but steadyrun.__version__ is {version}" if tag and tag != f"v{version}" else 0)'
	rm -rf dist $(PACKAGING)
	$(PYTHON) -m venv $(PACKAGING)
	$(PACKAGING)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build
	$(PACKAGING)/bin/python -m build
	$(PACKAGING)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	$(PACKAGING)/bin/steadyrun --version

# Some tests and the screenshots need a real browser. Where none can be installed, those tests are skipped, loudly.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	     && echo "installing chromium, for the tests of the dashboard" \
	     && apt-get update -qq && apt-get install -y -qq chromium fonts-dejavu-core >/dev/null; } \
	|| echo "!!! NO BROWSER: chromium is not installed and cannot be (not root, or no apt-get). Tests of the" \
	        "dashboard in a real browser will be SKIPPED. Install chromium to run them." >&2

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(PACKAGING) build dist

# torch is asked for exactly first: a looser request pulls gigabytes of CUDA libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "steadyrun needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	@echo "installing torch and the rest into $(VENV); the first time this takes a minute or two"
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[tutor,dev]'
	touch $(READY)

$(FRAMEWORKS)/.ready: pyproject.toml constraints.txt
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	@echo "installing the frameworks into $(FRAMEWORKS); the first time this takes a few minutes"
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--editable '.[tutor,dev,frameworks]'
	touch $(FRAMEWORKS)/.ready
