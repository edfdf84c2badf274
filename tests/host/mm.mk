# mm.mk: mm/ on the simulated machine (tests/host/sim). Included by host.mk.
#
# A test program is one line:  $(eval $(call sim_test,NAME,SOURCES))
# It is linked with all of mm/, compiled unmodified against tests/host/include and with CONFIG_DEBUG, and with
# the simulation and its hooks. A program of another flavour names its own folder (see below).

SIM_FLAGS := -Iarch/x86_64/include -DCONFIG_DEBUG -fno-strict-aliasing
SIM_SRCS := $(sort $(wildcard tests/host/sim/*.c))
SIM_MM_SRCS := $(sort $(wildcard mm/*.c)) arch/x86_64/tlb_gen.c arch/x86_64/rwlock.c
SIM_LINK := @tests/host/sim/wrap.opts -Wl,-T,tests/host/sim/mm_data.ld

# $(1) folder, $(2) compiler, $(3) flags: libmm.a and libsim.a there
define sim_archives
$(call host_objects,$(1)/sim.dir,$(2),$(3) $$(SIM_FLAGS))
$(1)/libmm.a: $$(SIM_MM_SRCS:%.c=$(1)/sim.dir/%.o)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
$(1)/libsim.a: $$(SIM_SRCS:%.c=$(1)/sim.dir/%.o)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
-include $$(patsubst %.c,$(1)/sim.dir/%.d,$$(SIM_SRCS) $$(SIM_MM_SRCS))
endef

define sim_test
HOST_TESTS += $(1)
$(HOST_OUT)/$(1): $$(patsubst %.c,$(HOST_OUT)/sim.dir/%.o,$(2)) $(HOST_OUT)/libsim.a $(HOST_OUT)/libmm.a $(HOST_OUT)/libhost.a \
		tests/host/sim/wrap.opts tests/host/sim/mm_data.ld
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(SIM_LINK) -lcmocka -o $$@
-include $$(patsubst %.c,$(HOST_OUT)/sim.dir/%.d,$(2))
endef

# A deliberately broken build: tests/host/mutants/NAME.sed changes one file, which its first line names with the rules
# that may find it. Each of its substitutions must change one line.
define sim_mutant
HOST_TESTS += mm_mutant_$(1)
$(HOST_OUT)/mutants/$(1)/mutant.c: tests/host/mutants/$(1).sed $$(shell sed -n '1s/^# \([^:]*\):.*/\1/p' tests/host/mutants/$(1).sed)
	@mkdir -p $$(@D)
	@sh tests/host/mutate.sh $$< $$(word 2,$$^) $$@
$(HOST_OUT)/mutants/$(1)/expect.c: tests/host/mutants/$(1).sed
	@mkdir -p $$(@D)
	@sed -n '1s/^# \([^:]*\): \([^:]*\):.*/extern const char mutant_name[], mutant_file[], mutant_rules[];\
	const char mutant_name[] = "$(1)", mutant_file[] = "\1", mutant_rules[] = "\2";/p' $$< >$$@
$(HOST_OUT)/mutants/$(1)/%.o: $(HOST_OUT)/mutants/$(1)/%.c tests/host/mm.mk
	$$(Q)$$(HOSTCC) $$(HOST_CFLAGS) $$(HOST_SAN) $$(SIM_FLAGS) -Imm -c $$< -o $$@
$(HOST_OUT)/mm_mutant_$(1): $(HOST_OUT)/sim.dir/tests/host/mm_mutant_test.o $(HOST_OUT)/mutants/$(1)/mutant.o \
		$(HOST_OUT)/mutants/$(1)/expect.o $(HOST_OUT)/libsim.a $(HOST_OUT)/libmm.a $(HOST_OUT)/libhost.a
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		$$(SIM_LINK) -lcmocka -o $$@
-include $(HOST_OUT)/mutants/$(1)/mutant.d
endef

define sim_fuzz
HOST_FUZZERS += $(1)
FUZZ_OBJS_$(1) := $(patsubst %.c,$(FUZZ_OUT)/sim.dir/%.o,$(2))
FUZZ_LIBS_$(1) := $(FUZZ_OUT)/libsim.a $(FUZZ_OUT)/libmm.a $(FUZZ_OUT)/libhost.a
FUZZ_LINK_$(1) := $(SIM_LINK)
$(FUZZ_OUT)/$(1): $$(patsubst %.c,$(FUZZ_OUT)/sim.dir/%.o,$(2)) $(FUZZ_OUT)/libsim.a $(FUZZ_OUT)/libmm.a $(FUZZ_OUT)/libhost.a
	$$(Q)$$(FUZZCC) $$(HOST_SAN) -fsanitize=fuzzer -pthread $$(filter %.o,$$^) -Wl,--start-group $$(filter %.a,$$^) \
		-Wl,--end-group $$(SIM_LINK) -o $$@
-include $$(patsubst %.c,$(FUZZ_OUT)/sim.dir/%.d,$(2))
endef

$(eval $(call sim_archives,$(HOST_OUT),$$(HOSTCC),$$(HOST_SAN)))
$(eval $(call sim_archives,$(FUZZ_OUT),$$(FUZZCC),$$(HOST_SAN) -fsanitize=fuzzer-no-link))

$(eval $(call sim_test,mm_oracle_test,tests/host/mm_oracle_test.c))
$(eval $(call sim_test,mm_machine_test,tests/host/mm_machine_test.c))
$(eval $(call sim_test,mm_seeds_test,tests/host/mm_seeds_test.c))
$(eval $(call sim_test,mm_free_test,tests/host/mm_free_test.c))
TSAN_TESTS += mm_free_test
$(eval $(call sim_test,mm_gen_test,tests/host/mm_gen_test.c))
$(eval $(call sim_test,mm_remote_test,tests/host/mm_remote_test.c))
$(eval $(call sim_test,mm_fault_test,tests/host/mm_fault_test.c))
$(eval $(call sim_test,mm_check_test,tests/host/mm_check_test.c))
$(eval $(call sim_test,mm_pblock_test,tests/host/mm_pblock_test.c))
$(eval $(call sim_test,mm_api_test,tests/host/mm_api_test.c))
$(eval $(call sim_test,mm_config_test,tests/host/mm_config_test.c))
$(eval $(call sim_test,mm_bounds_test,tests/host/mm_bounds_test.c))
SIM_MUTANTS := $(patsubst tests/host/mutants/%.sed,%,$(sort $(wildcard tests/host/mutants/*.sed)))
$(foreach m,$(SIM_MUTANTS),$(eval $(call sim_mutant,$(m))))
$(eval $(call sim_fuzz,fuzz_vmap,tests/host/fuzz_vmap.c))
