// Traffic on DRAM, L2 or its atomic units from other multiprocessors, and a kernel that does nothing.
//
// PTX of 7.0, so that every driver that has green contexts takes it; the driver compiles it for the
// GPU. The C++ that it was made from (nvcc -arch=compute_75 -ptx):
//
//   extern "C" __global__ void perfml_traffic(uint4* to, const uint4* from, unsigned long long count,
//                                             const volatile int* stop, int turns) {
//     const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
//     for (int turn = 0; turn < turns; ++turn) {
//       for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
//            i < count; i += 4 * step) {
//         uint4 a = __ldcg(from + i), b = a, c = a, d = a;
//         if (i + 3 * step < count) {
//           b = __ldcg(from + i + step);
//           c = __ldcg(from + i + 2 * step);
//           d = __ldcg(from + i + 3 * step);
//         }
//         a.x ^= b.x ^ c.x ^ d.x;
//         __stcg(to + i, a);
//       }
//       if (__syncthreads_or(threadIdx.x == 0 && *stop)) return;
//     }
//   }
//   extern "C" __global__ void perfml_atomics(unsigned* to, const uint4* unused,
//                                             unsigned long long count, const volatile int* stop,
//                                             int turns) {
//     const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
//     for (int turn = 0; turn < turns; ++turn) {
//       for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
//            i < 4 * count; i += step)
//         atomicAdd(to + i, 1u);
//       if (__syncthreads_or(threadIdx.x == 0 && *stop)) return;
//     }
//   }
//   extern "C" __global__ void perfml_empty() {}
#pragma once

namespace experiments {

constexpr char kPtx[] = R"ptx(
.version 7.0
.target sm_75
.address_size 64
.visible .entry perfml_traffic(
	.param .u64 perfml_traffic_param_0,
	.param .u64 perfml_traffic_param_1,
	.param .u64 perfml_traffic_param_2,
	.param .u64 perfml_traffic_param_3,
	.param .u32 perfml_traffic_param_4
)
{
	.reg .pred 	%p<13>;
	.reg .b32 	%r<49>;
	.reg .b64 	%rd<29>;
	ld.param.u64 	%rd12, [perfml_traffic_param_0];
	ld.param.u64 	%rd13, [perfml_traffic_param_1];
	ld.param.u64 	%rd14, [perfml_traffic_param_2];
	ld.param.u64 	%rd15, [perfml_traffic_param_3];
	ld.param.u32 	%r15, [perfml_traffic_param_4];
	mov.u32 	%r16, %nctaid.x;
	cvt.u64.u32 	%rd1, %r16;
	mov.u32 	%r17, %ntid.x;
	cvt.u64.u32 	%rd2, %r17;
	mul.wide.u32 	%rd3, %r16, %r17;
	setp.lt.s32 	%p3, %r15, 1;
	@%p3 bra 	$L__BB0_10;
	mov.u32 	%r19, %ctaid.x;
	cvt.u64.u32 	%rd16, %r19;
	mul.lo.s64 	%rd17, %rd16, %rd2;
	mov.u32 	%r1, %tid.x;
	cvt.u64.u32 	%rd18, %r1;
	add.s64 	%rd4, %rd17, %rd18;
	mul.lo.s64 	%rd5, %rd3, 3;
	mul.lo.s64 	%rd19, %rd1, %rd2;
	shl.b64 	%rd6, %rd19, 4;
	cvta.to.global.u64 	%rd7, %rd15;
	mov.u32 	%r45, 0;
$L__BB0_2:
	setp.ge.u64 	%p4, %rd4, %rd14;
	@%p4 bra 	$L__BB0_7;
	mov.u64 	%rd28, %rd4;
$L__BB0_4:
	shl.b64 	%rd21, %rd28, 4;
	add.s64 	%rd20, %rd13, %rd21;
	ld.global.cg.v4.u32 {%r20,%r21,%r22,%r23}, [%rd20];
	add.s64 	%rd10, %rd28, %rd5;
	setp.ge.u64 	%p5, %rd10, %rd14;
	mov.u32 	%r46, %r20;
	mov.u32 	%r47, %r20;
	mov.u32 	%r48, %r20;
	@%p5 bra 	$L__BB0_6;
	shl.b64 	%rd25, %rd3, 4;
	add.s64 	%rd22, %rd20, %rd25;
	ld.global.cg.v4.u32 {%r46,%r25,%r26,%r27}, [%rd22];
	add.s64 	%rd23, %rd22, %rd6;
	ld.global.cg.v4.u32 {%r47,%r29,%r30,%r31}, [%rd23];
	add.s64 	%rd24, %rd23, %rd6;
	ld.global.cg.v4.u32 {%r48,%r33,%r34,%r35}, [%rd24];
$L__BB0_6:
	xor.b32  	%r40, %r46, %r20;
	xor.b32  	%r41, %r40, %r47;
	xor.b32  	%r36, %r41, %r48;
	add.s64 	%rd26, %rd12, %rd21;
	st.global.cg.v4.u32 [%rd26], {%r36,%r21,%r22,%r23};
	add.s64 	%rd28, %rd10, %rd3;
	setp.lt.u64 	%p6, %rd28, %rd14;
	@%p6 bra 	$L__BB0_4;
$L__BB0_7:
	setp.ne.s32 	%p8, %r1, 0;
	mov.pred 	%p12, 0;
	@%p8 bra 	$L__BB0_9;
	ld.volatile.global.u32 	%r42, [%rd7];
	setp.ne.s32 	%p12, %r42, 0;
$L__BB0_9:
	selp.u32 	%r43, 1, 0, %p12;
	{ 
	.reg .pred 	%p1; 
	.reg .pred 	%p2; 
	setp.ne.u32 	%p1, %r43, 0; 
	bar.red.or.pred 	%p2, 0, %p1; 
	selp.u32 	%r44, 1, 0, %p2; 
	}
	setp.eq.s32 	%p9, %r44, 0;
	add.s32 	%r45, %r45, 1;
	setp.lt.s32 	%p10, %r45, %r15;
	and.pred  	%p11, %p9, %p10;
	@%p11 bra 	$L__BB0_2;
$L__BB0_10:
	ret;
}
.visible .entry perfml_atomics(
	.param .u64 perfml_atomics_param_0,
	.param .u64 perfml_atomics_param_1,
	.param .u64 perfml_atomics_param_2,
	.param .u64 perfml_atomics_param_3,
	.param .u32 perfml_atomics_param_4
)
{
	.reg .pred 	%p<12>;
	.reg .b32 	%r<14>;
	.reg .b64 	%rd<16>;
	ld.param.u64 	%rd8, [perfml_atomics_param_0];
	ld.param.u64 	%rd9, [perfml_atomics_param_2];
	ld.param.u64 	%rd10, [perfml_atomics_param_3];
	ld.param.u32 	%r4, [perfml_atomics_param_4];
	setp.lt.s32 	%p3, %r4, 1;
	@%p3 bra 	$L__BB1_8;
	mov.u32 	%r6, %ntid.x;
	mov.u32 	%r7, %ctaid.x;
	mul.wide.u32 	%rd11, %r7, %r6;
	mov.u32 	%r1, %tid.x;
	cvt.u64.u32 	%rd12, %r1;
	add.s64 	%rd1, %rd11, %rd12;
	shl.b64 	%rd2, %rd9, 2;
	mov.u32 	%r8, %nctaid.x;
	mul.wide.u32 	%rd3, %r8, %r6;
	cvta.to.global.u64 	%rd4, %rd10;
	cvta.to.global.u64 	%rd5, %rd8;
	mov.u32 	%r13, 0;
$L__BB1_2:
	setp.ge.u64 	%p4, %rd1, %rd2;
	@%p4 bra 	$L__BB1_5;
	mov.u64 	%rd15, %rd1;
$L__BB1_4:
	shl.b64 	%rd13, %rd15, 2;
	add.s64 	%rd14, %rd5, %rd13;
	atom.global.add.u32 	%r9, [%rd14], 1;
	add.s64 	%rd15, %rd15, %rd3;
	setp.lt.u64 	%p5, %rd15, %rd2;
	@%p5 bra 	$L__BB1_4;
$L__BB1_5:
	setp.ne.s32 	%p7, %r1, 0;
	mov.pred 	%p11, 0;
	@%p7 bra 	$L__BB1_7;
	ld.volatile.global.u32 	%r10, [%rd4];
	setp.ne.s32 	%p11, %r10, 0;
$L__BB1_7:
	selp.u32 	%r11, 1, 0, %p11;
	{ 
	.reg .pred 	%p1; 
	.reg .pred 	%p2; 
	setp.ne.u32 	%p1, %r11, 0; 
	bar.red.or.pred 	%p2, 0, %p1; 
	selp.u32 	%r12, 1, 0, %p2; 
	}
	setp.eq.s32 	%p8, %r12, 0;
	add.s32 	%r13, %r13, 1;
	setp.lt.s32 	%p9, %r13, %r4;
	and.pred  	%p10, %p8, %p9;
	@%p10 bra 	$L__BB1_2;
$L__BB1_8:
	ret;
}
.visible .entry perfml_empty()
{
	ret;
}
)ptx";

}  // namespace experiments
