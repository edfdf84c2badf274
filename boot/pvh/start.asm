; start.asm: the PVH entry (xen/include/public/arch-x86/hvm/start_info.h, "PVH boot ABI").
;
; The loader has put the image at its load addresses (p_paddr) and enters pvh_start in 32-bit
; protected mode with flat segments, paging and interrupts off, EBX = address of hvm_start_info.
; From here to long mode everything is addressed physically: PHYS(x) = x - KERNEL_BASE.

%define KERNEL_BASE  0xffffffff80000000
; ELF relocations add modulo 2^64, so adding 2^31 subtracts KERNEL_BASE.
%define PHYS(x)      ((x) + 0x80000000)

%define STACK_SIZE   65536
%define PTE_P        1
%define PTE_W        2
%define PTE_PS       0x80
%define CR0_PG       0x80000000
%define CR0_WP       0x00010000
%define CR0_EM       0x00000004
%define CR4_PAE      0x20
%define MSR_EFER     0xc0000080
%define EFER_LME     0x100
%define COM1         0x3f8
%define VERDICT_ERROR 0x13

extern pvh_main
extern __bss_start
extern __bss_end
global pvh_start

default rel

; XEN_ELFNOTE_PHYS32_ENTRY (18): where to enter. The descriptor may be 4 or 8 bytes.
section .note.Xen note alloc noexec nowrite align=4
        dd 4, 8, 18
        db "Xen", 0
        dq PHYS(pvh_start)

section .text
bits 32
pvh_start:
        cld
        cli
        mov     esp, PHYS(boot_stack_top)

; Not every loader checks that there is memory up to the end of the image. The last bytes of .bss
; are nobody's yet.
        mov     esi, PHYS(no_memory_text)
        mov     edi, PHYS(__bss_end)
        mov     dword [edi - 4], 0x5aa5c33c
        cmp     dword [edi - 4], 0x5aa5c33c
        jne     give_up

; Not every loader clears the part of a segment that is not in the file. The stack lies there too:
; nothing is on it yet.
        mov     edi, PHYS(__bss_start)
        mov     ecx, PHYS(__bss_end)
        sub     ecx, edi
        shr     ecx, 2
        xor     eax, eax
        rep     stosd

; Long mode (CPUID 80000001h:EDX[29]) is not to be taken for granted: -cpu qemu32 has PVH too.
        mov     ebp, ebx
        mov     esi, PHYS(no_long_mode_text)
        mov     eax, 0x80000000
        cpuid
        cmp     eax, 0x80000001
        jb      give_up
        mov     eax, 0x80000001
        cpuid
        bt      edx, 29
        jnc     give_up

; Page tables: 4 GiB mapped to themselves by 2 MiB pages; the last 2 GiB of addresses begin with the
; same first GiB, so that KERNEL_BASE + x is x. All writable and executable, for the start only.
        mov     edi, PHYS(boot_pd)
        mov     eax, PTE_PS | PTE_W | PTE_P
        mov     ecx, 4 * 512
.fill:  mov     [edi], eax
        add     eax, 0x200000
        add     edi, 8
        dec     ecx
        jnz     .fill
        mov     eax, PHYS(boot_pd)
        or      eax, PTE_W | PTE_P
        mov     [PHYS(boot_pdpt_high) + 510 * 8], eax
        mov     edi, PHYS(boot_pdpt_low)
        mov     ecx, 4
.pdpt:  mov     [edi], eax
        add     eax, 4096
        add     edi, 8
        dec     ecx
        jnz     .pdpt
        mov     eax, PHYS(boot_pdpt_low)
        or      eax, PTE_W | PTE_P
        mov     [PHYS(boot_pml4)], eax
        mov     eax, PHYS(boot_pdpt_high)
        or      eax, PTE_W | PTE_P
        mov     [PHYS(boot_pml4) + 511 * 8], eax

; Long mode (SDM 3A 9.8.5): PAE, CR3, EFER.LME, then paging.
        mov     eax, cr4
        or      eax, CR4_PAE
        mov     cr4, eax
        mov     eax, PHYS(boot_pml4)
        mov     cr3, eax
        mov     ecx, MSR_EFER
        rdmsr
        or      eax, EFER_LME
        wrmsr
        mov     eax, cr0
        or      eax, CR0_PG | CR0_WP
        and     eax, ~CR0_EM
        mov     cr0, eax
        lgdt    [PHYS(boot_gdt_low)]
        jmp     8:PHYS(.long)

; 64-bit code, still at the physical address. EBP holds the start info.
bits 64
.long:  mov     rax, .high
        jmp     rax

; At the link address: flat data segments, no FS and GS base, and into C. The stack stays at its
; physical address, as the UEFI door's does: the kernel cannot come to rely on more in one of them.
.high:  mov     eax, 16
        mov     ds, eax
        mov     es, eax
        mov     ss, eax
        xor     eax, eax
        mov     fs, eax
        mov     gs, eax
        lgdt    [boot_gdt_high]
        mov     esp, PHYS(boot_stack_top)
        mov     edi, ebp
        xor     ebp, ebp
        call    pvh_main
.stop:  cli
        hlt
        jmp     .stop

; Says why, the text at ESI, on COM1 (bounded wait for THRE, line status bit 5), ends QEMU, else
; halts. No stack: there may be no memory for it.
bits 32
give_up:
.next:  mov     bl, [esi]
        test    bl, bl
        jz      .end
        mov     ecx, 100000
        mov     edx, COM1 + 5
.wait:  in      al, dx
        test    al, 0x20
        loopz   .wait
        mov     edx, COM1
        mov     al, bl
        out     dx, al
        inc     esi
        jmp     .next
.end:   mov     eax, VERDICT_ERROR
        out     0xf4, eax
.stop:  cli
        hlt
        jmp     .stop

section .rodata
no_memory_text:
        db      "metalmap: no memory where the kernel ends: this machine has too little", 13, 10
        db      "RESULT: ERROR tests=0 fail=0 skip=0 error=1", 13, 10, 0
no_long_mode_text:
        db      "metalmap: this CPU has no 64-bit mode", 13, 10
        db      "RESULT: ERROR tests=0 fail=0 skip=0 error=1", 13, 10, 0

; Code and data, flat, with the accessed bit set beforehand: nothing writes to these.
        align   8
boot_gdt:
        dq      0
        dq      0x00af9b000000ffff
        dq      0x00cf93000000ffff
boot_gdt_end:
        align   8
        dw      0, 0, 0
boot_gdt_low:
        dw      boot_gdt_end - boot_gdt - 1
        dd      PHYS(boot_gdt)
        align   8
        dw      0, 0, 0
boot_gdt_high:
        dw      boot_gdt_end - boot_gdt - 1
        dq      boot_gdt

section .bss align=4096
boot_pml4:      resb 4096
boot_pdpt_low:  resb 4096
boot_pdpt_high: resb 4096
boot_pd:        resb 4 * 4096
boot_stack:     resb STACK_SIZE
boot_stack_top:
