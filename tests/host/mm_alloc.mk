# mm_alloc.mk: tests of the page allocator and the object caches on the simulated machine, without the rest of mm/ and
# without the hooks: they keep their own account of who owns what. Included by host.mk.
#
# Each program is built twice: as the kernel is, and as NAME_debug with CONFIG_DEBUG.

ALLOC_SRCS := $(sort mm/early_alloc.c mm/kmalloc.c $(wildcard mm/page_*.c mm/cache*.c)) \
	$(filter-out %/sim_api.c,$(sort $(wildcard tests/host/sim/sim_*.c))) tests/host/sim/oracle_tables.c
ALLOC_TESTS := mm_early_test mm_page_test mm_page_smp_test mm_cache_test

# $(1) suffix, $(2) flags
define alloc_flavour
$(call host_objects,$(HOST_OUT)/alloc$(1).dir,$$(HOSTCC),$$(HOST_SAN) -Iarch/x86_64/include $(2))
$(HOST_OUT)/liballoc$(1).a: $$(ALLOC_SRCS:%.c=$(HOST_OUT)/alloc$(1).dir/%.o)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
HOST_TESTS += $(ALLOC_TESTS:%=%$(1))
$(ALLOC_TESTS:%=$(HOST_OUT)/%$(1)): $(HOST_OUT)/%$(1): $(HOST_OUT)/alloc$(1).dir/tests/host/%.o \
		$(HOST_OUT)/liballoc$(1).a $(HOST_OUT)/libhost.a
	$$(Q)$$(HOSTCC) $$(HOST_SAN) -pthread $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
		-lcmocka -o $$@
-include $$(patsubst %.c,$(HOST_OUT)/alloc$(1).dir/%.d,$$(ALLOC_SRCS) $(ALLOC_TESTS:%=tests/host/%.c))
endef

$(eval $(call alloc_flavour,,))
$(eval $(call alloc_flavour,_debug,-DCONFIG_DEBUG))

TSAN_TESTS += mm_page_smp_test mm_cache_test
