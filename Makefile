# Mneme: every command a person needs. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
JOBS ?= $(shell nproc)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PACKAGES := $(shell sed 's/\#.*//' deploy/packages.txt)

.PHONY: help packages build test check check-long format tidy clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

packages:  ## install what deploy/packages.txt lists, where anything is missing
	@missing=$$(dpkg-query -W -f '$${Package} $${Status}\n' $(PACKAGES) 2>/dev/null | \
	  awk '/ok installed/ {print $$1}' | sort | comm -13 - <(printf '%s\n' $(PACKAGES) | sort)); \
	if [ -n "$$missing" ]; then echo "installing:" $$missing; \
	  $(SUDO) apt-get update -q && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; fi

build: packages  ## the release build, in build/release
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

test: build  ## install, build, all tests, and the core folders' tests under ASan and UBSan
	ctest --preset release -j $(JOBS)
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS) --target sanitized_tests
	ctest --preset asan -j $(JOBS) -L unit

check: packages  ## before every commit: format, debug build, unit tests
	@clang-format --dry-run -Werror $$(git ls-files '*.h' '*.cpp')
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev -j $(JOBS) -L unit

format:  ## rewrite the sources in the house format
	clang-format -i $$(git ls-files '*.h' '*.cpp')

clean:  ## remove everything that was built
	rm -rf build
