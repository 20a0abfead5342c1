// Enough of CUDA to run these kernels on a CPU, one block after another, a fiber per thread.
#pragma once
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
struct uint3e { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
inline uint3e threadIdx, blockIdx; inline dim3 blockDim, gridDim;
struct float2 { float x, y; }; struct alignas(16) float4 { float x, y, z, w; }; struct alignas(16) int4 { int x, y, z, w; };
inline float2 make_float2(float a, float b) { return {a, b}; }
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
using __half = _Float16;
inline float __half2float(__half h) { return (float)h; }
inline __half __float2half(float f) { return (__half)f; }
template <class T> T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }
template <class T> T __ldg(const T* p) { return *p; }
inline void __threadfence() {}
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void sincosf_(float a, float* s, float* c) { *s = sinf(a); *c = cosf(a); }
inline int __dp4a(int a, int b, int c) { for (int i = 0; i < 4; ++i) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i); return c; }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
struct Fiber { ucontext_t context; std::unique_ptr<char[]> stack; bool done; int waits, arrived[33]; };
inline std::vector<Fiber> fibers; inline ucontext_t scheduler; inline unsigned now; inline std::function<void()> body;
inline unsigned rounds_block[4096]; inline unsigned rounds_warp[4096];
inline void pause_fiber() { swapcontext(&fibers[now].context, &scheduler); }
inline void meet(unsigned* rounds, unsigned first, unsigned last) {
  const unsigned mine = ++rounds[now];
  for (;;) { bool all = true; for (unsigned i = first; i < last; ++i) all = all && rounds[i] >= mine; if (all) return; pause_fiber(); }
}
inline void __syncthreads() { meet(rounds_block, 0, fibers.size()); }
inline unsigned warp_first() { return now / 32 * 32; }
inline unsigned warp_last() { unsigned l = warp_first() + 32; return l < fibers.size() ? l : (unsigned)fibers.size(); }
inline void __syncwarp() { meet(rounds_warp, warp_first(), warp_last()); }
inline double slots[4096];
template <class T> T exchange(T v, int from) { slots[now] = (double)v; __syncwarp(); T r = (from < 0 || from > 31) ? v : (T)slots[warp_first() + from]; __syncwarp(); return r; }
template <class T> T __shfl_xor_sync(unsigned, T v, int m) { return exchange(v, (int)(now % 32) ^ m); }
template <class T> T __shfl_down_sync(unsigned, T v, int m) { return exchange(v, (int)(now % 32) + m); }
template <class T> T __shfl_up_sync(unsigned, T v, int m) { return exchange(v, (int)(now % 32) - m); }
inline void __pipeline_memcpy_async(void* to, const void* from, size_t n) { memcpy(to, from, n); }
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}
inline std::vector<unsigned char> dynamic_bytes(1 << 20);
inline void trampoline() { body(); fibers[now].done = true; for (;;) swapcontext(&fibers[now].context, &scheduler); }
inline void run_on_cpu(dim3 grid, dim3 block, std::function<void()> f) {
  body = f; gridDim = grid; blockDim = block; const unsigned n = block.x * block.y * block.z;
  fibers.clear(); fibers.resize(n);
  for (auto& each : fibers) each.stack.reset(new char[65536]);
  for (unsigned z = 0; z < grid.z; ++z) for (unsigned y = 0; y < grid.y; ++y) for (unsigned x = 0; x < grid.x; ++x) {
    blockIdx = {x, y, z};
    memset(rounds_block, 0, sizeof rounds_block); memset(rounds_warp, 0, sizeof rounds_warp);
    for (auto& each : fibers) { each.done = false; getcontext(&each.context); each.context.uc_stack.ss_sp = each.stack.get(); each.context.uc_stack.ss_size = 65536; each.context.uc_link = nullptr; makecontext(&each.context, trampoline, 0); }
    for (long turn = 0;; ++turn) {
      bool any = false;
      for (now = 0; now < n; ++now) if (!fibers[now].done) { any = true; threadIdx = {now % block.x, now / block.x % block.y, now / block.x / block.y}; swapcontext(&scheduler, &fibers[now].context);
        if (fibers[now].done) { rounds_block[now] = 1u << 30; rounds_warp[now] = 1u << 30; } }
      if (!any) break;
      if (turn > 2000000) { fprintf(stderr, "deadlock\n"); exit(3); }
    }
  }
}
#define DYNAMIC_SHARED(type, name) type* name = (type*)dynamic_bytes.data()
#define LAUNCH(kernel, grid, block, shared, ...) run_on_cpu(dim3(grid), dim3(block), [&] { kernel(__VA_ARGS__); })
