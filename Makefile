# The short commands of every day. Each does its own set-up; .ci/run calls the same ones.
#   make demo    the main job on real input        make test    unit, emulator, fault and suite tests
#   make check   ruff, mypy, docs                  make proof   the long tests, every Python
#   make soak    a long bad day                    make bench   what exactness costs
# EMULATOR=google or EMULATOR=hidane picks the emulator; without it the first one found is used.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
CDNOW  := build/CDNOW_master.txt
TOOLS  := build/firebase-tools/.ready
ARGS   ?=
MINUTES ?= 3
SEED   ?=

export EMULATOR

.PHONY: help install emulator demo test unit emulator-tests fault-tests soak suite wheel check proof \
	pythons bench clean

help:
	@sed -n '2,5s/^# //p' Makefile

install: $(READY)

# Where no emulator is found, hidane is built: three minutes, once.
emulator: $(READY)
	@$(BIN)/counters emulator install --if-none

$(READY): pyproject.toml constraints.txt
	@echo "set-up: a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cli,plot,functions,testing]' --group dev
	@touch $(READY)

# 69,659 purchases of 23,570 customers, in the wheel of lifetimes 0.11.3; only the wheel is fetched.
$(CDNOW): $(READY) demo-data.txt
	@echo "set-up: the CDNOW purchases"
	@mkdir -p build
	@$(BIN)/python -m pip download --quiet --no-deps --require-hashes --dest build --requirement demo-data.txt
	@$(BIN)/python -c "import zipfile; z = zipfile.ZipFile('build/Lifetimes-0.11.3-py3-none-any.whl'); open('$(CDNOW)', 'wb').write(z.read('lifetimes/datasets/CDNOW_master.txt'))"

demo: $(CDNOW) emulator
	@$(BIN)/counters demo --data $(CDNOW) --plot build/demo.png $(ARGS)

test: unit emulator-tests fault-tests suite

unit: $(READY)
	@$(BIN)/python -m pytest tests/unit --numprocesses 2 -m 'not proof' $(ARGS)

emulator-tests: emulator
	@$(BIN)/python -m pytest tests/emulator --numprocesses 2 -m 'not proof' $(ARGS)

fault-tests: emulator
	@$(BIN)/python -m pytest tests/faults --numprocesses 2 -m 'not proof' $(ARGS)

# A long bad day: make soak MINUTES=30, and SEED=… for what happened in another.
soak: emulator
	@$(BIN)/python tests/faults/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# The whole Emulator Suite, with the functions as they would be uploaded.
suite: emulator $(TOOLS)
	@$(BIN)/python -m pytest tests/suite -m 'not proof' $(ARGS)

$(TOOLS): tests/suite/package.json
	@if ! command -v npm >/dev/null; then echo "no npm, so no firebase-tools"; exit; fi; \
	echo "set-up: firebase-tools, 300 MB"; \
	mkdir -p $(@D) && cp $< $(@D) && npm install --prefix $(@D) --no-package-lock --loglevel=error && touch $@

# The package's wheel and a virtual environment below functions/, as a deploy makes them.
wheel:
	@$(PYTHON) functions/predeploy.py --runtime python313 --wheel-of .

check: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/unit/test_docs.py tests/unit/test_doctests.py --quiet

proof: $(CDNOW) emulator pythons bench
	@EMULATOR=hidane $(BIN)/counters emulator install --if-none
	@$(BIN)/python -m pytest tests -m proof --numprocesses 2 --durations 12 $(ARGS)

# The unit tests on every Python that we support, and with the oldest SDK that we allow.
pythons:
	@PYTEST_ARGS='--quiet --numprocesses 2' scripts/pythons

bench: emulator
	@$(BIN)/python benchmarks/cost_of_exactness.py

clean:
	rm -rf $(VENV) build dist
