// Families of the units that execute: one kernel each, one knob each. Macros are the knobs that
// change the code.
//
// CONVERTED  accumulators out of 8 that convert to integers
// ROOTS      accumulators out of 8 that add 1 / sqrt(x)
// ROTATED    accumulators out of 8 that rotate bits (integer unit) in place of multiply-adds
// MIXES      integer calculations on an address, each of which is undone
// EXCHANGED  accumulators out of 8 that another lane's value goes to
#include <cuda_fp16.h>

#include "common.cuh"

// x falls in small steps; eight accumulators a round add it up.
extern "C" __global__ void __launch_bounds__(THREADS)
conversions(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  const unsigned t = thread_id();
  float x[8], sum[8];
  int whole[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    x[c] = 4096.0f * in[t] - 32.0f * c;
    sum[c] = 0.0f;
    whole[c] = 0;
  }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c < CONVERTED) {
        whole[c] += static_cast<int>(x[c]);
      } else {
        sum[c] = fmaf(x[c], 0.25f, sum[c]);
      }
      x[c] -= 1.0f;
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += c < CONVERTED ? 0.25f * static_cast<float>(whole[c]) : sum[c];
  out[t] = total;
}

extern "C" __global__ void __launch_bounds__(THREADS)
roots(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  const unsigned t = thread_id();
  float x[8], sum[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    x[c] = 1.0f - in[t] + 0.03125f * c;
    sum[c] = 0.0f;
  }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c < ROOTS) {
        sum[c] += rsqrt_unit(x[c]);
      } else {
        sum[c] = fmaf(x[c], 0.25f, sum[c]);
      }
      x[c] += 0.0009765625f;
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += sum[c];
  out[t] = total;
}

// Eight accumulators, four steps each a round.
extern "C" __global__ void __launch_bounds__(THREADS)
rotations(const float* __restrict__ in, float* __restrict__ out, int rounds, int distance) {
  const unsigned t = thread_id();
  float a[8];
  unsigned bits[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    a[c] = in[t] + c;
    bits[c] = __float_as_uint(a[c]);
  }
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (c < ROTATED) {
          bits[c] = __funnelshift_l(bits[c], bits[c], distance);
        } else {
          a[c] = fmaf(a[c], 0.9990234375f, 0.0078125f);
        }
      }
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += c < ROTATED ? 0x1p-24f * (bits[c] >> 8) : a[c];
  out[t] = total;
}

// The address of every load is mixed and unmixed: `factor` times `inverse` is 1 modulo 2^32.
extern "C" __global__ void __launch_bounds__(THREADS)
addresses(const float* __restrict__ in, float* __restrict__ out, int log_count, int rounds,
          int factor, int inverse, int key) {
  const unsigned mask = (1u << log_count) - 1, t = thread_id();
  float sum = 0.0f;
#pragma unroll 2
  for (int i = 0; i < rounds; ++i) {
    unsigned at = (t + i * kHop) & mask;
#pragma unroll
    for (int k = 0; k < MIXES; ++k) at = (at * factor + k) ^ key;
#pragma unroll
    for (int k = MIXES - 1; k >= 0; --k) at = ((at ^ key) - k) * inverse;
    sum += in[at & mask];
  }
  out[t] = sum;
}

// Eight chains of multiply-adds, two steps a round; some values change lanes at every step.
extern "C" __global__ void __launch_bounds__(THREADS)
exchanges(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  const unsigned t = thread_id();
  const float addend = 0.0009765625f * (threadIdx.x % 32);
  float a[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) a[c] = in[t] + c;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (c < EXCHANGED) a[c] = __shfl_xor_sync(0xffffffffu, a[c], c + 1);
        a[c] = fmaf(a[c], 0.9990234375f, addend);
      }
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += a[c];
  out[t] = total;
}

// A block adds 32 x 32 times 32 x 128 products to 32 x 128 sums, again and again: eight parts a
// round, each of half the inner extent, the first `tensor` of them by tensor cores. A warp has 32 x 32 of the sums, a lane 32 of them, laid out
// as the tensor core has them, whoever made them.
constexpr int kRows = 32, kColumns = 128, kInner = 16, kParts = 2;

__device__ __forceinline__ float coarse(float x) { return rintf(x * 64.0f) * 0.015625f; }

__device__ __forceinline__ unsigned pair(float low, float high) {
  return __half_as_ushort(__float2half_rn(low)) |
         static_cast<unsigned>(__half_as_ushort(__float2half_rn(high))) << 16;
}

extern "C" __global__ void __launch_bounds__(128)
products(const float* __restrict__ in, float* __restrict__ out, int tensor, int rounds) {
  // as multiply-adds read them: [part][inner][row % 8][row / 8], [part][inner][warp][pair][8]
  __shared__ __align__(16) float left[kParts][kInner][8][4];
  __shared__ __align__(16) float right[kParts][kInner][4][4][8];
  // as tensor cores take them: [part][half of the rows][lane], [part][warp][half][lane]
  __shared__ uint4 left_packed[kParts][2][32];
  __shared__ uint4 right_packed[kParts][4][2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, within = lane % 4;
  const float* a = in + blockIdx.x % 64 * 5120;
  const float* b = a + kRows * kInner * kParts;
  auto of_left = [&](int part, int row, int k) {
    return coarse(a[(part * kInner + k) * kRows + row]);
  };
  auto of_right = [&](int part, int k, int column) {
    return coarse(b[(part * kInner + k) * kColumns + column]);
  };
  for (int part = 0; part < kParts; ++part) {
    for (int i = threadIdx.x; i < kInner * kRows; i += 128) {
      left[part][i / kRows][i % 8][i % kRows / 8] = of_left(part, i % kRows, i / kRows);
    }
    for (int i = threadIdx.x; i < kInner * kColumns; i += 128) {
      const int column = i % kColumns, inside = column % 32;
      right[part][i / kColumns][column / 32][inside % 8 / 2][inside / 8 * 2 + inside % 2] =
          of_right(part, i / kColumns, column);
    }
    for (int half = 0; half < 2; ++half) {
      auto left_pair = [&](int row, int k) {
        return pair(of_left(part, 16 * half + row, k), of_left(part, 16 * half + row, k + 1));
      };
      auto right_pair = [&](int k, int strip) {
        const int column = 32 * warp + 16 * half + 8 * strip + group;
        return pair(of_right(part, k, column), of_right(part, k + 1, column));
      };
      const int k = 2 * within;
      if (warp == 0) {
        left_packed[part][half][lane] = make_uint4(left_pair(group, k), left_pair(group + 8, k),
                                                   left_pair(group, k + 8),
                                                   left_pair(group + 8, k + 8));
      }
      right_packed[part][warp][half][lane] = make_uint4(right_pair(k, 0), right_pair(k + 8, 0),
                                                        right_pair(k, 1), right_pair(k + 8, 1));
    }
  }
  __syncthreads();
  float sum[2][4][4] = {};
  for (int i = 0; i < rounds; ++i) {
#pragma unroll 1
    for (int n = 0; n < tensor; ++n) {
      const int part = n % kParts;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 strips = right_packed[part][warp][half][lane];
#pragma unroll
        for (int top = 0; top < 2; ++top) {
          const uint4 rows = left_packed[part][top][lane];
          multiply(sum[top][2 * half], rows, strips.x, strips.y);
          multiply(sum[top][2 * half + 1], rows, strips.z, strips.w);
        }
      }
    }
#pragma unroll 1
    for (int n = tensor; n < 8; ++n) {
      const int part = n % kParts;
#pragma unroll 4
      for (int k = 0; k < kInner; ++k) {
        const float4 rows = *reinterpret_cast<const float4*>(left[part][k][group]);
        const float4* columns = reinterpret_cast<const float4*>(right[part][k][warp][within]);
        const float4 first = columns[0], second = columns[1];
        const float x[4] = {rows.x, rows.y, rows.z, rows.w};
        const float y[8] = {first.x, first.y, first.z, first.w,
                            second.x, second.y, second.z, second.w};
#pragma unroll
        for (int s = 0; s < 4; ++s) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            sum[0][s][e] = fmaf(x[e / 2], y[2 * s + e % 2], sum[0][s][e]);
            sum[1][s][e] = fmaf(x[2 + e / 2], y[2 * s + e % 2], sum[1][s][e]);
          }
        }
      }
    }
  }
  float* to = out + blockIdx.x * kRows * kColumns;
#pragma unroll
  for (int top = 0; top < 2; ++top) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = 16 * top + group + e / 2 * 8;
        to[row * kColumns + 32 * warp + 8 * s + 2 * within + e % 2] = sum[top][s][e];
      }
    }
  }
}
