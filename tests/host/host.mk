# host.mk: lib/ and mm/ on the build machine: test programs and fuzzers. Included by the top
# Makefile; also usable alone: make -f tests/host/host.mk test-host
#
# A test program is one line:  $(eval $(call host_test,NAME,SOURCES,FLAGS,LIBS))
# A fuzzer is one line:        $(eval $(call host_fuzz,NAME,SOURCES,FLAGS))
# (tests/host/NAME.dict is its dictionary, if there is one)
# Each is linked with all of lib/ (but string.c: libc has it) and tests/host/testlib.c. FLAGS and
# LIBS may be empty. Programs print to stderr, exit with 0 for success, and take MM_SEED.

BUILD ?= build
HOSTCC ?= clang
FUZZCC ?= clang
Q ?= $(if $(V),,@)
HOST_TIMEOUT ?= 300
SECONDS ?= 60
TSAN_RUNS ?= 3
CALLS ?= 100000000
HOST_OUT ?= $(BUILD)/host
FUZZ_OUT ?= $(BUILD)/fuzz
HOST_SAN ?= -fsanitize=address,undefined -fno-sanitize-recover=all
HOST_WERROR ?= -Werror

HOST_CFLAGS = -std=gnu11 -O1 -g -fno-omit-frame-pointer -fno-common -pthread \
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(HOST_WERROR) \
	-Itests/host/include -I. -MMD -MP $(HOST_USER_CFLAGS)

HOST_LIB_SRCS := $(filter-out lib/string.c,$(sort $(wildcard lib/*.c))) tests/host/testlib.c
HOST_TESTS :=
# Programs with threads; `make tsan` runs them under ThreadSanitizer. A line to add: TSAN_TESTS += NAME
TSAN_TESTS := lib_printf_test
HOST_FUZZERS :=

# $(1) output folder, $(2) compiler, $(3) flags: how sources become objects there
define host_objects
$(1)/%.o: %.c tests/host/host.mk | host-tools
	@mkdir -p $$(@D)
	$$(Q)$(2) $$(HOST_CFLAGS) $(3) $$(HOST_EXTRA) -c $$< -o $$@
endef

# $(1) archive, $(2) folder of its objects
define host_archive
$(1): $$(HOST_LIB_SRCS:%.c=$(2)/%.o)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
-include $$(HOST_LIB_SRCS:%.c=$(2)/%.d)
endef

define host_test
HOST_TESTS += $(1)
$(call host_objects,$(HOST_OUT)/$(1).dir,$$(HOSTCC),$$(HOST_SAN) $(3))
$(HOST_OUT)/$(1): $$(patsubst %.c,$(HOST_OUT)/$(1).dir/%.o,$(2)) $(HOST_OUT)/libhost.a
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$^ -lcmocka $(4) -o $$@
-include $$(patsubst %.c,$(HOST_OUT)/$(1).dir/%.d,$(2))
endef

define host_fuzz
HOST_FUZZERS += $(1)
FUZZ_OBJS_$(1) := $(patsubst %.c,$(FUZZ_OUT)/$(1).dir/%.o,$(2))
FUZZ_LIBS_$(1) := $(FUZZ_OUT)/libhost.a
$(call host_objects,$(FUZZ_OUT)/$(1).dir,$$(FUZZCC),$$(HOST_SAN) -fsanitize=fuzzer-no-link $(3))
$(FUZZ_OUT)/$(1): $$(patsubst %.c,$(FUZZ_OUT)/$(1).dir/%.o,$(2)) $(FUZZ_OUT)/libhost.a
	$$(Q)$$(FUZZCC) $$(HOST_SAN) -fsanitize=fuzzer -pthread $$^ -o $$@
-include $$(patsubst %.c,$(FUZZ_OUT)/$(1).dir/%.d,$(2))
endef

$(eval $(call host_objects,$(HOST_OUT)/libhost.dir,$$(HOSTCC),$$(HOST_SAN)))
$(eval $(call host_archive,$(HOST_OUT)/libhost.a,$(HOST_OUT)/libhost.dir))
$(eval $(call host_objects,$(FUZZ_OUT)/libhost.dir,$$(FUZZCC),$$(HOST_SAN) -fsanitize=fuzzer-no-link))
$(eval $(call host_archive,$(FUZZ_OUT)/libhost.a,$(FUZZ_OUT)/libhost.dir))

# ---- the programs ----

$(eval $(call host_test,lib_assert_test,tests/host/lib_assert_test.c))
$(eval $(call host_test,lib_base_test,tests/host/lib_base_test.c))
$(eval $(call host_test,lib_bitmap_test,tests/host/lib_bitmap_test.c))
$(eval $(call host_test,lib_histogram_test,tests/host/lib_histogram_test.c))
$(eval $(call host_test,lib_ktap_test,tests/host/lib_ktap_test.c))
$(eval $(call host_test,lib_list_test,tests/host/lib_list_test.c))
$(eval $(call host_test,lib_memrange_test,tests/host/lib_memrange_test.c tests/host/memrange_model.c))
$(eval $(call host_test,lib_options_test,tests/host/lib_options_test.c))
$(eval $(call host_test,lib_printf_test,tests/host/lib_printf_test.c tests/host/printf_compare.c))
$(eval $(call host_test,lib_rbtree_test,tests/host/lib_rbtree_test.c))
$(eval $(call host_test,lib_rng_test,tests/host/lib_rng_test.c))
$(eval $(call host_test,lib_string_test,tests/host/lib_string_test.c lib/string.c))
# beside libc's functions, under other names, and compiled as the kernel compiles it
$(HOST_OUT)/lib_string_test.dir/lib/string.o: HOST_EXTRA = -O2 -ffreestanding -include tests/host/string_names.h

$(eval $(call host_fuzz,fuzz_memrange,tests/host/fuzz_memrange.c tests/host/memrange_model.c))
$(eval $(call host_fuzz,fuzz_options,tests/host/fuzz_options.c))
$(eval $(call host_fuzz,fuzz_printf,tests/host/fuzz_printf.c tests/host/printf_compare.c))

-include tests/host/mm.mk
-include tests/host/mm_alloc.mk
-include tests/host/mm_plain.mk
-include tests/host/boot.mk
-include tests/host/arch.mk
-include tests/host/fuzz.mk
-include tests/host/coverage.mk

# ---- targets ----

.PHONY: test-host build-host tsan tsan-once simulate fuzz build-fuzz host-tools

# A missing tool is a line that names its package, not a compiler's error.
host-tools:
	@command -v $(firstword $(HOSTCC)) >/dev/null || \
		{ echo "$(firstword $(HOSTCC)) is missing: install the package clang (make deps does)"; exit 1; }
	@echo '#include <stdarg.h>' '#include <stddef.h>' '#include <stdint.h>' '#include <setjmp.h>' \
		'#include <cmocka.h>' | tr '#' '\n' | sed 's/^include/#include/' | \
		$(HOSTCC) -fsyntax-only -x c - 2>/dev/null || \
		{ echo "cmocka.h is missing: install the package libcmocka-dev (make deps does)"; exit 1; }

HOST_CHOSEN = $(or $(HOST_ONLY),$(HOST_TESTS))

build-host: $(HOST_CHOSEN:%=$(HOST_OUT)/%)

test-host: build-host ## tests of lib/ and mm/ on this machine, with sanitizers (HOST_ONLY="names", MM_SEED=n)
	$(Q)sh tests/host/run.sh $(HOST_OUT) $(HOST_TIMEOUT) $(HOST_CHOSEN)

tsan: ## host tests with threads under ThreadSanitizer, TSAN_RUNS=3 times
	$(Q)for i in $$(seq $(TSAN_RUNS)); do \
		$(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) test-host \
			HOST_OUT=$(BUILD)/host-tsan HOST_SAN=-fsanitize=thread HOST_ONLY="$(TSAN_TESTS)" || exit 1; \
	done

tsan-once:
	$(Q)$(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) tsan TSAN_RUNS=1 \
		TSAN_TESTS="$(filter-out %_debug,$(TSAN_TESTS))"

# Without sanitizers, which find nothing in it that the shorter runs of test-host do not, and optimised.
simulate: ## the random driver on the simulated machine: CALLS=10^8 calls of the API, on all of the host's CPUs
	$(Q)$(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST)) build-host \
		HOST_OUT=$(BUILD)/host-fast HOST_SAN=-O2 HOST_ONLY=mm_seeds_test
	$(Q)sh tests/host/simulate.sh $(BUILD)/host-fast $(CALLS) $$(nproc)

build-fuzz: $(HOST_FUZZERS:%=$(FUZZ_OUT)/%)

fuzz: build-fuzz ## fuzzers, each for SECONDS=60
	$(Q)sh tests/host/fuzz.sh $(FUZZ_OUT) $(SECONDS) $(HOST_FUZZERS)
