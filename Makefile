# Mortar: `make demo` shows it, `make test` tests it. `make help` lists the rest.

SHELL   := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOFLAGS_BUILD := -ldflags "-s -w -X main.version=$(VERSION)"
# The same for all but the race detector, so that Go compiles each package once: without it
# an empty cache costs 40 s more.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath

.DEFAULT_GOAL := help
.PHONY: help build package test-package deps demo demo-down test test-unit test-rack test-boot test-array test-lustre test-faults drills drills-xl changes systems lint fuzz bench bench-tools takeover takeover-cluster clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: bin/mortar ## build the static binary bin/mortar

bin/mortar: $(shell find cmd internal examples -name '*.go' -o -name '*.yaml' -o -name '*.tmpl' -o -name '*.css' -o -name '*.sh' 2>/dev/null) go.mod go.sum
	@mkdir -p bin
	go build $(GOFLAGS_BUILD) -o $@ ./cmd/mortar

deps: ## install the Debian packages the virtual rack needs (root)
	@scripts/deps.sh

demo: deps build ## the whole story on this machine: rack, brick, load, crash, proof, report
	@bin/mortar demo --out out/demo

demo-down: build ## take the demo's rack down
	@bin/mortar rack down out/demo/brick.yaml

# Without a tag: what the next release is called, the day and the commit.
PACKAGE_VERSION ?= $(shell git describe --tags --exact-match 2>/dev/null | sed 's/^v//' | grep . || git log -1 --format=0.2.0~git%cd.%h --date=format:%Y%m%d)
package: build ## the Debian package and the RPM of the administrator's machine, into out/package
	@scripts/package.sh "$(PACKAGE_VERSION)"

test-package: deps package ## lintian; the package installed, used and purged in a clean root
	go test -tags pkg -count=1 -v ./test/pkg

test: ready test-unit test-package test-rack ## lint, unit tests with the race detector, the package, three rack runs: what CI runs, within its 25 minutes

# apt waits for its mirror while the compiler works.
.PHONY: ready
ready:
	@$(MAKE) --no-print-directory --output-sync=target -j2 deps lint

# The package whose tests take longest is first, so that another one runs beside it.
test-unit: deps ## unit tests with the race detector
	CGO_ENABLED=1 go test -race -count=1 ./internal/serve/ocf ./...

RUN ?= TestBrick|TestArrayBrick|TestFencedServerBoots
test-rack: deps build ## three whole rack runs: disks, a RAID array, a fenced server that boots as Debian does (RUN=TestArrayBrick: this one)
	go test -tags rack -count=1 -timeout 30m -run '^($(RUN))$$' -v ./test/rack

SUITE ?= trixie
test-boot: deps build ## a fenced server boots as Debian does (SUITE=bookworm: Debian 12)
	MORTAR_TEST_SUITE=$(SUITE) go test -tags rack -count=1 -timeout 22m -run TestFencedServerBoots -v ./test/rack

test-array: deps build ## a RAID array in the rack: LUNs, path groups, reservations, each of its faults; a brick on it grows
	go test -tags rack -count=1 -timeout 60m -run 'TestArray($$|Grows)' -v ./test/rack

test-lustre: deps build ## a Lustre brick on a rack: deploy, its procedures, crashes of an OSS and of the MDS (LUSTRE=DIR: its Debian packages)
	LUSTRE="$(LUSTRE)" go test -tags rack -count=1 -timeout 60m -run TestLustre -v ./test/rack

test-faults: deps build ## both fault injectors pass one suite on a rack
	go test -tags rack -count=1 -timeout 40m -run TestLive -v ./internal/prove/inject

test-alerts: deps build ## a broken path becomes an alert: node_exporter on a rack's servers, Prometheus, Alertmanager, and heals
	go test -tags rack -count=1 -timeout 30m -run TestAlerts -v ./test/rack

years: deps build ## a brick's years under load: discover, apply, Prometheus, a disk, growth, upgrades, another server; into out/years (half an hour)
	go test -tags rack -count=1 -timeout 90m -run TestYears -v ./test/rack

changes: deps build ## drills of day 2's changes on one rack: upgrade, a disk, a server, growth; into out/changes (half an hour)
	go test -tags rack -count=1 -timeout 120m -run 'TestChanges$$' -v ./test/rack

drills: deps build ## the whole failure matrix on a rack, into out/drills (an hour; DRILL_ARGS="--repeat 5": five; "--only server-crash": less)
	MORTAR_DRILL_ARGS="$(DRILL_ARGS)" go test -tags rack -count=1 -timeout 600m -run TestDrills -v ./test/rack

drills-xl: deps build ## servers, links and paths failing under a brick with two services, into out/drills-xl
	MORTAR_DRILL_ARGS="$(DRILL_ARGS)" go test -tags rack -count=1 -timeout 600m -run TestTwoServices -v ./test/rack

systems: deps build ## every example on a rack: up, apply, apply again, a server's crash, down; into out/systems (hours; SYSTEMS="nss7.4-ha nss5.5": these; LUSTRE=DIR: Lustre's too)
	SYSTEMS="$(SYSTEMS)" LUSTRE="$(LUSTRE)" go test -tags rack -count=1 -timeout 600m -run TestSystems -v ./test/rack

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l cmd internal test 2>/dev/null)" || { gofmt -l cmd internal test; echo 'run gofmt -w'; exit 1; }
	go vet ./...
	go tool staticcheck ./...

fuzz: ## each fuzz target for 30 s
	@scripts/fuzz.sh 30s

bench: ## benchmarks of the data path and the planner
	go test -run '^$$' -bench . -benchmem ./internal/prove/stream ./internal/build/plan ./internal/brick/forecast ./internal/run/observe

bench-tools: build ## the load engine's own speed, against fio and (where installed) mdtest; wants a quiet machine
	go run ./scripts/bench-tools

takeover: build ## a service's start after a crash, step by step, as a processor of 10^9 instructions a second does it
	scripts/takeover/takeover.sh bin/mortar

takeover-cluster: ## the cluster's part of a takeover, step by step, on this machine's processors
	scripts/takeover/cluster.sh

clean: ## remove what was built (not a rack that is up: see demo-down)
	rm -rf bin
