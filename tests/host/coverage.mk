# coverage.mk: line and branch coverage of the host tests. Included by host.mk. tools/coverage.py says what counts.
#
# The mutants are left out: what they reach, they reach in deliberately broken code; and the fuzzers, which are built in
# another way. Without sanitizers, which would add branches of their own to the machine code and nothing to the source's.

COVERAGE_OUT := $(BUILD)/host-coverage
COVERAGE_SAN := -fprofile-instr-generate -fcoverage-mapping -fprofile-update=atomic
COVERAGE_TESTS = $(filter-out mm_mutant_% fuzz_%,$(HOST_TESTS))
COVERAGE_BOUNDS := --bound mm=95,85 --bound lib=95,85 --also arch/x86_64
# 1: list what no test reaches; or the beginnings of paths, "mm/vmap lib"
COVERAGE_LINES ?=

coverage: coverage-tools ## what the host tests reach of mm/ and lib/, with bounds (COVERAGE_LINES=1 or "mm/vmap.c ...")
	@rm -f $(COVERAGE_OUT)/*.profraw
	$(Q)MM_FIRST_SEED=$${MM_FIRST_SEED:-0x6d6d6170} $(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) \
		test-host HOST_OUT=$(COVERAGE_OUT) HOST_SAN='$(COVERAGE_SAN)' HOST_ONLY='$(COVERAGE_TESTS)'
	$(Q)python3 tools/coverage.py $(COVERAGE_BOUNDS) $(patsubst %,--show '%',$(filter-out 1,$(COVERAGE_LINES))) \
		$(if $(filter 1,$(COVERAGE_LINES)),--show '') $(COVERAGE_OUT) $(COVERAGE_TESTS)

test-full: coverage

coverage-tools:
	@for p in python3:python3 llvm-cov:llvm llvm-profdata:llvm; do \
		command -v "$${p%%:*}" >/dev/null || \
		{ echo "$${p%%:*} is missing: install the package $${p#*:} (make deps does)" >&2; exit 1; }; \
	done

.PHONY: coverage coverage-tools test-full
