# Set-up and everyday commands; `make` lists them. Every target sets up what it needs, once.

# The interpreter that makes .venv, and the ROS 2 to install there when none is sourced (where one is,
# ROS_DISTRO names it).
PYTHON ?= python3
ROS_DISTRO ?= kilted
# More arguments for the command of `demo` and `test`.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
SETUP := scripts/setup

# "sourced", or the name of the wheels. An environment made for one does not fit the other.
ROS := $(shell $(SETUP)/which_ros.sh $(PYTHON) $(ROS_DISTRO))
ifeq ($(ROS),)
$(error No usable ROS 2)
endif
ENVIRONMENT := $(VENV)/.setup/environment-$(ROS)
PACKAGES := $(VENV)/.setup/packages
INTERFACES := $(VENV)/.setup/interfaces

# Where ROS looks for jepa_planner_msgs. The wheels find the libraries by themselves.
export AMENT_PREFIX_PATH := $(CURDIR)/$(VENV)$(addprefix :,$(AMENT_PREFIX_PATH))
ifeq ($(ROS),sourced)
export LD_LIBRARY_PATH := $(CURDIR)/$(VENV)/lib$(addprefix :,$(LD_LIBRARY_PATH))
endif

.PHONY: help setup demo test lint format clean

help:  ## Show this list
	@echo 'Usage: make TARGET [VARIABLE=value ...]'
	@echo
	@sed -nE 's/^([a-z]+):.*  ## (.*)/  \1	\2/p' $(MAKEFILE_LIST) | expand -t 14
	@echo
	@echo '  PYTHON=python3.12   interpreter for a new $(VENV), 3.10 to 3.13 (default: python3)'
	@echo '  ROS_DISTRO=jazzy    ROS 2 to install when none is sourced (default: kilted)'
	@echo '  ARGS="..."          more arguments for the demo or for pytest'

setup: $(INTERFACES)  ## Make .venv with ROS 2, the interfaces and the jepa-planner command

demo: setup  ## Watch the simulated Franka reach a photographed goal; writes demo/report.html
	@$(BIN)/jepa-planner demo $(ARGS)

test: setup  ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

lint: setup  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## Mend style where it can be done by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove .venv and everything that was built
	rm -rf $(VENV) build install log jepa_planner_ros.egg-info

$(ENVIRONMENT):
	@$(SETUP)/system_packages.sh $(PYTHON)
	@$(SETUP)/environment.sh $(PYTHON) $(VENV) $(ROS)
	@mkdir -p $(@D) && touch $@

$(PACKAGES): $(ENVIRONMENT) constraints.txt $(wildcard requirements/*.txt) pyproject.toml setup.py
	@$(SETUP)/packages.sh $(VENV) $(ROS)
	@touch $@

$(INTERFACES): $(PACKAGES) $(shell find msg -type f) $(SETUP)/interfaces.sh $(SETUP)/wheel_includes.cmake
	@$(SETUP)/interfaces.sh $(VENV)
	@touch $@
