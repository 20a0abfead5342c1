// Traffic on L2 or DRAM from other multiprocessors, and a kernel that does nothing.
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
.visible .entry perfml_empty()
{
	ret;
}
)ptx";

}  // namespace experiments
