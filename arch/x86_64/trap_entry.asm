; trap_entry.asm: where the CPU enters the kernel on each of the 256 vectors.
;
; Each stub makes the stack look the same (an error code, 0 where the CPU pushes none, then the
; vector) and all meet in trap_common, which saves the registers as struct trap_frame (arch/trap.h)
; and calls trap_dispatch(frame). There is no user mode: no SWAPGS, and GS is valid before the IDT
; is loaded.

bits 64
default rel

STUB_SIZE equ 16                ; idt.c computes addresses from this

; offsets in struct trap_frame
F_ERROR  equ 16 * 8
F_RIP    equ 17 * 8
F_RFLAGS equ 19 * 8
F_RSP    equ 20 * 8

extern trap_dispatch
global trap_stubs, trap_stubs_end
global cpu_halt, cpu_halt_hlt, cpu_halt_end

; Undoes the pushes of trap_common.
%macro POP_REGS 0
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
%endmacro

section .text

; Exceptions that push an error code: 8, 10-14, 17, 21, 29, 30 (SDM 3A table 6-1; APM 2 8.2 for the
; last two).
%define HAS_ERROR(v) (v == 8 || (v >= 10 && v <= 14) || v == 17 || v == 21 || v == 29 || v == 30)

align STUB_SIZE
trap_stubs:
%assign v 0
%rep 256
    align STUB_SIZE, int3
    %if !HAS_ERROR(v)
    push 0
    %endif
    push v
    jmp near trap_common
    %assign v v + 1
%endrep
    align STUB_SIZE, int3
trap_stubs_end:

; Stack: vector, error, rip, cs, rflags, rsp, ss. The CPU aligned RSP to 16 before it pushed five
; words; with seven words here and fifteen registers it is aligned again at the call.
align 16
trap_common:
    cld
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rdi, rsp
    call trap_dispatch
    test al, al
    jnz .without_iret
    POP_REGS
    add rsp, 16
    iretq

; A fault inside an NMI handler: IRET would let the next NMI in, on the stack that the handler is
; still using (SDM 3A 6.7.1). Same privilege and segments, so POPF and RET do. Their two words go
; below the interrupted stack pointer, where the frame's own rsp and ss may lie: hence the detour of
; the new stack pointer through the error slot.
.without_iret:
    mov rax, [rsp + F_RSP]
    mov rcx, [rsp + F_RFLAGS]
    mov rdx, [rsp + F_RIP]
    sub rax, 16
    mov [rax], rcx
    mov [rax + 8], rdx
    mov [rsp + F_ERROR], rax
    POP_REGS
    mov rsp, [rsp + 8]
    popfq
    ret

; void cpu_halt(void): halts until an interrupt. Interrupts are off before and after it; STI holds
; them off until HLT has begun (SDM 2B, STI). What comes between the two all the same returns to
; cpu_halt_end (trap.c).
align 16
cpu_halt:
    sti
cpu_halt_hlt:
    hlt
cpu_halt_end:
    cli
    ret

section .note.GNU-stack noalloc noexec nowrite progbits
