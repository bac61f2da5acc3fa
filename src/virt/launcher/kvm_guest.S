/* The guest program of the KVM proof; loaded at 0x1000, entered in real mode.  Each passed stage writes its
 * number to port 0xf4; 0xee is a failed check, 0x5a the end.  Stages: kvm_probe.c.
 *
 * Memory (2 MiB): 0x1000 code and GDT, 0x4000 IDT, 0x6000 TSS, 0x7f00 and 0x8000 stacks, 0x9000 user stack,
 * 0x10000..0x14fff page tables, 0x100000..0x1fffff data.
 */
#define BASE 0x1000
#define A(x_) ((x_) - kvm_guest_start + BASE)
#define PORT 0xf4
#define IDT 0x4000
#define TSS 0x6000

.macro stage n
	movb $\n, %al
	outb %al, $PORT
.endm

.macro gate vector, handler, type
	movw $A(\handler), IDT + \vector * 16
	movw $0x08, IDT + \vector * 16 + 2
	movb $0, IDT + \vector * 16 + 4
	movb $\type, IDT + \vector * 16 + 5
	movw $0, IDT + \vector * 16 + 6
.endm

	.section .rodata
	.balign 16
	.globl kvm_guest_start
	.globl kvm_guest_end
	.hidden kvm_guest_start
	.hidden kvm_guest_end
kvm_guest_start:
	.code16
	cli
	xorw %ax, %ax
	movw %ax, %ds
	movw %ax, %es
	movw %ax, %ss
	movw $0x8000, %sp
	stage 1
	lgdtl A(gdt_desc)
	movl %cr0, %eax
	orl $1, %eax
	movl %eax, %cr0
	ljmpl $0x18, $A(protected)

	.code32
protected:
	movw $0x10, %ax
	movw %ax, %ds
	movw %ax, %es
	movw %ax, %ss
	movl $0x8000, %esp
	stage 2
	cld
	movl $0x10000, %edi
	xorl %eax, %eax
	movl $0x1400, %ecx
	rep stosl
	movl $0x11007, 0x10000		/* PML4[0] */
	movl $0x12007, 0x11000		/* the first GiB */
	movl $0x13007, 0x11018		/* the fourth: local APIC */
	movl $0x00087, 0x12000		/* 0..2 MiB, one large page, user */
	movl $0x14007, 0x12018		/* 6..8 MiB: small pages */
	movl $0x100007, 0x14000		/* 6 MiB -> 1 MiB */
	movl $0xfee0009b, 0x13fb8	/* 0xfee00000, uncached */
	movl $0x10000, %eax
	movl %eax, %cr3
	movl %cr4, %eax
	orl $0x620, %eax		/* PAE, OSFXSR, OSXMMEXCPT */
	movl %eax, %cr4
	movl $0xc0000080, %ecx
	rdmsr
	orl $0x101, %eax		/* EFER: SCE, LME */
	wrmsr
	movl %cr0, %eax
	andl $0xfffffffb, %eax
	orl $0x80000002, %eax		/* PG, MP */
	movl %eax, %cr0
	ljmpl $0x08, $A(long_mode)

	.code64
long_mode:
	movw $0x10, %ax
	movw %ax, %ds
	movw %ax, %es
	movw %ax, %ss
	movq $0x8000, %rsp
	movw %cs, %ax
	testb $3, %al			/* a guest kernel must find itself in ring 0 */
	jnz bad
	movl $0xc0000080, %ecx
	rdmsr
	testl $0x400, %eax		/* EFER.LMA */
	jz bad
	stage 3

	movb $0xff, %al			/* no interrupt but the one below */
	outb %al, $0x21
	outb %al, $0xa1
	gate 3, on_breakpoint, 0x8e
	gate 6, on_undefined, 0x8e
	gate 13, bad, 0x8e
	gate 14, on_page_fault, 0x8e
	gate 0x40, on_timer, 0x8e
	gate 0x80, on_int80, 0xee
	lidt A(idt_desc)
	movq $0x7f00, TSS + 4		/* RSP0 */
	movw $0x30, %ax
	ltr %ax
	cli
	pushfq
	popq %rax
	testl $0x200, %eax
	jnz bad
	sti
	pushfq
	popq %rax
	cli
	testl $0x200, %eax
	jz bad
	pushfq
	orq $0x200, (%rsp)
	popfq
	pushfq
	popq %rax
	cli
	testl $0x200, %eax
	jz bad
	stage 4

	xorq %r15, %r15
	ud2
	int3
	movq $0x700000, %rbx
	movq (%rbx), %rax		/* three bytes, not mapped */
	cmpq $3, %r15
	jne bad
	cmpq $0x700000, %r14
	jne bad
	stage 5

	movq $0x1111, 0x600000
	movq $0x180007, 0x14000
	movq $0x600000, %rbx
	invlpg (%rbx)
	movq $0x2222, 0x600000
	cmpq $0x1111, 0x100000
	jne bad
	cmpq $0x2222, 0x180000
	jne bad
	movq %cr3, %rax
	movq %rax, %cr3
	cmpq $0x2222, 0x600000
	jne bad
	stage 6

	movl $0xc0000082, %ecx		/* LSTAR */
	movl $A(on_syscall), %eax
	xorl %edx, %edx
	wrmsr
	xorl %eax, %eax
	rdmsr
	cmpl $A(on_syscall), %eax
	jne bad
	movl $0xc0000081, %ecx		/* STAR */
	xorl %eax, %eax
	movl $0x00180008, %edx
	wrmsr
	movl $0xc0000084, %ecx		/* FMASK */
	movl $0x200, %eax
	xorl %edx, %edx
	wrmsr
	movl $0xc0000102, %ecx		/* KERNEL_GS_BASE */
	movl $0x12345000, %eax
	xorl %edx, %edx
	wrmsr
	swapgs
	movl $0xc0000101, %ecx		/* GS_BASE */
	rdmsr
	cmpl $0x12345000, %eax
	jne bad
	stage 7

	xorq %r13, %r13
	pushq $0x23
	pushq $0x9000
	pushq $2
	pushq $0x2b
	pushq $A(user)
	iretq
back_from_user:
	cmpq $2, %r13
	jne bad
	stage 8

	movl $0xfee00000, %ebx
	xorq %r12, %r12
	movl $0x1ff, 0xf0(%rbx)		/* enabled */
	movl $0xb, 0x3e0(%rbx)		/* undivided */
	movl $0x40, 0x320(%rbx)		/* once, vector 0x40 */
	movl $0x100000, 0x380(%rbx)
1:	sti
	hlt
	cli
	testq %r12, %r12
	jz 1b
	stage 9

	xorl %eax, %eax
	cpuid
	testl %ebx, %ebx
	jz bad
	stage 10

	movq $0x101000, %rdi
	movq $0x9e3779b97f4a7c15, %rdx
	movq %rdx, %rax
1:	movq %rax, (%rdi)
	addq %rdx, %rax
	addq $8, %rdi
	cmpq $0x1f0000, %rdi
	jne 1b
	movq $0x101000, %rdi
	movq %rdx, %rax
1:	cmpq %rax, (%rdi)
	jne bad
	addq %rdx, %rax
	addq $8, %rdi
	cmpq $0x1f0000, %rdi
	jne 1b
	stage 11

	movq $0x123456789, %rax
	movq %rax, %xmm0
	paddq %xmm0, %xmm0
	movq %xmm0, %rbx
	addq %rax, %rax
	cmpq %rax, %rbx
	jne bad
	stage 12
	stage 0x5a
1:	hlt
	jmp 1b

bad:
	stage 0xee
1:	hlt
	jmp 1b

user:
	movw %cs, %ax
	andb $3, %al
	cmpb $3, %al
	jne 1f
	syscall
1:	int $0x80
	jmp 1b
on_syscall:
	movq $0x8000, %rsp
	incq %r13
	pushq $0x23
	pushq $0x9000
	pushq $2
	pushq $0x2b
	pushq %rcx			/* behind the syscall */
	iretq
on_int80:
	cmpq $0x2b, 8(%rsp)
	jne bad
	incq %r13
	movq $0x8000, %rsp
	jmp back_from_user
on_undefined:
	addq $2, (%rsp)
	incq %r15
	iretq
on_breakpoint:
	incq %r15
	iretq
on_page_fault:
	addq $8, %rsp			/* the error code */
	addq $3, (%rsp)
	movq %cr2, %r14
	incq %r15
	iretq
on_timer:
	incq %r12
	movl $0, 0xb0(%rbx)
	iretq

	.balign 8
gdt:
	.quad 0
	.quad 0x00af9a000000ffff	/* 0x08 code, 64 bit */
	.quad 0x00cf92000000ffff	/* 0x10 data */
	.quad 0x00cf9a000000ffff	/* 0x18 code, 32 bit */
	.quad 0x00cff2000000ffff	/* 0x20 user data */
	.quad 0x00affa000000ffff	/* 0x28 user code */
	.quad 0x0000890060000067	/* 0x30 TSS at 0x6000 */
	.quad 0
gdt_desc:
	.word gdt_desc - gdt - 1
	.long A(gdt)
	.balign 8
idt_desc:
	.word 0xfff
	.quad IDT
kvm_guest_end:
	.section .note.GNU-stack, "", @progbits
