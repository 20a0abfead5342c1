// Families of memory: one kernel each, one knob each. Macros are the knobs that change the code.
//
// INDEXED  values out of 16 that live in an array with a run-time index (local memory)
// CROWD    blocks a multiprocessor that registers have to leave room for (spills)
// WIDTH    bytes of one load and one store
// PASSES   passes over the data that share eight sums
// BUSY     multiply-adds of a value for one sum, where they change along with PASSES
// READS    loads of each value that share eight sums
// STAGES   copies to shared memory under way; 0: loads and stores through registers
#include "common.cuh"

// Every value goes to one of 2^log_bins bins, the largest magnitude stays. Values are negative, so
// their bits as unsigned numbers grow with the magnitude. A thread merges `merged` values first.
extern "C" __global__ void __launch_bounds__(THREADS)
atomic_bins(const float* __restrict__ in, unsigned* out, int log_count, int log_bins, int merged,
            int rounds) {
  const unsigned mask = (1u << log_count) - 1, bins = (1u << log_bins) - 1, t = thread_id();
  unsigned largest = 0;
#pragma unroll 4
  for (int i = 0; i < rounds; ++i) {
    largest = max(largest, __float_as_uint(in[(t + i * kHop) & mask]));
    if ((i & (merged - 1)) == merged - 1) {
      atomicMax(&out[t & bins], largest);
      largest = 0;
    }
  }
}

// A histogram of weights a block: 2^shift neighbouring lanes add to the same word.
extern "C" __global__ void __launch_bounds__(THREADS)
shared_bins(const float* __restrict__ in, float* __restrict__ out, int shift, int rounds) {
  __shared__ int bins[THREADS];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const unsigned t = thread_id(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int weight = static_cast<int>(in[t] * -1024.0f);
#pragma unroll 4
  for (int i = 0; i < rounds; ++i) {
    atomicAdd(&bins[((lane >> shift) + 32 * (i + warp)) % THREADS], weight);
  }
  __syncthreads();
  out[t] = static_cast<float>(bins[threadIdx.x]);
}

// Sixteen chains of multiply-adds. `turn` is 0, which the compiler cannot know: so the values of
// the indexed array cannot stay in registers. (It would turn fewer than five into selections.)
extern "C" __global__ void __launch_bounds__(THREADS)
local_array(const float* __restrict__ in, float* __restrict__ out, int rounds, int turn) {
  const unsigned t = thread_id();
  constexpr int kIndexed = INDEXED > 0 ? INDEXED : 1;
  float kept[17 - INDEXED], indexed[kIndexed];
#pragma unroll
  for (int c = 0; c < 16; ++c) (c < INDEXED ? indexed[c] : kept[c - INDEXED]) = in[t] + c;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int c = 0; c < 16; ++c) {
      float& a = c < INDEXED ? indexed[c + i * turn] : kept[c - INDEXED];
      a = fmaf(a, 0.9990234375f, 0.0078125f);
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < 16; ++c) sum += c < INDEXED ? indexed[c + turn] : kept[c - INDEXED];
  out[t] = sum;
}

// 52 chains of multiply-adds that are all alive in the whole loop.
extern "C" __global__ void __launch_bounds__(THREADS, CROWD)
spilled(const float* __restrict__ in, float* __restrict__ out, int rounds) {
  constexpr int kValues = 52;
  const unsigned t = thread_id();
  float a[kValues];
#pragma unroll
  for (int c = 0; c < kValues; ++c) a[c] = in[t] + c;
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int c = 0; c < kValues; ++c) a[c] = fmaf(a[c], 0.9990234375f, 0.0078125f);
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kValues; ++c) sum += a[c];
  out[t] = sum;
}

template <int Bytes>
struct Word;
template <>
struct Word<16> {
  using type = uint4;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<1> {
  using type = unsigned char;
};

// 16 bytes a thread and round are copied, WIDTH at a time; neighbouring lanes take neighbouring
// words, so every sector is used as a whole whatever the width.
extern "C" __global__ void __launch_bounds__(THREADS)
copy_words(const float* __restrict__ in, float* __restrict__ out, int log_count, int rounds) {
  using Type = Word<WIDTH>::type;
  const Type* from = reinterpret_cast<const Type*>(in);
  Type* to = reinterpret_cast<Type*>(out);
  const unsigned mask = ((4u << log_count) / WIDTH) - 1, threads = gridDim.x * THREADS;
  unsigned at = thread_id();
#pragma unroll 4
  for (int i = 0; i < rounds * (16 / WIDTH); ++i) {
    to[at & mask] = from[at & mask];
    at += threads;
  }
}

// Eight sums over a thread's vectors, each with a decay of its own. Every pass makes 8 / PASSES of
// them and reads all vectors for it. Of `Work` multiply-adds of a value for a sum all but the first
// go to a sum beside it.
template <int Work>
__device__ __forceinline__ void sum_in_passes(const float4* wide, float* out, int rounds) {
  constexpr int kSums = 8 / PASSES;
  const unsigned t = thread_id(), threads = gridDim.x * THREADS;
  float total = 0.0f;
#pragma unroll 1
  for (int pass = 0; pass < PASSES; ++pass) {
    float sum[kSums] = {}, beside[kSums] = {};
#pragma unroll 2
    for (int i = 0; i < rounds; ++i) {
      const float4 x = wide[t + i * threads];
      const float part[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        const float decay = 1.0f - 0.00390625f * (pass * kSums + s + 1);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sum[s] = fmaf(sum[s], decay, part[c]);
#pragma unroll
          for (int k = 1; k < Work; ++k) beside[s] = fmaf(beside[s], 0.5f * decay, part[c]);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kSums; ++s) total += sum[s] + beside[s];
  }
  out[t] = total;
}

extern "C" __global__ void __launch_bounds__(THREADS)
passes(const float4* __restrict__ wide, float* __restrict__ out, int rounds) {
  sum_in_passes<1>(wide, out, rounds);
}

extern "C" __global__ void __launch_bounds__(THREADS)
passes_busy(const float4* __restrict__ wide, float* __restrict__ out, int rounds) {
  sum_in_passes<BUSY>(wide, out, rounds);
}

// Eight sums over a thread's values; each value is loaded READS times, from L2.
extern "C" __global__ void __launch_bounds__(THREADS)
reloads(const float* in, float* __restrict__ out, int log_count, int rounds) {
  const unsigned mask = (1u << log_count) - 1, t = thread_id();
  float sum[8];
#pragma unroll
  for (int s = 0; s < 8; ++s) sum[s] = 0.0f;
#pragma unroll 2
  for (int i = 0; i < rounds; ++i) {
    const float* from = in + ((t + i * kHop) & mask);
#pragma unroll
    for (int r = 0; r < READS; ++r) {
      const float x = load_l2(from);
#pragma unroll
      for (int s = r * (8 / READS); s < (r + 1) * (8 / READS); ++s) {
        sum[s] = fmaf(sum[s], 1.0f - 0.00390625f * (s + 1), x);
      }
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < 8; ++s) total += sum[s];
  out[t] = total;
}

__device__ __forceinline__ float along(float a, const float4& x) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    a = fmaf(a, 0.9990234375f, x.x);
    a = fmaf(a, 0.9990234375f, x.y);
    a = fmaf(a, 0.9990234375f, x.z);
    a = fmaf(a, 0.9990234375f, x.w);
  }
  return a;
}

// A vector a round goes through shared memory to the neighbouring lane, which works on it.
extern "C" __global__ void __launch_bounds__(128)
staged(const float4* __restrict__ in, float* __restrict__ out, int log_count, int rounds) {
  constexpr int kSlots = STAGES > 1 ? STAGES : 1;
  __shared__ float4 tile[kSlots][128];
  const unsigned mask = ((1u << log_count) / 4) - 1, t = thread_id(), own = threadIdx.x;
  float a = 0.0f;
#if STAGES > 1
  for (int i = 0; i < STAGES - 1; ++i) {
    copy_async(&tile[i][own], &in[(t + i * kHop) & mask]);
    copies_commit();
  }
#endif
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
    const int ahead = i + kSlots - 1;
#if STAGES > 0
    copy_async(&tile[ahead % kSlots][own], &in[(t + ahead * kHop) & mask]);
    copies_commit();
    copies_wait<kSlots - 1>();
#else
    tile[0][own] = in[(t + ahead * kHop) & mask];
#endif
    __syncwarp();
    a = along(a, tile[i % kSlots][own ^ 1]);
    __syncwarp();
  }
  out[t] = a;
}

// Four results a thread, written in turn; after every `period` stores the thread waits until all
// multiprocessors could see them.
extern "C" __global__ void __launch_bounds__(THREADS)
fences(const float* __restrict__ in, float* out, int rounds, int period) {
  const unsigned t = thread_id(), threads = gridDim.x * THREADS;
  float a = in[t];
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 8; ++k) a = fmaf(a, 0.9990234375f, 0.0078125f);
    out[(i & 3) * threads + t] = a;
    if ((i & (period - 1)) == period - 1) __threadfence();
  }
}

struct Table {
  float at[256];
  constexpr Table() : at() {
    for (int i = 0; i < 256; ++i) at[i] = static_cast<float>(i * 37 % 256) / 256.0f;
  }
};
__constant__ Table table = Table();

// Reads of a table in constant memory; 2^shift neighbouring lanes read the same word.
extern "C" __global__ void __launch_bounds__(THREADS)
constant_table(const float* __restrict__ in, float* __restrict__ out, int shift, int rounds) {
  const unsigned t = thread_id(), first = (threadIdx.x % 32 >> shift) * 8;
  float a = in[t];
#pragma unroll 4
  for (int i = 0; i < rounds; ++i) a = fmaf(a, 0.9990234375f, table.at[(first + i) % 256]);
  out[t] = a;
}
