// Families of bulk copies: Hopper's copy engine (cp.async.bulk) brings tiles to shared memory.
//
// DEPTH       tiles that have room in shared memory: one is worked on, the others are under way
// COPY_BYTES  bytes of one copy
#include "common.cuh"

constexpr int kTile = 2048, kBulkThreads = 128;

#ifndef PLANTED_ON_CPU  // tests/cuda_on_cpu/planted.h has these functions for a host compiler

__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void barrier_init(unsigned long long* barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barriers_publish() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned long long* barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (!done);
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, unsigned bytes,
                                          unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

#endif

__device__ __forceinline__ float along_tile(float a, const float4& x) {
#pragma unroll
  for (int k = 0; k < 6; ++k) {
    a = fmaf(a, 0.9990234375f, x.x);
    a = fmaf(a, 0.9990234375f, x.y);
    a = fmaf(a, 0.9990234375f, x.z);
    a = fmaf(a, 0.9990234375f, x.w);
  }
  return a;
}

// A tile a round comes to shared memory, in copies of `Bytes` that one thread asks for; every
// thread works on a vector of it.
template <int Depth, int Bytes>
__device__ __forceinline__ void tiles(const char* in, float* out, int log_count, int rounds) {
  __shared__ __align__(128) float4 tile[Depth][kBulkThreads];
  __shared__ __align__(8) unsigned long long full[Depth];
  const unsigned mask = (4u << log_count) / kTile - 1;
  auto fetch = [&](int i) {
    const char* from = in + static_cast<size_t>((blockIdx.x + i * kHop) & mask) * kTile;
    char* to = reinterpret_cast<char*>(tile[i % Depth]);
    barrier_expect(&full[i % Depth], kTile);
    for (int at = 0; at < kTile; at += Bytes) bulk_copy(to + at, from + at, Bytes, &full[i % Depth]);
  };
  if (threadIdx.x == 0) {
    for (int s = 0; s < Depth; ++s) barrier_init(&full[s]);
    barriers_publish();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Depth - 1; ++i) fetch(i);
  }
  float a = 0.0f;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0 && i + Depth - 1 < rounds) fetch(i + Depth - 1);
    barrier_wait(&full[i % Depth], (i / Depth) & 1);
    a = along_tile(a, tile[i % Depth][threadIdx.x]);
    __syncthreads();
  }
  out[blockIdx.x * kBulkThreads + threadIdx.x] = a;
}

extern "C" __global__ void __launch_bounds__(128)
bulk_depth(const char* in, float* out, int log_count, int rounds) {
  tiles<DEPTH, kTile>(in, out, log_count, rounds);
}

extern "C" __global__ void __launch_bounds__(128)
bulk_width(const char* in, float* out, int log_count, int rounds) {
  tiles<4, COPY_BYTES>(in, out, log_count, rounds);
}
