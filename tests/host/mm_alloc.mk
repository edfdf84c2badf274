# mm_alloc.mk: tests of the page allocator and the object caches on the simulated machine, without its hooks: they keep
# their own account of who owns what, and free what must be refused. Included by host.mk after mm.mk.
#
# Each program is built twice: as the kernel is, and as NAME_debug with CONFIG_DEBUG (mm.mk's archives).

ALLOC_TESTS := mm_early_test mm_page_test mm_page_smp_test mm_cache_test
ALLOC_PLAIN := $(HOST_OUT)/plain

# $(1) suffix, $(2) folder of archives and objects
define alloc_tests
HOST_TESTS += $(ALLOC_TESTS:%=%$(1))
$(ALLOC_TESTS:%=$(HOST_OUT)/%$(1)): $(HOST_OUT)/%$(1): $(2)/sim.dir/tests/host/%.o $(2)/libsim.a $(2)/libmm.a \
		$(HOST_OUT)/libhost.a
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		-lcmocka -o $$@
-include $(ALLOC_TESTS:%=$(2)/sim.dir/tests/host/%.d)
endef

$(eval $(call sim_archives,$(ALLOC_PLAIN),$$(HOSTCC),$$(HOST_SAN)))
$(ALLOC_PLAIN)/%: SIM_FLAGS := $(filter-out -DCONFIG_DEBUG,$(SIM_FLAGS))
$(eval $(call alloc_tests,,$(ALLOC_PLAIN)))
$(eval $(call alloc_tests,_debug,$(HOST_OUT)))

TSAN_TESTS += mm_page_smp_test mm_cache_test mm_page_smp_test_debug mm_cache_test_debug
