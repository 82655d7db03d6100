# Needs Python 3.11 or newer, make and git; everything else is installed into .venv.
PYTHON ?= python3
UV_VERSION = 0.13.7
SYNC = env -u VIRTUAL_ENV .venv/bin/uv sync --quiet --frozen --inexact --no-python-downloads --python .venv/bin/python

# Tests wait for most of their time: two cores are busy with six processes.
PROCESSES ?= 6
# The tests start thousands of processes: each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test every versions pythons pages picture chromium vendor chaos fuzz bench compare pairs figures mutants check lint format setup clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: .venv/.light ## book two trips: a lost reply is retried, a trip that cannot be had is undone
	@PATH="$(CURDIR)/.venv/bin:$$PATH" sh examples/demo.sh

# Tests with real processes have deadlines, which a machine that others use may miss: what failed must pass alone.
test: .venv/.full ## run the tests (ARGS="-k claim -x" is handed to pytest)
	@.venv/bin/pytest -n $(PROCESSES) --dist loadgroup -m "not long" $(ARGS) || { code=$$?; [ $$code -eq 1 ] || exit $$code; \
	  echo "once more, alone: what failed"; .venv/bin/pytest -m "not long" --last-failed --last-failed-no-failures none $(ARGS); }

every: .venv/.full ## run the tests, and those that take long, too
	@.venv/bin/pytest -n $(PROCESSES) --dist loadgroup $(ARGS)

# Those of other PostgreSQL versions that are installed here, as Debian's packages do it. The tests bring 18 along.
versions: .venv/.full ## run what the stores claim on every PostgreSQL installed here
	@for bin in /usr/lib/postgresql/*/bin; do [ -x $$bin/initdb ] || { echo "no other PostgreSQL is installed here"; break; }; \
	  echo "$$bin"; HOLDFAST_TEST_PG_BIN=$$bin .venv/bin/pytest -q -n $(PROCESSES) --dist loadgroup tests/store tests/differential tests/roles/test_runs.py tests/roles/test_undo.py -k "not sqlite" $(ARGS) || exit 1; done

# Each gets a folder of its own beside .venv. What depends on the interpreter: the language, payloads, the loop, processes.
pythons: .venv/.full ## run the tests on other Pythons installed here (ARGS="tests/unit" for a part)
	@for version in 3.12 3.13 3.14; do found=; \
	  for one in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do "$$one" -c "" 2>/dev/null && found=$$one; done; \
	  [ -n "$$found" ] || { echo "no Python $$version is installed here"; continue; }; echo "Python $$version"; \
	  env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=.venv-$$version .venv/bin/uv sync --quiet --frozen --all-extras --python "$$found" || exit 1; \
	  .venv-$$version/bin/pytest -q -n $(PROCESSES) --dist loadgroup -m "not long" $${ARGS:-tests/unit tests/store tests/roles tests/testing} || exit 1; done

pages: .venv/.full ## try every page of the dashboard in Chromium, with pictures in work/pages (make chromium installs one)
	@.venv/bin/pytest tests/pages $(ARGS)

# The one that README and the docs show. Other pictures go to work/pages, which no commit has.
picture: .venv/.full ## make the picture of the dashboard in docs/dashboard.png
	@HOLDFAST_PICTURES=1 .venv/bin/pytest -q tests/pages/test_browser.py -k docs_show $(ARGS)

chromium: ## install Chromium for the tests of the pages, where Debian's packages are at hand
	@command -v chromium >/dev/null && echo "chromium is installed: $$(command -v chromium)" || { apt-get update -qq && apt-get install -y -qq chromium; }

# By a maintainer: fetches what others wrote, by npm, and writes down what it is. The tests compare it without a network.
vendor: .venv/.full ## fetch the scripts of others that pages and their tests use
	@.venv/bin/python -m tests.pages.vendor

chaos: .venv/.full ## kill processes for minutes, on both stores (HOLDFAST_CHAOS_S each, HOLDFAST_KILLS, HOLDFAST_LEADERS, HOLDFAST_SEED)
	@HOLDFAST_CHAOS_S=$${HOLDFAST_CHAOS_S:-40} HOLDFAST_KILLS=$${HOLDFAST_KILLS:-50} HOLDFAST_LEADERS=$${HOLDFAST_LEADERS:-20} .venv/bin/pytest tests/chaos -s --timeout 1800 $(ARGS)

fuzz: .venv/.full ## send 20,000 made-up requests to a server: none may be answered 5xx (HOLDFAST_FUZZ)
	@HOLDFAST_FUZZ=$${HOLDFAST_FUZZ:-20000} .venv/bin/pytest -s tests/http/test_fuzz.py $(ARGS)

# On a SQLite file, and on a PostgreSQL that lives as long as the measurement.
bench: .venv/.full ## measure how fast it is, on both stores (ARGS="--quick --only A,B")
	@.venv/bin/holdfast bench $(ARGS)
	@.venv/bin/python -m tests.postgres .venv/bin/holdfast bench --store {} $(ARGS)

compare: .venv/.full ## measure Holdfast beside its peers, which are installed for that (ARGS="--quick --rounds 1")
	@.venv/bin/python bench/compare.py $(ARGS)

pairs: .venv/.full ## measure what agents apart, sleeping runs and a long history cost, on stores that take turns (ARGS="--quick")
	@.venv/bin/python bench/pairs.py $(ARGS)

figures: .venv/.full ## write the published figures to docs/figures.json (HOLDFAST_SEEDS, HOLDFAST_CHAOS_S)
	@.venv/bin/python -m tests.figures $(ARGS)

# A drawn sample, about ten minutes on two cores. The same seed draws the same mutants: ARGS="--seed 7" draws others.
mutants: .venv/.full ## change the source in one place at a time, and see that a test notices (ARGS="--seed 7 --in store")
	@.venv/bin/python -m tests.mutation --sample 50 --jobs 2 $(ARGS)

check: lint test ## everything CI runs

lint: .venv/.full ## formatting, lint, types, import layers
	@echo "ruff format" && .venv/bin/ruff format --quiet --check .
	@echo "ruff check" && .venv/bin/ruff check --quiet .
	@echo "mypy" && .venv/bin/mypy
	@echo "lint-imports" && .venv/bin/lint-imports --no-logo

format: .venv/.full ## rewrite the code in the project's format
	@.venv/bin/ruff format --quiet . && .venv/bin/ruff check --quiet --fix .

setup: .venv/.full ## make .venv with all development tools

clean: ## remove .venv and everything generated
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov dist
	@find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --inexact: syncing the light set must not remove the development tools, nor uv itself.
.venv/.light: pyproject.toml uv.lock | .venv/bin/uv
	@echo "setup: installing holdfast"
	@$(SYNC) --no-dev --extra postgres && touch $@

.venv/.full: pyproject.toml uv.lock | .venv/bin/uv
	@echo "setup: installing holdfast and the development tools"
	@$(SYNC) --all-extras && touch .venv/.light $@

.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Holdfast needs Python 3.11 or newer, '$(PYTHON)' is not: try make PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
