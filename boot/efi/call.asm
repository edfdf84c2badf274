; call.asm: the kernel's bytes, and the two changes of context of the UEFI door. System V calls.

default rel
global kernel_elf
global kernel_elf_end
global call_kernel
global call_on_stack
global call_relocated

section .rodata
        align   4096
kernel_elf:
        incbin  KERNEL_ELF
kernel_elf_end:

; Absolute addresses, which somebody has to relocate: GNU-EFI's start code, if it finds them.
section .data
        align   8
relocated_code: dq call_relocated
relocated_data: dq relocated_code
relocated_text: dq kernel_elf

section .text

; bool call_relocated(void)
call_relocated:
        xor     eax, eax
        lea     rcx, [call_relocated]
        cmp     rcx, [relocated_code]
        jne     .end
        lea     rcx, [relocated_code]
        cmp     rcx, [relocated_data]
        jne     .end
        lea     rcx, [kernel_elf]
        cmp     rcx, [relocated_text]
        sete    al
.end:   ret

; uint32_t call_kernel(uint64_t entry, struct boot_info *bi, uint64_t cr3)
; This code and its stack have the same addresses in both page tables. R12 is the callee's to keep.
call_kernel:
        push    r12
        mov     r12, cr3
        mov     cr3, rdx
        mov     rax, rdi
        mov     rdi, rsi
        call    rax
        cli
        cld
        mov     cr3, r12
        pop     r12
        ret

; void call_on_stack(void *top, void (*fn)(void)): fn does not return. A zero RBP ends backtraces.
call_on_stack:
        mov     rsp, rdi
        xor     ebp, ebp
        call    rsi
.stop:  cli
        hlt
        jmp     .stop

section .note.GNU-stack noalloc noexec nowrite progbits
