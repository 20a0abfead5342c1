// What the sources of the planted families share.
#pragma once

#define THREADS 256

__device__ __forceinline__ unsigned thread_id() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Where element j of a walk lies: neighbours are 2^shift elements apart, and every element of
// 2^log_count is met once.
__device__ __forceinline__ unsigned strided(unsigned j, int log_count, int shift) {
  const int high = log_count - shift;
  return ((j & ((1u << high) - 1)) << shift) | (j >> high);
}

// A multiple of the warp's size, so that a warp stays on neighbouring elements.
constexpr unsigned kHop = 32 * 7919;

#ifndef PLANTED_ON_CPU  // tests/cuda_on_cpu/planted.cpp has these functions for a host compiler

// Loads and stores of L2, never of L1, in the order of the program and as often as it says.
__device__ __forceinline__ float load_l2(const float* from) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ int load_l2(const int* from) {
  int value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Copies of 16 bytes to shared memory that run beside the program, in groups.
__device__ __forceinline__ void copy_async(float4* to, const float4* from) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;"); }
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ __forceinline__ float rsqrt_unit(float x) {
  float y;
  asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// D += A B of one warp on its tensor core: A 16 x 16 and B 16 x 8 in half, D in single precision.
__device__ __forceinline__ void multiply(float (&d)[4], const uint4& a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

#endif
