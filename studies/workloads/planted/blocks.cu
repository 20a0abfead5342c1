// Families of what happens between blocks: the knob is an argument, the code stays the same.
#include "common.cuh"

// Every warp follows a chain of `light` or, in the first `heavy_blocks` blocks, `heavy` rows.
extern "C" __global__ void
walk(const int* next, float* __restrict__ out, int rows, int light, int heavy, int heavy_blocks) {
  const unsigned t = thread_id();
  const int rounds = static_cast<int>(blockIdx.x) < heavy_blocks ? heavy : light;
  int row = static_cast<int>(((t / 32) * 40503u) % static_cast<unsigned>(rows));
  for (int i = 0; i < rounds; ++i) row = load_l2(next + row * 32LL + threadIdx.x % 32);
  out[t] = static_cast<float>(row);
}

// Four chains of multiply-adds a thread: `light` rounds or, in the first `heavy_blocks`, `heavy`.
extern "C" __global__ void __launch_bounds__(1024)
uneven(const float* __restrict__ in, float* __restrict__ out, int light, int heavy,
       int heavy_blocks) {
  const unsigned t = thread_id();
  const int rounds = static_cast<int>(blockIdx.x) < heavy_blocks ? heavy : light;
  float a[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) a[c] = in[t] + c;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int c = 0; c < 4; ++c) a[c] = fmaf(a[c], 0.9999f, 0.01f);
    }
  }
  out[t] = 0.25f * (a[0] + a[1] + a[2] + a[3]);
}
