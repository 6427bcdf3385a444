# The targets are documented by `make help`.
.DEFAULT_GOAL := help

VERSION  ?= $(shell git describe --tags --match 'v*' --always --dirty 2>/dev/null)
FUZZTIME ?= 30s
IMAGE    ?= ratelimitd:latest
GO       ?= go

BINARY := build/ratelimitd
LDFLAGS := -s -w -X main.version=$(VERSION)
# Modules of their own beside the daemon's, so that nobody downloads the daemon's
# libraries for the client, a framework that he does not use, nor what only a test needs.
MODULES := $(patsubst %/go.mod,%,$(wildcard client/go.mod proto/go.mod internal/*/go.mod contrib/*/go.mod examples/*/go.mod integration/*/go.mod))
# Modules that are in no graph with those: what makes packages has many libraries.
APART := tools/packaging
OWN_GRAPH := case $$dir in $(APART)) export GOWORK=off;; esac
PACKAGING := GOWORK=off $(GO) -C $(APART) run .
# Tools are pinned in a module apart from those of go.work. What such a tool asks go
# about is in go.work: so tool -n says where it is, and it runs outside of this.
TOOL        := GOWORK=off $(GO) tool -modfile=$(CURDIR)/tools/go.mod
STATICCHECK := $$($(TOOL) -n staticcheck)
GOVULNCHECK := $$($(TOOL) -n govulncheck)
BUF         := $(TOOL) buf
# Many tests wait more than they compute, so three packages run at a time even on two
# cores. make lint runs go vet.
TEST := $(GO) test -trimpath -vet=off -p 3 -timeout 18m
# Packages without goroutines, and those that drive the built daemon: the race detector
# finds nothing there. All others run with it. Each package runs once.
PLAIN := integration(/(bench|kubernetes|leases|plots|screens|xds))?|client/guard(/headers)?|internal/bucket(/zone)?|internal/cli(/.*)?|internal/config/(forwardauth|glob|limitsfile|settings|yamlfile)|internal/config/rules(/(diff|trace|words))?|internal/(decide|decisionlog|explain|replay|spelling|timespan)|internal/redisstore/script|proto/.*
packages = $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work | grep -E $1 '^github.com/ratelimitd/ratelimitd/($2)$$')
# The built daemon, for all packages: compiled once.
test check soak: export TEST_DAEMON := $(CURDIR)/build/test/ratelimitd
# As in lint: what packages share is compiled once.
test check soak test-daemon: export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -pgo=off
# What the API was when callers last were told of it; buf breaking compares.
API_BASELINE := proto/baseline.binpb

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: build
build: ## build build/ratelimitd, a static binary
	@mkdir -p build
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BINARY) ./cmd/ratelimitd

.PHONY: run
run: build ## start the daemon on deploy/limits/, show decisions, serve until Ctrl-C; RUN=flags
	@$(BINARY) demo --limits deploy/limits --dir build/dev $(RUN)

.PHONY: test
# At its end a program with the race detector sleeps for a second by default.
test: export GORACE := atexit_sleep_ms=0
test: tools test-daemon ## run every test, with the race detector where there are goroutines
	$(TEST) -race -shuffle=on $(call packages,-v,$(PLAIN))
	CGO_ENABLED=0 $(TEST) -shuffle=on $(call packages,,$(PLAIN))
	@# The race detector allocates, so tests that count allocations are not compiled with it.
	CGO_ENABLED=0 $(TEST) -run Allocate $$(grep -rl --include='*_test.go' '^//go:build !race' client internal | xargs -n1 dirname | sort -u | sed 's|^|./|')
	cd $(APART) && GOWORK=off CGO_ENABLED=0 $(TEST) ./...

.PHONY: check
# Without -shuffle go test remembers what passed.
check: export CGO_ENABLED = 0
check: tools test-daemon ## for each edit: go vet, and the tests within packages, without the race detector
	$(GO) vet work
	$(TEST) -short $(call packages,-v,integration.*)

.PHONY: soak
soak: export RATELIMITD_SOAK = 1
soak: tools test-daemon ## for an hour: long attacks and long random traces
	CGO_ENABLED=0 $(TEST) -p 1 -timeout 90m $$(grep -rl --include='*_test.go' soaktest.Long . | xargs -n1 dirname | sort -u)

.PHONY: test-daemon
test-daemon:
	@CGO_ENABLED=0 $(GO) build -o build/test/ratelimitd ./cmd/ratelimitd

.PHONY: tools
tools: # what the tests run
	@deploy/dev/need-tools.sh

.PHONY: lint
lint: export CGO_ENABLED = 0
lint: export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -pgo=off
lint: ## gofmt, go vet, staticcheck, buf, and govulncheck where its data can be had
	@test -z "$$(gofmt -l .)" || { gofmt -l . | sed 's/^/not gofmted: /'; exit 1; }
	@# work is all modules of go.work: what they share is checked once.
	$(GO) vet work && $(STATICCHECK) work
	cd $(APART) && export GOWORK=off && $(GO) vet ./... && $(STATICCHECK) ./...
	deploy/dev/tidy.sh -diff
	$(BUF) lint
	$(BUF) breaking --against $(API_BASELINE)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(BUF) generate -o "$$dir" && \
	diff -r -x '*.proto' -x '*.binpb' -x 'go.*' -x wire -x apijson "$$dir/proto" proto && diff -r -x '*.yaml' "$$dir/internal/server/gateway" internal/server/gateway || \
	{ echo "proto/ or internal/server/gateway: the generated code is stale; run make proto"; exit 1; }
	@for dir in . $(MODULES) $(APART); do \
	  if out=$$($(OWN_GRAPH); cd $$dir && $(GOVULNCHECK) ./... 2>&1); then echo "govulncheck: $$dir: no known vulnerability is called"; \
	  elif echo "$$out" | grep -q 'Vulnerability #'; then echo "$$out"; exit 1; \
	  else echo "govulncheck: skipped, its data cannot be had here: $$(echo "$$out" | tail -n 1)"; break; fi; \
	done

.PHONY: tidy
tidy: ## go mod tidy in all modules
	deploy/dev/tidy.sh

.PHONY: proto
proto: ## generate the API's Go code from proto/, and its handlers in JSON
	$(BUF) generate

# Debian's own Python, which has its packages.
PYTHON ?= /usr/bin/python3
STUBS  ?= build/python

.PHONY: python-stubs
python-stubs: ## generate build/python, what examples/python calls
	@mkdir -p $(STUBS)
	$(GO) run ./examples/python/stubs $(STUBS)/stubs.binpb > $(STUBS)/stubs.txt
	@# Called as a module, protoc would add a path of its own, which it takes for a conflict.
	$(PYTHON) -c 'import sys; from grpc_tools import protoc; sys.exit(protoc.main(sys.argv))' --descriptor_set_in=$(STUBS)/stubs.binpb \
	  --python_out=$(STUBS) --grpc_python_out=$(STUBS) $$(cat $(STUBS)/stubs.txt)

.PHONY: proto-baseline
proto-baseline: ## have the API as it is now be what must not break
	$(BUF) build -o $(API_BASELINE)

.PHONY: zones
zones: ## renew the time zones in internal/bucket/zone from those of Go
	cp $$($(GO) env GOROOT)/lib/time/zoneinfo.zip internal/bucket/zone/ && chmod 644 internal/bucket/zone/zoneinfo.zip
	sed -n 's/^DATA=//p' $$($(GO) env GOROOT)/lib/time/update.bash > internal/bucket/zone/RELEASE

.PHONY: plots
plots: ## draw docs/algorithms-*.svg, load-*.svg and leases-*.svg: what limits admit, and how fast
	$(GO) run ./integration/plots docs

.PHONY: screens
screens: ## draw docs/explain-*.svg, top-*.svg and replay-*.svg: what these commands print
	$(GO) run ./integration/screens docs

.PHONY: schemas
schemas: ## generate docs/limits.schema.json and settings.schema.json from what reads these files
	$(GO) test ./internal/config/limitsfile ./internal/config/settings -run TestSchemaIsPublished -update

.PHONY: bench
bench: tools ## load the daemon next to bare gRPC servers; FULL=1, COMPARE=NAME=HOST:PORT[,PID], BENCH=flags
	@# xargs parts the flags and takes off their quotes; to make and a shell ^(a|b)$ means something else.
	@$(if $(value BENCH),printf %s '$(subst ','\'',$(value BENCH))' | xargs) \
	$(GO) run ./integration/bench $(if $(FULL),-full) $(foreach c,$(COMPARE),-compare '$(c)')

PROFILED = memory-256|redis-256|redis-16|redis-hot-under|cluster-256|take-stream|take-stream-redis

.PHONY: profile
profile: tools ## have the compiler know what the daemon spends its time on: cmd/ratelimitd/default.pgo
	@dir=$$(mktemp -d) && $(GO) run ./integration/bench -starts 1 -rounds 1 -run '^($(PROFILED))$$' -profiles $$dir && \
	$(GO) tool pprof -proto $$dir/*.pprof > $$dir/all && cp $$dir/all cmd/ratelimitd/default.pgo; status=$$?; rm -r $$dir; exit $$status

.PHONY: microbench
microbench: ## run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./internal/... ./internal/bucket/... ./client/... ./integration/client

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | sed 's/^func //'); do \
	    echo "$$dir $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$dir || exit 1; \
	  done; \
	done

.PHONY: image
image: ## build the container image
	docker build --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) -t $(IMAGE) .

.PHONY: deb
deb: ## build the Debian package of VERSION=v1.2.3, for this machine or for ARCH=amd64,arm64
	@$(PACKAGING) deb -version '$(VERSION)' $(if $(ARCH),-arch '$(ARCH)')

.PHONY: set-version
set-version: ## have all modules require each other at VERSION=v1.2.3, before a release
	@$(PACKAGING) set-version -version '$(VERSION)'

.PHONY: release
release: ## build all that a release has, the same bytes for everybody; VERSION=v1.2.3, AS_IT_IS=1
	@$(PACKAGING) release -version '$(VERSION)' $(if $(AS_IT_IS),-as-it-is)

.PHONY: clean
clean: ## remove what was built
	rm -rf build
