# Two commands for users, `make sweep` and `make test`; `make check` beside them for developers.
# Needed: make and a Python of at least 3.11 (PYTHON=python3.12 make sweep chooses another one).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: sweep test test-long check

sweep: $(INSTALLED)
	$(BIN)/maskahead sweep

# Ray tests share one local cluster, so they run in one process, after the rest.
test: $(INSTALLED)
	$(BIN)/python -m pytest -rs -m "not ray" -n 2
	$(BIN)/python -m pytest -m "ray and not long"

# Minutes each: sweeps that lose nodes; a sweep and an endpoint on two hosts (network namespaces: as
# root, with iproute2).
test-long: $(INSTALLED)
	$(BIN)/python -m pytest -rs -m long

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Made anew whenever pyproject.toml is newer than the last installation.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, and $(PYTHON) is %d.%d; name another one: PYTHON=python3.11 make" % sys.version_info[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "Installing into $(VENV): about 2.5 GB, a few minutes the first time"
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]'
	@touch $@
