# Mneme: every command a person needs. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
JOBS ?= $(shell nproc)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PACKAGES := $(shell sed 's/\#.*//' deploy/packages.txt)
# Version 14 knows neither a warning flag of gcc 12 nor, without this instruction set, _Float16.
TIDY_ARGS := --extra-arg=-Wno-unknown-warning-option --extra-arg=-mavx512fp16
SOURCES = $$(git ls-files '*.h' '*.cpp')

.PHONY: help packages build demo test check check-long tidy run bench format clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

packages:  ## install what deploy/packages.txt lists, where anything is missing
	@missing=$$(comm -13 \
	  <(dpkg-query -W -f '$${Package} $${Status}\n' $(PACKAGES) 2>/dev/null | \
	    awk '/ok installed/ {print $$1}' | sort) \
	  <(printf '%s\n' $(PACKAGES) | sort)); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; \
	  $(SUDO) apt-get update -q && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; fi

build: packages  ## the release build, in build/release
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target mneme

demo: build  ## tell a server facts, kill it, bring it back, and ask
	build/release/cli/mneme demo --model checkpoints/demo

test: packages  ## install, build, all tests, and the core folders' tests under ASan and UBSan
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	ctest --preset release -j $(JOBS) -LE slow
	cmake --preset asan-core
	cmake --build --preset asan-core -j $(JOBS)
	ctest --preset asan-core -j $(JOBS) -L unit

check: packages  ## before every commit: format, debug build, unit tests, the rules of the source text
	@clang-format --dry-run -Werror $(SOURCES)
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -j $(JOBS) -L unit

check-long: packages  ## before a release: everything under ASan and TSan, and the long figures
	cmake --preset release && cmake --build --preset release -j $(JOBS)
	ctest --preset release -C Long -L slow
	failed=0; for preset in asan tsan; do \
	  if cmake --preset $$preset && cmake --build --preset $$preset -j $(JOBS); then \
	    ctest --preset $$preset -j $(JOBS) -L unit || failed=1; \
	    ctest --preset $$preset -j 1 -LE unit || failed=1; \
	  else failed=1; fi; \
	done; exit $$failed

tidy: packages  ## clang-tidy over the sources that are not tests: about half an hour on one core
	@command -v clang-tidy > /dev/null || { echo "make tidy needs the package clang-tidy"; exit 1; }
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target mneme
	@failed=0; for file in $$(git ls-files '*.cpp' ':!tests'); do \
	  nice clang-tidy -p build/release --quiet $(TIDY_ARGS) $$file 2>/dev/null || failed=1; \
	done; exit $$failed

run: build  ## serve the demo model on this machine; then `build/release/cli/mneme chat NAME`
	build/release/cli/mneme serve --model checkpoints/demo --store data

bench: build  ## speed of this machine's steps
	build/release/cli/mneme bench --model checkpoints/demo

format:  ## rewrite the sources in the house format
	clang-format -i $(SOURCES)

clean:  ## remove everything that was built
	rm -rf build
