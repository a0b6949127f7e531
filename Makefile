# Everything runs inside .venv, which `install` makes and every other target brings up to date by itself.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Workers of the test run, three for two cores: a test waits for its store a third of the time. `make test JOBS=0` runs
# everything in one process.
JOBS ?= $(shell expr 3 \* $$(getconf _NPROCESSORS_ONLN) / 2)
# More arguments for pytest, e.g. `make test ARGS="-k fence -x"`.
ARGS ?=
PYTEST := $(BIN)/python -m pytest
# A worker that is done takes tests from another: one slow module does not hold the others up.
SPREAD := -n $(JOBS) --dist worksteal
# Tiers with a target of their own: they measure, run for minutes, or want another environment.
APART := --ignore=tests/bench --ignore=tests/soak --ignore=tests/explore --ignore=tests/wheel --ignore=tests/bridge \
	--ignore=tests/deploy --ignore=tests/browser

# Runs one tier, and says so when it has no tests instead of passing.
define tier
	@test -n "$$(find tests/$(1) -name 'test_*.py' 2>/dev/null)" || \
		{ echo "make $@: there are no tests in tests/$(1)" >&2; exit 1; }
	$(PYTEST) tests/$(1) $(2) $(ARGS)
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install fmt format-check lint types imports test test-pg faults plans e2e bench bench-quick \
	bench-plots gate soak fuzz strangers explore bridge tables cov cov-quick build check-wheel run demo clean ci deploy-check \
	install-systemd image-context browser

help: ## show this list
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv with the package, the daemon and the tools

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[daemon,dev]'
	@touch $@

fmt: $(STAMP) ## format the code and sort its imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

format-check: $(STAMP) ## fail if `make fmt` would change anything
	$(BIN)/ruff format --check .

lint: $(STAMP) ## ruff's rules
	$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict, for both packages and the typed tests
	$(BIN)/mypy
	$(BIN)/mypy tests/typechecks tests/support tests/conftest.py

imports: $(STAMP) ## the rooms import downward only
	$(BIN)/lint-imports

test: $(STAMP) ## all tests but bench, soak, explore, bridge and browser
	$(PYTEST) tests $(APART) $(SPREAD) $(ARGS)

test-pg: $(STAMP) ## only what needs a PostgreSQL server
	$(PYTEST) tests $(APART) $(SPREAD) -m postgresql $(ARGS)

faults: $(STAMP) ## crash points, disk faults, lost connections
	$(call tier,faults,$(SPREAD))

plans: $(STAMP) ## query plans and statement budgets
	$(call tier,plans,$(SPREAD))

e2e: $(STAMP) ## the real processes
	$(call tier,e2e)

# More arguments for the benchmark, e.g. `make bench ARGS="--peers --rows 7,8"`.
bench: $(STAMP) ## what everything costs, against the floor; ten minutes on a quiet machine
	$(BIN)/python -m tests.bench $(ARGS)

bench-quick: $(STAMP) ## the same with fewer samples, under 90 seconds
	$(BIN)/python -m tests.bench --quick $(ARGS)

bench-plots: $(STAMP) ## measure and draw the plots of the README
	$(BIN)/python -m tests.bench.plots $(ARGS)

gate: $(STAMP) ## ADR-0117 D6: an append at 100,000 items costs at most twice one at 1,000
	$(BIN)/python -m tests.bench.gate $(ARGS)

soak: $(STAMP) ## the runs of minutes
	$(call tier,soak,--timeout=0 -s)

bridge: $(STAMP) ## LionAGI itself over the bridge, in an environment of its own; ten minutes
	$(call tier,bridge,$(SPREAD))

# A systemd of its own, containers, a Prometheus: as root, on a machine that has them.
deploy-check: $(STAMP) ## the files of deploy/ at work: systemd, containers, Prometheus; ten minutes
	$(call tier,deploy,--timeout=0 -s)

browser: $(STAMP) ## the status page in a Chromium of the system; pictures in var/screenshots
	$(call tier,browser)

fuzz: $(STAMP) ## 5,000 requests made from /openapi.json against the daemon
	$(PYTEST) tests/soak/test_fuzz.py --timeout=0 -s $(ARGS)

strangers: $(STAMP) ## 10,000 broken requests, and 500 slow clients beside appends; three minutes
	$(PYTEST) tests/soak/test_strangers.py --timeout=0 -s $(ARGS)

explore: $(STAMP) ## every interleaving of two and of three actors, statement by statement; an hour
	$(call tier,explore,--timeout=0 -s)

tables: $(STAMP) ## write the tables of settings and metrics of the README, and config/lionstated.toml, anew
	$(BIN)/python -m lionstated.settings
	$(BIN)/python -m lionstated.metrics_table

cov: $(STAMP) ## the tests of `make test`, with coverage
	$(PYTEST) tests $(APART) $(SPREAD) --cov --cov-report=term:skip-covered --cov-report=html $(ARGS)

# Tracing doubles what a test costs, so CI traces the unit tests; `make cov` traces everything.
cov-quick: $(STAMP) ## coverage of the unit tests
	$(PYTEST) tests/unit $(SPREAD) --cov --cov-report=term:skip-covered $(ARGS)

build: $(STAMP) ## sdist and wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# Of tests/e2e what shows that the commands, the daemon and its files are whole; `make test` runs all of it.
WHEEL_E2E := $(addprefix tests/e2e/test_,startup.py metrics.py)

# The tests are copied away, so that nothing but the wheel can answer `import lionstate`.
check-wheel: build ## install the wheel into a fresh environment and run the processes that it brings
	rm -rf build/wheel
	mkdir -p build/wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		"$$(echo dist/lionstate-*.whl)[daemon,test]"
	cp -r tests pyproject.toml build/wheel/
	cd build/wheel && venv/bin/python -m pytest tests/wheel $(WHEEL_E2E) $(SPREAD)

# Everything that the image needs, so that its build asks nobody: the wheel and those that it depends on.
image-context: build ## build/image, to build the container image from
	rm -rf build/image
	mkdir -p build/image/wheels
	cp deploy/container/Dockerfile build/image/
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary=:all: --dest build/image/wheels \
		"$$(echo dist/lionstate-*.whl)[daemon]"

DESTDIR        ?=
# The environment that the package is installed in: not in a home directory, which the unit does not see.
LIONSTATE_VENV ?= /opt/lionstate
# Of deploy/systemd/drop-ins, without .conf.
DROP_INS       ?=
UNITS          := $(DESTDIR)/usr/lib/systemd/system
SHARE          := $(DESTDIR)/usr/share/lionstate/systemd

install-systemd: ## units, user, folders and settings into DESTDIR; DROP_INS="uds-only" adds drop-ins
	install -d $(UNITS)/lionstated.service.d $(SHARE) $(DESTDIR)/usr/lib/sysusers.d $(DESTDIR)/usr/lib/tmpfiles.d
	install -d -m 0750 $(DESTDIR)/etc/lionstate
	sed 's|/opt/lionstate/|$(LIONSTATE_VENV)/|' deploy/systemd/lionstated.service > $(UNITS)/lionstated.service
	chmod 0644 $(UNITS)/lionstated.service
	install -m 0644 deploy/systemd/lionstated.socket $(UNITS)
	install -m 0644 deploy/systemd/lionstate.sysusers $(DESTDIR)/usr/lib/sysusers.d/lionstate.conf
	install -m 0644 deploy/systemd/lionstate.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/lionstate.conf
	install -m 0644 deploy/systemd/drop-ins/*.conf $(SHARE)
	for name in $(DROP_INS); do \
		install -m 0644 deploy/systemd/drop-ins/$$name.conf $(UNITS)/lionstated.service.d || exit 1; done
	test -e $(DESTDIR)/etc/lionstate/lionstated.toml || \
		sed 's|^#url = ""|url = "/var/lib/lionstate/state.db"|' config/lionstated.toml \
		> $(DESTDIR)/etc/lionstate/lionstated.toml

clean: ## remove what was built or cached; .venv stays
	rm -rf build dist htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

STORE ?= var/state.db
OPS   ?= 127.0.0.1:9464

run: $(STAMP) ## start the daemon on ./var/state.db and say how to talk to it
	@mkdir -p $(dir $(STORE))
	@echo "store    $(STORE)"
	@echo "socket   $(STORE).sock"
	@echo "metrics  http://$(OPS)/metrics   health  http://$(OPS)/readyz"
	@echo "try, in another terminal:"
	@echo "  curl -s --unix-socket $(STORE).sock -H 'Content-Type: application/json' -d '{\"progression_id\": \"p1\"}' http://localhost/v1/ops/create_progression"
	@echo "  curl -s --unix-socket $(STORE).sock http://localhost/v1/progressions/p1"
	@echo "  $(BIN)/lionstate progression-migrate status --url $(STORE)"
	@exec $(BIN)/lionstate serve --database-url $(STORE) --listen-ops $(OPS) --log-format console

BACKEND ?= sqlite

demo: $(STAMP) ## migrate a legacy store under four writing processes (BACKEND=sqlite or postgresql)
	$(BIN)/python -m tests.demo.migration --backend $(BACKEND)

# LionAGI has an environment of its own, so that its dependencies and ours never meet.
LIONAGI_VENV  := .venv-lionagi
LIONAGI_STAMP := $(LIONAGI_VENV)/.installed

demo-lionagi: $(STAMP) $(LIONAGI_STAMP) ## migrate a store that LionAGI wrote (BACKEND=sqlite or postgresql)
	$(BIN)/python -m tests.demo.lionagi --backend $(BACKEND) --lionagi-python $(LIONAGI_VENV)/bin/python

$(LIONAGI_STAMP): tests/demo/lionagi-requirements.txt
	$(PYTHON) -m venv $(LIONAGI_VENV)
	$(LIONAGI_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

demo-bridge: $(STAMP) ## what a message costs LionAGI, before and over the bridge (BACKEND=sqlite or postgresql)
	$(BIN)/python -m tests.demo.bridge --backend $(BACKEND)
.PHONY: demo-lionagi demo-bridge

# The whole suite comes last, so that its closing line is the last one.
ci: format-check lint types imports check-wheel gate cov-quick browser test ## what CI runs
