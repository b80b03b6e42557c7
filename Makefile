# `make help` lists the targets. All that they fetch or build goes to .cache and bin; once it is there they need no network.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

GO       ?= go
PACKAGES ?= ./...
FUZZTIME ?= 10s

# Without a HOME to write to, Go has nowhere to keep modules and builds.
ifneq ($(shell mkdir -p "$${HOME:-}" 2>/dev/null && test -w "$$HOME" && echo writable),writable)
export HOME := $(CURDIR)/.cache/home
endif
# Stamping asks git, which refuses a checkout of another user's; `make build` stamps the version itself.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

# Static binaries, and one build cache for all but the race detector, which needs cgo.
export CGO_ENABLED := 0

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

# Tools are built once for each version and toolchain: golangci-lint takes minutes, and one built by an older Go refuses
# newer code.
GOVERSION := $(shell $(GO) env GOVERSION 2>/dev/null)
tool       = .cache/bin/$(1)-$(shell sed -n 's|^\t*$(2) \(v[^ ]*\).*|\1|p' tools/go.mod)-$(GOVERSION)
LINT      := $(call tool,golangci-lint,github.com/golangci/golangci-lint/v2)
VULNCHECK := $(call tool,govulncheck,golang.org/x/vuln)

##@ Start here

.PHONY: demo
demo: build ## The main job on embedded servers, in a minute (KEEP=1 leaves them running)
	bin/devstack demo $(if $(KEEP),--keep)

.PHONY: test
test: setup lint ## Everything that CI runs: lint, and all tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout=20m $(PACKAGES)
	$(MAKE) manifests
	tools/vuln $(VULNCHECK)

##@ Work on it

.PHONY: unit
unit: go ## The quick tests, without the race detector
	$(GO) test -short $(PACKAGES)

.PHONY: manifests
# -count=1: Go's cache of results does not see a change of files that are in another module, such as the manifests.
manifests: go ## deploy/kubernetes against the API types of Kubernetes and KEDA, the program and our rules
	$(GO) -C deploy/check test -count=1 ./...

.PHONY: e2e-full
e2e-full: go ## Two processes, members come and go, 1,000,000 events against an independent model, about two minutes
	E2E_EVENTS=1000000 $(GO) test -count=1 -v -timeout=20m -run=TestTwoProcessesMillionEvents ./e2e

.PHONY: e2e-stall
e2e-stall: go ## ClickHouse falls silent for ten minutes: memory, connections and the group
	E2E_STALL=600 $(GO) test -count=1 -v -timeout=20m -run=TestStall ./e2e

.PHONY: backfill-kills
backfill-kills: go ## 50 backfills killed with SIGKILL at random points and resumed, about two minutes
	BACKFILL_KILLS=50 $(GO) test -count=1 -v -timeout=20m -run=TestBackfillKilled ./cmd/projector

.PHONY: repair-kills
repair-kills: go ## 50 repairs killed with SIGKILL at random points, gone on with and verified, about three minutes
	REPAIR_KILLS=50 $(GO) test -count=1 -v -timeout=20m -run=TestRepairKilled ./cmd/projector

.PHONY: rebuild-kills
rebuild-kills: go ## 50 commands of rebuilds killed with SIGKILL at random points and given again, about five minutes
	REBUILD_KILLS=50 $(GO) test -count=1 -v -timeout=30m -run='TestRebuildKilled$$' ./cmd/projector

.PHONY: chaos
chaos: go ## 200 random schedules of faults against real servers, about 30 minutes (SEED=17 SCHEDULES=1: only that one)
	E2E_SEED=$(or $(SEED),1) E2E_SCHEDULES=$(or $(SCHEDULES),200) $(GO) test -count=1 -v -timeout=5h -run='^TestChaos$$' ./e2e

.PHONY: autoscale
autoscale: go ## Real processes scaled by the rule of the ScaledObject under a step, a spike and a ramp, about 6 minutes
	E2E_AUTOSCALE=20 $(GO) test -count=1 -v -timeout=40m -parallel=3 -run='^TestAutoscale$$' ./e2e

.PHONY: outbox-stress
outbox-stress: go ## Relays, a broker and a shard killed under load for STRESS (5m), every event accounted for
	OUTBOX_STRESS=$(or $(STRESS),5m) $(GO) test -count=1 -v -timeout=30m -run=TestStress ./internal/outbox

.PHONY: e2e-reconcile
e2e-reconcile: go ## 50 comparisons of a campaign that is edited 200 times a second, and 50 that must find a difference
	E2E_RECONCILE_RUNS=50 $(GO) test -count=1 -v -timeout=60m -run=TestReconcileMovingSource ./e2e

.PHONY: pictures
pictures: go ## The pictures of the status page in docs/images, taken by its test, in about four minutes
	mkdir -p docs/images
	E2E_SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -v -timeout=20m -run='^TestPage$$' ./e2e

.PHONY: lint
lint: $(LINT) ## The rules of .golangci.yml: imports, mistakes, format
	$(LINT) run $(PACKAGES)
	cd deploy/check && "$(CURDIR)/$(LINT)" run --config="$(CURDIR)/.golangci.yml" ./...

.PHONY: fmt
fmt: $(LINT) ## Format the code
	$(LINT) fmt $(PACKAGES)

.PHONY: fuzz
fuzz: go ## Every fuzz test for FUZZTIME (10s each)
	grep -rno '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' --exclude-dir=.cache . | sort | while IFS=: read -r file _ name; do \
		$(GO) test -run='^$$' -fuzz="^$${name#func }\$$" -fuzztime=$(FUZZTIME) "$${file%/*}" </dev/null; \
	done

.PHONY: bench
bench: go ## Benchmarks against the limits and the peers, about 20 minutes (BENCHFLAGS=-short: 3)
	$(GO) run ./bench $(BENCHFLAGS)

.PHONY: vuln
vuln: $(VULNCHECK) ## Known vulnerabilities in what the binary calls (asks Go's database: needs a network)
	$(VULNCHECK) ./cmd/projector

##@ Build

.PHONY: build
build: go ## The static binaries, to bin/
	$(GO) build -ldflags='-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

# go list fetches the modules that are built and tested; go mod download would fetch all that any of them names.
.PHONY: setup
setup: go cc $(LINT) $(VULNCHECK) ## Fetch and build all that the tests need
	$(GO) list -deps -test ./... >/dev/null
	$(GO) -C deploy/check list -deps -test ./... >/dev/null
	$(GO) run ./cmd/devstack install
	@$(GO) run ./cmd/devstack install chromium || echo "make: without Chromium the test of the status page is skipped" >&2

.PHONY: clean
clean: ## Remove bin/ and the caches of this checkout
	@chmod -R u+w .cache 2>/dev/null || true # Go's module cache is read-only
	rm -rf bin .cache

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What cannot be installed from here says so in one line.

.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo "make: Go is missing; install version $$(sed -n 's/^go //p' go.mod) or newer from your system's packages or go.dev/dl" >&2; exit 1; }

.PHONY: cc
cc: go
	@command -v "$$($(GO) env CC)" >/dev/null || tools/apt gcc libc6-dev || { echo "make: the race detector needs a C compiler; as root: apt-get install gcc libc6-dev" >&2; exit 1; }

.cache/bin/golangci-lint-%: TOOL = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
.cache/bin/govulncheck-%:   TOOL = golang.org/x/vuln/cmd/govulncheck
.cache/bin/%: | go
	@echo "make: building $(@F), once (golangci-lint takes a few minutes)" >&2
	@mkdir -p $(@D)
	$(GO) -C tools build -ldflags='-s -w' -o "$(CURDIR)/$@.partial" $(TOOL)
	@mv $@.partial $@
