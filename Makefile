# Every target works on a fresh clone with Go alone; what needs more names the package to install.
# `make check` and `make test` are what a change must pass; the longer rings stand below them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go

# Pinned tools, run from the module cache: a new version is a change to this file.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0

# Tags that hide code from a plain build and must be looked at all the same.
TAGS := faults figures planted

# -trimpath, no VCS stamp and no build id: the same source gives the same bytes in any folder.
BUILDFLAGS := -trimpath -buildvcs=false -ldflags=-buildid=

# Longer rings.
FUZZTIME ?= 3s
MINUTES  ?= 1
SEED     ?= 1
BROKERS  ?= 3
# Figures allow their bounds times this much; CI, on a shared machine, uses 5.
FIGURES_SLACK ?= 1
# `make test PKGS=./storage/...` looks at a part.
PKGS ?= ./...

.PHONY: all build check fmt vet staticcheck rules test planted figures fuzz bench chaos cluster reproducible clean

all: build

build:
	@mkdir -p bin
	$(GO) build $(BUILDFLAGS) -o bin/ ./cmd/...

# The fast ring: nothing here starts a broker.
check: fmt vet staticcheck rules

fmt:
	@bad=$$(gofmt -l .); if [ -n "$$bad" ]; then echo "gofmt these files:"; echo "$$bad"; exit 1; fi

# darwin keeps the platform files honest; the tags keep the code that only they build alive.
vet:
	$(GO) vet ./...
	$(GO) vet -tags '$(TAGS)' ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	@for m in $$(scripts/modules); do echo "vet $$m"; (cd $$m && $(GO) vet ./...); done

staticcheck:
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags '$(TAGS)' ./...

# The house rules as Go tests: arrows and sizes, licences, planted bugs still apply, metric names.
rules:
	$(GO) test -count=1 -run '^TestRule' ./integration/...
	@if ls broker/*_test.go >/dev/null 2>&1; then $(GO) test -run 'Promlint' ./broker; fi

# With TESTJSON=FILE the tests run under gotestsum, and what test2json says goes to FILE.<target>: .ci/run counts it.
ifdef TESTJSON
RUN = $(GO) run $(GOTESTSUM) --format testname --jsonfile $(TESTJSON).$@ --
else
RUN = $(GO) test
endif

test:
	$(RUN) -race -shuffle=on -timeout 20m $(PKGS)
	@$(if $(filter ./...,$(PKGS)),$(MAKE) -s $(patsubst %,test-module-%,$(subst /,@,$(shell scripts/modules))))

# A program with a go.mod of its own; its folder is written with @ for /.
test-module-%:
	cd $(subst @,/,$*) && $(RUN) -shuffle=on ./...

# What an issue asks with a count, in full: `make full-restart` runs the tests whose names begin with TestRestart.
full-%:
	DANUBE_FULL=1 $(GO) test -v -race -count=1 -timeout 120m -run '^Test(?i:$(subst -,,$*))' ./...

# Builds each planted bug and asserts that its test goes red. One alone: make planted PLANT=name
planted:
	PLANT='$(PLANT)' $(RUN) -tags planted -v -count=1 -timeout 60m -run '^TestPlantedBugsAreCaught' ./integration/planted

# Times, rates and sizes of memory: a plain build, one test at a time, alone on the machine.
figures:
	FIGURES_SLACK=$(FIGURES_SLACK) $(RUN) -tags figures -v -count=1 -p 1 -timeout 30m -run '^TestFigure' \
		$$(grep -rl --include='*_test.go' '^func TestFigure' . | xargs -n1 dirname | sort -u)

# Every fuzz target of the tree for FUZZTIME.
fuzz:
	FUZZTIME=$(FUZZTIME) scripts/fuzz

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Three brokers on 127.0.0.11 to 13, in the background: scripts/cluster says how to use and stop them.
cluster:
	@scripts/cluster

# Three brokers, one with BROKERS=1, three with a cold tier with BROKERS=3+cold. The last line is the verdict.
chaos:
	@BROKERS=$(BROKERS) scripts/chaos $(MINUTES) $(SEED)

# Builds the program in two folders and compares the bytes.
reproducible:
	scripts/reproducible

clean:
	rm -rf bin .ci/logs
