// One kernel a family. Each has one knob: a macro where it changes the code (one build a level), an
// argument where it does not. The knob moves one cause; loads, stores and arithmetic that the
// result needs stay the same.
//
// HELD    values kept in registers across the loop (registers a thread)
// CHAINS  independent chains of multiply-adds that share the same number of them
// LOADS   independent chains of loads that share the same number of them
// SPECIAL accumulators out of 8 that add 2^x (special-function unit) instead of c x
// DOUBLES accumulators out of 8 in double precision (at least one), DOUBLES_OR_NONE (none at first)
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
load_stride(const float* __restrict__ in, float* __restrict__ out, int log_count, int shift,
            int rounds) {
  const unsigned mask = (1u << log_count) - 1, t = thread_id();
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < rounds; ++i) sum += in[strided((t + i * kHop) & mask, log_count, shift)];
  out[t] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
store_stride(float* __restrict__ out, float scale, float offset, int log_count, int shift,
             int rounds) {
  const unsigned mask = (1u << log_count) - 1, t = thread_id();
#pragma unroll 4
  for (int i = 0; i < rounds; ++i) {
    const unsigned at = strided((t + i * kHop) & mask, log_count, shift);
    // the value belongs to the place, so every round writes the same there
    out[at] = fmaf(scale, static_cast<float>(at & 1023), offset);
  }
}

// Values that stay in registers from before a loop to after it. They come from shared memory, where
// the compiler cannot know them, and volatile reads keep their place in the program.
template <int N>
struct Held {
  float value[N];
  __device__ __forceinline__ void fill(const float* tile, int lane) {
#pragma unroll
    for (int k = 0; k < N / 4; ++k) {
      const unsigned at =
          static_cast<unsigned>(__cvta_generic_to_shared(tile + (k % 8) * 128 + lane * 4));
      asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(value[4 * k]), "=f"(value[4 * k + 1]), "=f"(value[4 * k + 2]),
                     "=f"(value[4 * k + 3])
                   : "r"(at)
                   : "memory");
    }
  }
  __device__ __forceinline__ float sum() const {
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < N; ++k) total += value[k];
    return total;
  }
};

__device__ __forceinline__ int load_row(const int* next, int row) {
  return load_l2(next + row * 32LL + threadIdx.x % 32);
}

// Every warp follows a chain through a table of rows: 32 lanes read the 128 bytes of a row, each of
// which names the next row.
template <int HOLD>
__device__ __forceinline__ void chase_rows(const int* next, const float* in, float* out, int rows,
                                           int rounds) {
  __shared__ __align__(16) float tile[1024];
  for (int i = threadIdx.x; i < 1024; i += THREADS) tile[i] = in[i];
  __syncthreads();
  Held<HOLD> held;
  held.fill(tile, threadIdx.x % 32);
  const unsigned t = thread_id();
  int row = static_cast<int>(((t / 32) * 40503u) % static_cast<unsigned>(rows));
  for (int i = 0; i < rounds; ++i) row = load_row(next, row);
  out[t] = static_cast<float>(row) + held.sum();
}

extern "C" __global__ void __launch_bounds__(THREADS)
chase(const int* next, const float* in, float* out, int rows, int rounds) {
  chase_rows<4>(next, in, out, rows, rounds);
}

extern "C" __global__ void __launch_bounds__(THREADS)
chase_held(const int* next, const float* in, float* out, int rows, int rounds) {
  chase_rows<HELD>(next, in, out, rows, rounds);
}

extern "C" __global__ void __launch_bounds__(THREADS)
load_chain(const int* next, float* out, int rows, int loads) {
  const unsigned t = thread_id();
  int row[LOADS];
#pragma unroll
  for (int c = 0; c < LOADS; ++c) {
    row[c] = static_cast<int>(((t / 32 * LOADS + c) * 40503u) % static_cast<unsigned>(rows));
  }
  for (int i = 0; i < loads / LOADS; ++i) {
#pragma unroll
    for (int c = 0; c < LOADS; ++c) row[c] = load_row(next, row[c]);
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < LOADS; ++c) sum += static_cast<float>(row[c]);
  out[t] = sum;
}

// 32 reads a round of one's own words of a tile, `stride` words from the next lane's.
template <int HOLD>
__device__ __forceinline__ void read_tile(const float* in, float* out, int stride, int rounds) {
  __shared__ __align__(16) float tile[2048];
  const unsigned block = blockIdx.x * 2048u;
  for (int i = threadIdx.x; i < 2048; i += THREADS) tile[i] = in[(block + i) & 0x3fffffu];
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Held<HOLD> held;
  held.fill(tile, lane);
  const volatile float* mine = tile + lane * stride + warp;
  float even = 0.0f, odd = 0.0f;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 32; k += 2) {
      even += mine[32 * k];
      odd += mine[32 * k + 32];
    }
  }
  out[thread_id()] = even + odd + held.sum();
}

extern "C" __global__ void __launch_bounds__(THREADS)
bank_conflicts(const float* in, float* out, int stride, int rounds) {
  read_tile<4>(in, out, stride, rounds);
}

extern "C" __global__ void __launch_bounds__(THREADS)
bank_conflicts_held(const float* in, float* out, int stride, int rounds) {
  read_tile<HELD>(in, out, stride, rounds);
}

// The comment makes every path another piece of text, so that no compiler merges two of them.
#define STEP(n) \
  asm volatile("fma.rn.f32 %0, %0, %1, %2; // path " #n : "+f"(a) : "f"(1.0f - 0.0005f * (n + 1)), "f"(0.125f * (n + 1)));
#define STEPS8(n) STEP(n) STEP(n) STEP(n) STEP(n) STEP(n) STEP(n) STEP(n) STEP(n)
#define PATH(n) \
  case n:       \
    STEPS8(n) STEPS8(n) STEPS8(n) STEPS8(n) break;

// Eight paths of equal length; `shift` says how many neighbouring lanes take the same one.
extern "C" __global__ void __launch_bounds__(THREADS)
divergence(const float* __restrict__ in, float* __restrict__ out, int shift, int rounds,
           int log_count, int store_shift) {
  const unsigned t = thread_id();
  const int path = (threadIdx.x >> shift) & 7;
  float a = in[t];
  for (int i = 0; i < rounds; ++i) {
    switch (path) {
      PATH(0) PATH(1) PATH(2) PATH(3) PATH(4) PATH(5) PATH(6) PATH(7)
    }
  }
  out[strided(t, log_count, store_shift)] = a;
}

// Slot i is the work of warp i mod 32; after every `period` slots the block waits for all of them.
extern "C" __global__ void __launch_bounds__(1024)
barriers(const float* __restrict__ in, float* __restrict__ out, int rounds, int period) {
  const unsigned t = thread_id();
  const int warp = threadIdx.x / 32;
  float a = in[t];
  for (int i = 0; i < rounds; ++i) {
    if ((i & 31) == warp) {
#pragma unroll 64
      for (int k = 0; k < 256; ++k) a = fmaf(a, 0.9999f, 0.0001f);
    }
    if ((i & (period - 1)) == period - 1) __syncthreads();
  }
  out[t] = a;
}

// 96 multiply-adds a round, in CHAINS chains.
extern "C" __global__ void __launch_bounds__(128)
dependency(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  const unsigned t = thread_id();
  float a[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) a[c] = in[t] + c;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 96 / CHAINS; ++k) {
#pragma unroll
      for (int c = 0; c < CHAINS; ++c) a[c] = fmaf(a[c], 0.99999f, 0.001f);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum += a[c];
  out[t] = sum;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Eight accumulators a round; SPECIAL of them add 2^x, the others c x. x falls in small steps.
extern "C" __global__ void __launch_bounds__(THREADS)
special(const float* __restrict__ in, float* __restrict__ out, int rounds, int every) {
  const unsigned t = thread_id();
  const float start = in[t];
  float x[8], sum[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    x[c] = start - 0.03125f * c;
    sum[c] = 0.0f;
  }
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (c < SPECIAL) {
        sum[c] += exp2_fast(x[c]);
      } else {
        sum[c] = fmaf(x[c], 0.25f, sum[c]);
      }
      x[c] -= 0.0009765625f;
    }
    if ((i & (every - 1)) == every - 1) __syncthreads();
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += sum[c];
  out[t] = total;
}

// Eight accumulators, four multiply-adds each a round; `Wide` of them in double precision.
template <int Wide>
__device__ __forceinline__ void two_precisions(const float* in, float* out, int rounds) {
  const unsigned t = thread_id();
  const float start = in[t];
  double wide[8];
  float narrow[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    wide[c] = start + c;
    narrow[c] = start + c;
  }
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (c < Wide) {
          wide[c] = fma(wide[c], 0.9990234375, 0.0078125);
        } else {
          narrow[c] = fmaf(narrow[c], 0.9990234375f, 0.0078125f);
        }
      }
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int c = 0; c < 8; ++c) total += c < Wide ? static_cast<float>(wide[c]) : narrow[c];
  out[t] = total;
}

extern "C" __global__ void __launch_bounds__(THREADS)
doubles(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  two_precisions<DOUBLES>(in, out, rounds);
}

extern "C" __global__ void __launch_bounds__(THREADS)
doubles_or_none(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  two_precisions<DOUBLES_OR_NONE>(in, out, rounds);
}

__device__ __forceinline__ float advanced(float a, int rounds) {
  float b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      a = fmaf(a, 0.9999f, 0.01f);
      b = fmaf(b, 0.9999f, 0.01f);
      c = fmaf(c, 0.9999f, 0.01f);
      d = fmaf(d, 0.9999f, 0.01f);
    }
  }
  return 0.25f * (a + b + c + d);
}

// A part of a longer calculation: launched once for all of it, or several times in a row.
extern "C" __global__ void __launch_bounds__(THREADS)
advance(const float* from, float* to, int rounds) {
  const unsigned t = thread_id();
  to[t] = advanced(from[t], rounds);
}

// One block fills a multiprocessor (dynamic shared memory sees to that); the blocks share the work.
extern "C" __global__ void __launch_bounds__(1024)
waves(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  const unsigned t = thread_id();
  out[t] = advanced(in[t], rounds);
}
