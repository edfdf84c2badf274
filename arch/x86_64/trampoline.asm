; trampoline.asm: the way of another CPU from SIPI to C.
;
; The part in section .trampoline is copied to a page below 1 MiB, whose number is the SIPI's
; vector. It is position-independent but for the fields at its end, which smp_boot.c fills in
; (struct trampoline_fields there). It writes nothing and uses no stack. The rest runs in the
; kernel's text.

; struct ap_slot (smp_boot.h)
SLOT_APIC_ID equ 0
SLOT_STATE   equ 4
SLOT_STACK   equ 8
SLOT_SIZE    equ 64
AP_WAITING   equ 1
AP_ARRIVED   equ 2

MSR_MISC_ENABLE equ 0x1a0
XD_DISABLE_HIGH equ 4           ; bit 34, in EDX
MSR_EFER        equ 0xc0000080
MSR_APIC_BASE   equ 0x1b
APIC_BASE_EXTD  equ 1 << 10
APIC_BASE_EN    equ 1 << 11
MSR_X2APIC_ID   equ 0x802
APIC_ID         equ 0x20
CR0_PE          equ 1

SEL_CODE64 equ 0x08
SEL_DATA   equ 0x10
SEL_CODE32 equ 0x18

global trampoline_fields, ap_entry, stack_call
extern smp_ap_main, ap_slots, ap_slot_count, ap_strays, ap_apic_mmio

%define OFF(label) (label - trampoline_begin)

section .trampoline progbits alloc noexec nowrite align=16

; Real mode, CS:IP = page >> 4:0, interrupts off, caches off (CR0.CD after INIT), nothing else
; known.
bits 16
trampoline_begin:
    cli
    cld
    mov ax, cs
    mov ds, ax
    xor ebx, ebx                ; EBX: the page's address, from here to the kernel
    mov bx, ax
    shl ebx, 4
    o32 lgdt [OFF(gdtr)]
    mov eax, cr0
    or al, CR0_PE
    mov cr0, eax
    o32 jmp far [OFF(far32)]

; Protected mode, flat, paging off. NX must be allowed before it can be switched on, and be on
; before tables that have NX bits are loaded; CR4 is the boot CPU's, with PAE and perhaps LA57.
bits 32
protected:
    mov ax, SEL_DATA
    mov ds, ax
    mov es, ax
    mov ss, ax
    cmp dword [ebx + OFF(allow_nx)], 0
    je .nx_allowed
    mov ecx, MSR_MISC_ENABLE
    rdmsr
    and edx, ~XD_DISABLE_HIGH
    wrmsr
.nx_allowed:
    mov eax, [ebx + OFF(value_cr4)]
    mov cr4, eax
    mov eax, [ebx + OFF(value_cr3)]
    mov cr3, eax
    mov ecx, MSR_EFER
    xor edx, edx
    mov eax, [ebx + OFF(efer)]
    wrmsr
    mov eax, [ebx + OFF(value_cr0)]   ; caches on, paging and write protection on
    mov cr0, eax
    jmp far [ebx + OFF(far64)]

; Long mode, in the page's identity mapping, which allows reading and executing only.
bits 64
long_mode:
    mov rax, [rbx + OFF(entry)]
    jmp rax

; Accessed bits are set: loading a segment must not write here (case G1).
align 8
gdt:
    dq 0
    dq 0x00af9b000000ffff       ; code64
    dq 0x00cf93000000ffff       ; data
    dq 0x00cf9b000000ffff       ; code32
gdt_end:

; struct trampoline_fields. The 32-bit values that depend on the page hold offsets, to be added to.
align 8
trampoline_fields:
entry:    dq 0
value_cr3: dd 0
value_cr4: dd 0
value_cr0: dd 0
efer:     dd 0
allow_nx: dd 0
gdtr:     dw gdt_end - gdt - 1
gdt_base: dd OFF(gdt)
far32:    dd OFF(protected)
          dw SEL_CODE32
far64:    dd OFF(long_mode)
          dw SEL_CODE64

section .text
bits 64
default rel

; Long mode, the kernel's tables, no stack, no IDT. Which CPU is this? The initial APIC ID by
; CPUID leaf 1FH or 0BH (EDX), if they have processors at their first level (EBX), else by leaf 1.
ap_entry:
    xor eax, eax
    cpuid
    mov r8d, eax                ; highest leaf
    mov r9d, 0x1f
    cmp r8d, r9d
    jb .leaf_0b
    mov eax, r9d
    xor ecx, ecx
    cpuid
    test ebx, 0xffff
    jnz .have_id
.leaf_0b:
    mov r9d, 0x0b
    cmp r8d, r9d
    jb .leaf_1
    mov eax, r9d
    xor ecx, ecx
    cpuid
    test ebx, 0xffff
    jnz .have_id
.leaf_1:
    mov eax, 1
    cpuid
    shr ebx, 24
    mov edx, ebx

; EDX: the ID. Find its slot among the ap_slot_count ones and claim it; a CPU that is in none of
; them, comes too late, or comes again, stops here for good.
.have_id:
    xor r10d, r10d
.look_up:
    mov rdi, [ap_slots]
    mov ecx, [ap_slot_count]
.next:
    test ecx, ecx
    jz .not_found
    cmp [rdi + SLOT_APIC_ID], edx
    je .found
    add rdi, SLOT_SIZE
    dec ecx
    jmp .next

; Firmware may have renumbered the APICs, and the MADT then has the new numbers: once more, with
; the ID register. Each CPU is still in the mode that firmware left it in; no 0x8xx MSR unless
; EXTD is set (case G8).
.not_found:
    test r10d, r10d
    jnz .stray
    inc r10d
    mov ecx, MSR_APIC_BASE
    rdmsr
    test eax, APIC_BASE_EN
    jz .stray
    test eax, APIC_BASE_EXTD
    jz .xapic
    mov ecx, MSR_X2APIC_ID
    rdmsr
    mov edx, eax
    jmp .look_up
.xapic:
    mov rdi, [ap_apic_mmio]
    test rdi, rdi
    jz .stray
    mov edx, [rdi + APIC_ID]
    shr edx, 24
    jmp .look_up

.found:
    mov eax, AP_WAITING
    mov ecx, AP_ARRIVED
    lock cmpxchg [rdi + SLOT_STATE], ecx
    jne .stray
    mov rsp, [rdi + SLOT_STACK]
    xor ebp, ebp
    call smp_ap_main
.stray:
    lock inc dword [ap_strays]
.halt:
    cli
    hlt
    jmp .halt

; void stack_call(void *top, void (*fn)(void *), void *arg). The old RBP stays in the chain of
; frames, so that a backtrace goes on to the caller.
stack_call:
    push rbp
    mov rbp, rsp
    and rdi, -16
    mov rsp, rdi
    mov rdi, rdx
    call rsi
    mov rsp, rbp
    pop rbp
    ret

section .note.GNU-stack noalloc noexec nowrite progbits
