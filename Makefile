# Mortar: `make demo` shows it, `make test` tests it. `make help` lists the rest.

SHELL   := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOFLAGS_BUILD := -ldflags "-s -w -X main.version=$(VERSION) -X github.com/mortarhpc/mortar/internal/base/release.made=$(shell git log -1 --format=%cI 2>/dev/null)"
# The same for all but the race detector, so that Go compiles each package once: without it
# an empty cache costs 40 s more.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath

.DEFAULT_GOAL := help
.PHONY: help build package check test-package deps demo demo-down test test-all test-unit test-rack test-more test-boot test-array test-lustre test-faults test-alerts years drills drills-xl changes systems storm size lint fuzz bench takeover takeover-cluster clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: bin/mortar ## build the static binary bin/mortar

bin/mortar: $(shell find cmd internal examples -type f -not -path '*/testdata/*' 2>/dev/null) go.mod go.sum
	@mkdir -p bin
	go build $(GOFLAGS_BUILD) -o $@ ./cmd/mortar

deps: ## install the Debian packages that the virtual rack and the tests need (root)
	@scripts/deps.sh

.PHONY: deps-rack deps-package deps-pages test-pages
deps-rack deps-package deps-pages:
	@scripts/deps.sh $(@:deps-%=%)

demo: deps-rack build ## the whole story on this machine: rack, brick, load, crash, proof, report
	@bin/mortar demo --out out/demo

demo-down: build ## take the demo's rack down
	@bin/mortar rack down out/demo/brick.yaml

# Without a tag: what the next release is called, the day and the commit.
PACKAGE_VERSION ?= $(shell git describe --tags --exact-match 2>/dev/null | sed 's/^v//' | grep . || git log -1 --format=0.2.0~git%cd.%h --date=format:%Y%m%d)
package: build ## the Debian package and the RPM of the administrator's machine, into out/package
	@scripts/package.sh "$(PACKAGE_VERSION)"

test-package: deps-package package ## lintian; the package installed, used and purged in a clean root
	go test -tags pkg -count=1 -v ./test/pkg

test-pages: deps-pages ## report and watch page in Chromium: overflow, contrast, crossed labels, errors; what it saw is in out/pages
	go test -tags pages -count=1 ./test/pages

# Lint and unit tests run beside the racks, whose machines often wait, and only get what the
# racks leave of the processors: they are idle, and so is their session (autogroup), or each
# session would get an equal share. Source: sched(7). What they print comes last.
test: image ## what CI runs: lint, unit tests with the race detector, a rack run
	@setsid bash -c 'echo 19 > /proc/self/autogroup; exec chrt --idle 0 $(MAKE) --no-print-directory lint test-unit' > out/unit.log 2>&1 & unit=$$!; \
	trap 'kill -- -$$unit' INT TERM; \
	$(MAKE) --no-print-directory test-rack; rack=$$?; \
	wait $$unit; unit=$$?; cat out/unit.log; exit $$((rack | unit))

test-all: export MORTAR_TEST_KILL_EVERY ?= 20
test-all: test test-package test-pages test-more test-array test-faults test-alerts ## all that needs no Lustre and less than an hour and a half

# Four at once, because many tests wait.
check: deps lint ## between two edits: format, vet, staticcheck, unit tests without the race detector
	go test -p 4 ./...

# The compiler works while apt waits for its mirror.
.PHONY: image
image:
	@$(MAKE) --no-print-directory --output-sync=target -j2 deps build
	@mkdir -p out && bin/mortar init nfs-ha > out/image.yaml
	bin/mortar rack image out/image.yaml

# The package whose tests take longest is first, so that another one runs beside it. Go
# remembers a package's result until one of its files changes. lint has looked at all
# packages, and the linker leaves the debugger's tables out: a stack has its lines without them.
test-unit: deps ## unit tests with the race detector
	CGO_ENABLED=1 go test -race -vet=off -ldflags='-s -w' ./internal/serve/ocf ./...

# Each rack test is a process that ends when it is done, or when it hangs: test/racktest.
RACK_TEST = go test -tags rack -count=1 -timeout 0 -v

RUN ?= TestBrick
test-rack: deps build ## a whole rack run: a brick on disks (RUN=TestArrayBrick: on a RAID array)
	$(RACK_TEST) -run '^($(RUN))$$' ./test/rack

test-more: deps build ## TestBrick with a cache; a brick in use: its hardware, exports that change, all levels of fencing; an async export, whose loss a drill finds
	$(RACK_TEST) -run 'Test(BrickWithCache|InUse|Async)$$' ./test/rack

SUITE ?= trixie
test-boot: deps build ## TestBrickWithCache, whose fenced server boots as Debian does (SUITE=bookworm: Debian 12)
	MORTAR_TEST_SUITE=$(SUITE) $(RACK_TEST) -run 'TestBrickWithCache$$' ./test/rack

test-array: deps build ## a RAID array in the rack: LUNs, path groups, reservations, each of its faults; a brick on it, and one that grows
	$(RACK_TEST) -run 'TestArray($$|Brick|Grows)' ./test/rack

test-lustre: deps build ## a Lustre brick on a rack: deploy, its procedures, crashes of an OSS and of the MDS (LUSTRE=DIR: its Debian packages)
	LUSTRE="$(LUSTRE)" $(RACK_TEST) -run TestLustre ./test/rack

test-faults: deps build ## both fault injectors pass one suite on a rack
	$(RACK_TEST) -run TestLive ./internal/prove/inject

test-alerts: deps build ## a broken path becomes an alert: node_exporter on a rack's servers, Prometheus, Alertmanager, and heals
	$(RACK_TEST) -run TestAlerts ./test/rack

storm: deps build ## 100, 500 and 2,000 NFS clients find their server crashed, on a rack, into out/storm (half an hour)
	go build -o bin/storm ./test/storm
	scripts/storm.sh bin/mortar bin/storm

size: deps build ## 6, 24 and 84 disks on racks: seconds of each step, into out/size (a quarter of an hour)
	scripts/size.sh bin/mortar
	go run ./test/size -in out/size -svg out/size/size.svg

years: deps build ## a brick's years under load: discover, apply, Prometheus, a disk, growth, upgrades, another server; into out/years (half an hour)
	$(RACK_TEST) -run TestYears ./test/rack

changes: deps build ## drills of day 2's changes on one rack: upgrade, a disk, a server, growth; into out/changes (half an hour)
	$(RACK_TEST) -run 'TestChanges$$' ./test/rack

drills: deps build ## the whole failure matrix on a rack, into out/drills (an hour; DRILL_ARGS="--repeat 5": five; "--only server-crash": less; BRICK=cache, BRICK=array: of such a brick)
	MORTAR_DRILL_BRICK="$(BRICK)" MORTAR_DRILL_ARGS="$(DRILL_ARGS)" $(RACK_TEST) -run TestDrills ./test/rack

drills-xl: deps build ## servers, links and paths failing under a brick with two services, into out/drills-xl
	MORTAR_DRILL_ARGS="$(DRILL_ARGS)" $(RACK_TEST) -run TestTwoServices ./test/rack

systems: deps build ## every example on a rack: up, apply, apply again, a server's crash, down; into out/systems (hours; SYSTEMS="nss7.4-ha nss5.5": these; LUSTRE=DIR: Lustre's too)
	SYSTEMS="$(SYSTEMS)" LUSTRE="$(LUSTRE)" $(RACK_TEST) -run TestSystems ./test/rack

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l cmd internal test 2>/dev/null)" || { gofmt -l cmd internal test; echo 'run gofmt -w'; exit 1; }
	go vet ./...
	go tool staticcheck ./...

fuzz: ## each fuzz target for 30 s
	@scripts/fuzz.sh 30s

bench: ## benchmarks of the data path and the planner
	go test -run '^$$' -bench . -benchmem ./internal/prove/stream ./internal/converge/plan ./internal/brick/forecast ./internal/run/observe

takeover: build ## a service's start after a crash, step by step, as a processor of 10^9 instructions a second does it
	scripts/takeover/takeover.sh bin/mortar

takeover-cluster: ## the cluster's part of a takeover, step by step, on this machine's processors
	scripts/takeover/cluster.sh

clean: ## remove what was built (not a rack that is up: see demo-down)
	rm -rf bin
