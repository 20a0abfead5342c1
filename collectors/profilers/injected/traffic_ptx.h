// Traffic on DRAM, L2 or its atomic units from other multiprocessors, a kernel that does nothing, and
// one that compares memory.
//
// PTX of 7.0, so that every driver that has green contexts takes it; the driver compiles it for the
// GPU. `perfml_traffic` copies `count` blocks of 16 bytes, four at a time, past L1, or adds 1 to each
// word of them; turn after turn, until somebody sets the word at `stop`. A block of `perfml_compare`
// counts the words of 4 bytes that differ in its chunk of 64 KiB.
#pragma once

namespace experiments {

constexpr char kPtx[] = R"ptx(
.version 7.0
.target sm_75
.address_size 64
.visible .entry perfml_traffic(.param .u64 to, .param .u64 from, .param .u64 count,
                               .param .u64 stop, .param .u32 turns, .param .u32 atomics)
{
	.reg .pred %p, %q;
	.reg .b32 %blocks, %threads, %block, %thread, %turns, %atomics, %turn, %flag, %x, %y;
	.reg .b32 %a<4>, %b<4>, %c<4>, %d<4>;
	.reg .b64 %to, %from, %count, %words, %stop, %first, %i, %last, %step, %steps, %row, %at;
	ld.param.u64 %to, [to];
	ld.param.u64 %from, [from];
	ld.param.u64 %count, [count];
	ld.param.u64 %stop, [stop];
	ld.param.u32 %turns, [turns];
	ld.param.u32 %atomics, [atomics];
	mov.u32 %blocks, %nctaid.x;
	mov.u32 %threads, %ntid.x;
	mov.u32 %block, %ctaid.x;
	mov.u32 %thread, %tid.x;
	mul.wide.u32 %step, %blocks, %threads;
	mul.lo.s64 %steps, %step, 3;
	shl.b64 %row, %step, 4;
	shl.b64 %words, %count, 2;
	cvt.u64.u32 %first, %thread;
	mad.wide.u32 %first, %block, %threads, %first;
	mov.u32 %turn, 0;
TURN:
	mov.u64 %i, %first;
	setp.eq.s32 %p, %atomics, 0;
	@%p bra COPIES;
ADD:
	setp.ge.u64 %p, %i, %words;
	@%p bra TURNED;
	shl.b64 %at, %i, 2;
	add.s64 %at, %to, %at;
	atom.global.add.u32 %x, [%at], 1;
	add.s64 %i, %i, %step;
	bra.uni ADD;
COPIES:
	setp.ge.u64 %p, %i, %count;
	@%p bra TURNED;
COPY:
	shl.b64 %at, %i, 4;
	add.s64 %at, %from, %at;
	ld.global.cg.v4.u32 {%a0, %a1, %a2, %a3}, [%at];
	add.s64 %last, %i, %steps;
	setp.ge.u64 %q, %last, %count;
	mov.u32 %b0, %a0;
	mov.u32 %c0, %a0;
	mov.u32 %d0, %a0;
	@%q bra STORE;
	add.s64 %at, %at, %row;
	ld.global.cg.v4.u32 {%b0, %b1, %b2, %b3}, [%at];
	add.s64 %at, %at, %row;
	ld.global.cg.v4.u32 {%c0, %c1, %c2, %c3}, [%at];
	add.s64 %at, %at, %row;
	ld.global.cg.v4.u32 {%d0, %d1, %d2, %d3}, [%at];
STORE:
	xor.b32 %x, %a0, %b0;
	xor.b32 %y, %c0, %d0;
	xor.b32 %x, %x, %y;
	shl.b64 %at, %i, 4;
	add.s64 %at, %to, %at;
	st.global.cg.v4.u32 [%at], {%x, %a1, %a2, %a3};
	add.s64 %i, %last, %step;
	setp.lt.u64 %p, %i, %count;
	@%p bra COPY;
TURNED:
	mov.u32 %flag, 0;
	setp.ne.u32 %p, %thread, 0;
	@!%p ld.volatile.global.u32 %flag, [%stop];
	setp.ne.u32 %p, %flag, 0;
	bar.red.or.pred %q, 0, %p;
	add.s32 %turn, %turn, 1;
	setp.lt.s32 %p, %turn, %turns;
	@%q ret;
	@%p bra TURN;
	ret;
}
.visible .entry perfml_empty() { ret; }
.visible .entry perfml_compare(.param .u64 one, .param .u64 other, .param .u64 words,
                               .param .u64 counts)
{
	.reg .pred %p;
	.reg .b32 %chunk, %thread, %count, %x, %y;
	.reg .b64 %one, %other, %words, %counts, %i, %last, %at, %from;
	ld.param.u64 %one, [one];
	ld.param.u64 %other, [other];
	ld.param.u64 %words, [words];
	ld.param.u64 %counts, [counts];
	mov.u32 %chunk, %ctaid.x;
	mov.u32 %thread, %tid.x;
	mov.u32 %count, 0;
	mul.wide.u32 %i, %chunk, 16384;
	add.s64 %last, %i, 16384;
	min.u64 %last, %last, %words;
	cvt.u64.u32 %at, %thread;
	add.s64 %i, %i, %at;
WORD:
	setp.ge.u64 %p, %i, %last;
	@%p bra COUNTED;
	shl.b64 %at, %i, 2;
	add.s64 %from, %other, %at;
	add.s64 %at, %one, %at;
	ld.global.u32 %x, [%at];
	ld.global.u32 %y, [%from];
	setp.ne.u32 %p, %x, %y;
	@%p add.u32 %count, %count, 1;
	add.s64 %i, %i, 256;
	bra.uni WORD;
COUNTED:
	setp.eq.u32 %p, %count, 0;
	@%p ret;
	mul.wide.u32 %at, %chunk, 4;
	add.s64 %at, %counts, %at;
	red.global.add.u32 [%at], %count;
	ret;
}
)ptx";

}  // namespace experiments
