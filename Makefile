# Everything that is typed in this repository. `make demo` and `make test` need nothing but make
# and Python 3.11, 3.12 or 3.13: they run `make setup` by themselves.

VENV := .venv
READY := $(VENV)/.ready
UV ?= uv

.PHONY: help setup demo compare test-quick test test-slow test-pythons test-chaos test-interop test-interop-rust test-browser fuzz lint docs pictures dist bench requirements

help:
	@echo "make demo          run real nodes with every protocol, kill some, write report.html"
	@echo "make compare       compare four protocols in the simulator"
	@echo "make test-quick    run a part of the tests that touches every package, in less than a minute"
	@echo "make test          run the tests"
	@echo "make test-slow     run the tests that take minutes"
	@echo "make test-pythons  run test-quick with other Pythons: PYTHONS= names or paths"
	@echo "make test-chaos    let faults befall real nodes: ROUNDS= or MINUTES=, SEED=, PROTOCOL=, JOBS="
	@echo "make test-interop  run against js-, go- and py-libp2p, pulsarcast and a Chromium (npm, go, a C compiler)"
	@echo "make test-interop-rust  run against rust-libp2p (cargo; minutes to build once)"
	@echo "make test-browser  look at the dashboard in a headless Chromium; pictures in build/dashboard"
	@echo "make fuzz          feed the decoders, kept inputs first: INPUTS= for each, TARGET=, JOBS=, SEED="
	@echo "make lint          check style and types"
	@echo "make docs          build the documentation into build/docs"
	@echo "make pictures      draw the pictures of the documentation anew, from simulations"
	@echo "make dist          build the wheel and the sdist into dist"
	@echo "make bench         print the benchmarks"
	@echo "make setup         create or update $(VENV); the others do it by themselves"
	@echo "make requirements  pin all dependencies again (needs uv)"

setup: $(READY)

$(READY): requirements/dev.txt pyproject.toml tools/setup.sh
	@tools/setup.sh
	@touch $@

demo: $(READY)
	@$(VENV)/bin/rumormill demo

compare: $(READY)
	@$(VENV)/bin/rumormill sim --compare floodsub,gossipsub,pulsarcast,skipring --peers 100 \
		--workload reddit2007 --messages 300 --rate 20 --latency planetlab

# Tests start hundreds of processes: let the first of them compile the package for all.
test-quick test test-slow test-pythons test-chaos: export PYTHONDONTWRITEBYTECODE :=

test-quick: $(READY)
	$(VENV)/bin/python -m pytest @tests/quick.args -n 2 --dist loadgroup -q

# Four workers for two cores: two of them wait for Spark half of the time, all for sockets and disks.
test: $(READY)
	$(VENV)/bin/python -m pytest -m "not slow and not interop" -n 4 --dist loadgroup -q

test-slow: $(READY)
	$(VENV)/bin/python -m pytest -m slow -n 2 --dist loadgroup

# Every Python that docs/stability.md claims, in an environment of its own under build/pythons: those
# that pyenv has, and the others by their names.
PYTHONS ?= $(foreach version,3.11 3.12 3.13,\
	$(firstword $(wildcard $(HOME)/.pyenv/versions/$(version).*/bin/python) python$(version)))
test-pythons:
	for python in $(PYTHONS); do \
		env=build/pythons/$$($$python -c 'import platform; print(platform.python_version())') && \
		$$python -m venv $$env && \
		$$env/bin/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt && \
		$$env/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable . && \
		$$env/bin/python -m pytest @tests/quick.args -n 2 --dist loadgroup -q || exit 1; \
	done

# One option of the program for each variable that is set.
CHAOS := rounds minutes seed protocol jobs nodes seconds
upper = $(shell echo $(1) | tr a-z A-Z)
test-chaos: $(READY)
	$(VENV)/bin/python tests/chaos/chaos_suite.py $(foreach option,$(CHAOS),\
		$(if $($(call upper,$(option))),--$(option) $($(call upper,$(option)))))

test-interop: $(READY)
	$(VENV)/bin/python -m pytest tests/interop tests/dashboard/test_dashboard_browser.py \
		-m "not rust and not slow" -q

# Not in CI: the first build takes three to five minutes on two cores.
test-interop-rust: $(READY)
	$(VENV)/bin/python -m pytest tests/interop -m rust -q

test-browser: $(READY)
	$(VENV)/bin/python -m pytest tests/dashboard -m interop -q -s

fuzz: $(READY)
	$(VENV)/bin/python tools/fuzz.py --corpus tests/fuzz/corpus $(foreach option,inputs target jobs seed,\
		$(if $($(call upper,$(option))),--$(option) $($(call upper,$(option)))))

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(READY)
	$(VENV)/bin/zensical build --strict --clean
	@echo "build/docs/index.html"

pictures: $(READY)
	$(VENV)/bin/python tools/draw_pictures.py

# With the pinned build backend of $(VENV): nothing is downloaded.
dist: $(READY)
	rm -rf dist
	$(VENV)/bin/hatchling build -d dist

# What takes a quarter of an hour and more is run by hand: `bench/peers.py` without --quick compares
# with go-, rust-, js- and py-libp2p, `bench/published_numbers.py` makes every row of its page.
bench: $(READY)
	$(VENV)/bin/python bench/codec.py
	$(VENV)/bin/python bench/wire.py
	$(VENV)/bin/python bench/store.py
	$(VENV)/bin/python bench/sim.py
	$(VENV)/bin/python bench/trie.py --quick
	$(VENV)/bin/python bench/sync.py --quick
	$(VENV)/bin/python bench/published_numbers.py --rows v1.0 v1.1 --peers 100 --seeds 3
	$(VENV)/bin/python bench/peers.py --quick
	$(VENV)/bin/python bench/spark.py --quick

requirements:
	$(UV) pip compile pyproject.toml --extra arrow --extra private --extra spark --extra uvloop --extra websocket --group dev \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make requirements" \
		--quiet --output-file requirements/dev.txt
	$(UV) pip compile tests/interop/py/requirements.in \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make requirements" \
		--quiet --output-file tests/interop/py/requirements.txt
	for folder in tests/interop/js tests/interop/pulsarcast examples/browser; do \
		(cd $$folder && npm install --package-lock-only --no-audit --no-fund \
			--omit-lockfile-registry-resolved=true) || exit 1; \
	done
