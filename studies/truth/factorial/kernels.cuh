// Kernels with five independent toggles each; bit k of the mask M is toggle k (toggles.toml has
// what each one is). Combinations of a kernel compute the same, but for toggles that change the
// input or the order (main.cu). Arguments are values that the compiler cannot know.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

struct Inputs {
  const float* values;           // 2^24, between 0 and 1
  const unsigned char* bytes;    // 2^26, even over 1,024 bins with the bytes beside them
  const int* order[2];           // permutations in one cycle: of 2^19, of 2^24
  const int* rows[2];            // first entries of 2^16 + 1 rows, 2^22 entries: even, uneven
  const int* columns[2];         // of each entry: beside each other, random below 2^20
  float* out;                    // 2^24
  int zero, width;               // 0 and 4,096
};

#define KERNEL(name, threads, blocks) \
  template <unsigned M>               \
  __global__ void __launch_bounds__(threads, blocks) name(Inputs in)
#define ON(k) ((M >> (k)) & 1)

constexpr unsigned kMask = (1u << 24) - 1;
__device__ __forceinline__ unsigned thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ unsigned threads() { return gridDim.x * blockDim.x; }

// Element j of 2^bits where neighbouring lanes are 32 elements apart; every one is met once.
__device__ __forceinline__ unsigned apart(unsigned j, int bits) {
  return ((j << 5) & ((1u << bits) - 1)) | (j >> (bits - 5));
}

// The same index, by divisions that a smaller program does not need.
__device__ __forceinline__ unsigned by_division(unsigned j, const Inputs& in, int times) {
#pragma unroll
  for (int k = 0; k < times; ++k) {
    const unsigned width = in.width + in.zero * k;
    j = j / width * (width + in.zero) + j % width;
  }
  return j;
}

// Eight chains' worth of multiply-adds in single or double precision.
template <bool Doubles>
__device__ __forceinline__ float polynomial(float x) {
  using Real = typename std::conditional<Doubles, double, float>::type;
  Real y = 1, z = x;
#pragma unroll
  for (int k = 0; k < 32; ++k) y = y * z + Real(0.25);
  return static_cast<float>(y);
}

// One value in, one out: far from DRAM's ceiling only by its toggles.
KERNEL(map, 256, 1) {
#pragma unroll 4
  for (unsigned j = thread(); j <= kMask; j += threads()) {
    const unsigned i = ON(3) ? by_division(j, in, 3) : j;
    const float x = in.values[ON(0) ? apart(i, 24) : i];
    in.out[ON(1) ? apart(i, 24) : i] = polynomial<ON(2)>(0.5f * x);
  }
}

// A filter of 32 taps over a tile in shared memory.
KERNEL(window, 256, 1) {
  constexpr int kPitch = ON(0) ? 8 : 1;
  __shared__ float tile[(256 + 32) * kPitch];
  const unsigned n = blockDim.x, t = threadIdx.x;
  for (unsigned first = blockIdx.x * n; first < 1u << 22; first += gridDim.x * n) {
    if (!ON(1)) {
      for (unsigned i = t; i < n + 32; i += n) tile[i * kPitch] = in.values[(first + i) & kMask];
      __syncthreads();
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const float x = ON(1) ? __ldcg(&in.values[(first + t + k) & kMask]) : tile[(t + k) * kPitch];
      sum += x * (ON(2) ? exp2f(-0.25f * k + in.zero * x) : 1.0f / (1 << k / 4));
      if (ON(3)) __syncthreads();
    }
    in.out[first + t] = sum;
    if (!ON(1)) __syncthreads();
  }
}

// C = A B with 2,048 x 256 and 256 x 512 values, 32 x 32 of C a block and four a thread. With
// conflicts, B's tile lies the other way round: four lanes read of one bank.
KERNEL(product, 256, 1) {
  using Real = typename std::conditional<ON(3), double, float>::type;
  __shared__ float a[32][33], b[32][36];
  const int column = threadIdx.x % 32, row = threadIdx.x / 32;
  const int left = blockIdx.x % 16 * 32, top = blockIdx.x / 16 * 32;
  Real sum[4] = {};
  for (int k = 0; k < 256; k += 32) {
    if (!ON(0)) {
#pragma unroll
      for (int r = row; r < 32; r += 8) {
        a[r][column] = in.values[(top + r) * 256 + k + column];
        (ON(1) ? b[column][r] : b[r][column]) = in.values[(k + r) * 512 + left + column];
      }
      __syncthreads();
    }
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
      const unsigned own = (k + i) * 512 + left + column;
      const unsigned at = ON(4) ? by_division(own, in, 1) : own, r = at / 512 % 32;
      const float y = ON(0) ? __ldcg(&in.values[at]) : ON(1) ? b[column][r] : b[r][column];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int mine = row + 8 * q;
        const float x = ON(0) ? __ldcg(&in.values[(top + mine) * 256 + k + i]) : a[mine][i];
        sum[q] += Real(x) * Real(y);
      }
    }
    if (!ON(0)) __syncthreads();
  }
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    in.out[(top + row + 8 * q) * 512 + left + column] = static_cast<float>(sum[q]);
  }
}

// Weights of 2^23 bytes in 1,024 bins (or in 4 of them), a histogram a block or one for all.
KERNEL(bins, 256, 1) {
  __shared__ int counts[1024];
  int* const total = reinterpret_cast<int*>(in.out);
  int* const mine = ON(0) ? total : counts;
  for (int i = threadIdx.x; i < 1024; i += 256) counts[i] = 0;
  __syncthreads();
  const auto add = [&](unsigned byte, unsigned j) {
    const unsigned bin = (byte | (j & 3) << 8) & (ON(1) ? 0x300 : 0x3ff);
    int weight = byte + 1;
    if (ON(2) && threadIdx.x % 2) {
#pragma unroll 1
      for (int k = 0; k < 12; ++k) weight = weight * 5 + (weight >> 3);
    } else {
#pragma unroll 1
      for (int k = 0; k < 12; ++k) weight = weight * 5 + (weight >> 3);
    }
    atomicAdd(&mine[bin], weight);
  };
  if (ON(3)) {
#pragma unroll 4
    for (unsigned j = thread(); j < 1u << 23; j += threads()) add(in.bytes[j], j);
  } else {
    for (unsigned j = thread(); j < 1u << 19; j += threads()) {
      const uint4 all = reinterpret_cast<const uint4*>(in.bytes)[j];
      const unsigned words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
      for (int k = 0; k < 16; ++k) add(words[k / 4] >> k % 4 * 8 & 255, k);
    }
  }
  __syncthreads();
  if (!ON(0)) {
    for (int i = threadIdx.x; i < 1024; i += 256) atomicAdd(&total[i], counts[i]);
  }
}

// Forces of 256 bodies on each of 2^18, a tile of them in shared memory.
KERNEL(forces, 256, 1) {
  using Real = typename std::conditional<ON(3), double, float>::type;
  __shared__ float2 tile[256];
  tile[threadIdx.x] = {in.values[threadIdx.x], in.values[threadIdx.x + 256]};
  __syncthreads();
  const float x = in.values[thread() & kMask], y = in.values[(thread() + 77) & kMask];
  Real sums[16] = {};
  const auto along = [&](int first) {
#pragma unroll 16
    for (int i = 0; i < 256; ++i) {
      const float2 other = tile[(i + first) & 255];
      const float dx = other.x - x, dy = other.y - y, square = dx * dx + dy * dy + 0.01f;
      const float near = ON(1) ? 1.0f / sqrtf(square) : rsqrtf(square);
      // the compiler cannot know that `zero` is 0: an array with such an index is in memory
      sums[ON(2) ? (i + first) & 15 : i & 15] += Real(near * near * near * dx);
    }
  };
  if (ON(0) && threadIdx.x % 2) {
    along(16 + in.zero);
  } else {
    along(in.zero);
  }
  Real sum = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) sum += sums[ON(2) ? (k + in.zero) & 15 : k];
  in.out[thread()] = static_cast<float>(sum);
}

// Forty recursive filters along 2^24 values, or along 2^20 again and again that stay in L2.
template <unsigned M>
__device__ __forceinline__ void filters_of(const Inputs& in) {
  constexpr int kBits = ON(2) ? 24 : 20, kPasses = ON(4) ? 5 : 1, kFilters = 40 / kPasses;
  float state[40];
#pragma unroll
  for (int c = 0; c < 40; ++c) state[c] = 0.0f;
#pragma unroll 1
  for (unsigned j = thread(); j <= kMask; j += threads()) {
    const unsigned wide = j & ((1u << kBits) - 1), i = ON(1) ? apart(wide, kBits) : wide;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float x = __ldcg(&in.values[i + pass * in.zero]);
#pragma unroll
      for (int c = 0; c < kFilters; ++c) {
        float& y = state[pass * kFilters + c];
        y = fmaf(y, 0.5f - 0.01f * (pass * kFilters + c), x);
      }
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < 40; ++c) sum += state[c];
  in.out[thread()] = sum;
}
KERNEL(filters, 256, (M & 1) ? 8 : 3) { filters_of<M>(in); }

// 4,096 x 4,096 values the other way round, 32 x 32 a block.
KERNEL(turn, 256, 1) {
  __shared__ float tile[32][ON(0) ? 32 : 33];
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32, rows = blockDim.x / 32;
  const unsigned left = blockIdx.x % 128 * 32, top = blockIdx.x / 128 * 32;
#pragma unroll 4
  for (int r = first; r < 32; r += rows) {
    const unsigned i = (top + r) * 4096 + left + lane;
    const float x = in.values[ON(2) ? by_division(i, in, 4) : i];
    if (ON(1)) {
      in.out[(left + lane) * 4096 + top + r] = x;
      if (ON(4)) __threadfence();
    } else {
      tile[r][lane] = x;
    }
  }
  if (ON(1)) return;
  __syncthreads();
#pragma unroll 4
  for (int r = first; r < 32; r += rows) {
    const unsigned i = (left + r) * 4096 + top + lane;
    in.out[ON(2) ? by_division(i, in, 4) : i] = tile[lane][r];
    if (ON(4)) __threadfence();
  }
}

// Eight walks a thread through a permutation, 16 steps each; side by side, or one after another.
KERNEL(walks, 256, 1) {
  const int* const order = in.order[ON(2)];
  constexpr unsigned kSize = ON(2) ? 1u << 24 : 1u << 19;
  for (unsigned j = thread(); j < 1u << 17; j += threads()) {
    int at[8], met = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) at[c] = (j * 8 + c) * 2654435761u & (kSize - 1);
    const auto step = [&](int& place) {
      place = __ldcg(&order[place]);
      if (ON(3)) atomicAdd(reinterpret_cast<int*>(in.out) + (place & 1023), 1);
      met += place & 15;
    };
    if (ON(0)) {
#pragma unroll 1
      for (int k = 0; k < 128; ++k) {
        if (k % 16 == 0) at[0] = (j * 8 + k / 16) * 2654435761u & (kSize - 1);
        step(at[0]);
      }
    } else {
#pragma unroll 1
      for (int k = 0; k < 16; ++k) {
#pragma unroll
        for (int c = 0; c < 8; ++c) step(at[c]);
      }
    }
    in.out[4096 + j] = static_cast<float>(met);
  }
}

// A sparse matrix of 2^16 rows times a vector; a warp a row, or (toggle 0) a thread a row.
KERNEL(sparse, 256, 1) {
  using Real = typename std::conditional<ON(4), double, float>::type;
  constexpr int kLanes = ON(0) ? 1 : 32;
  const int* const rows = in.rows[ON(2)];
  const int* const columns = in.columns[ON(1)];
  const unsigned lane = threadIdx.x % kLanes;
  for (unsigned row = thread() / kLanes; row < 1u << 16; row += threads() / kLanes) {
    Real sum = 0;
    const int end = rows[row + 1];
    for (int k = rows[row] + lane; k < end; k += kLanes) {
      const Real part = Real(in.values[k]) * Real(__ldcg(&in.values[(1 << 23) + columns[k]]));
      if (ON(3)) {
        atomicAdd(&in.out[row], static_cast<float>(part));
      } else {
        sum += part;
      }
    }
    if constexpr (!ON(3)) {
#pragma unroll
      for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane == 0) in.out[row] = static_cast<float>(sum);
    }
  }
}

struct Table {
  float at[256];
  constexpr Table() : at() {
    for (int i = 0; i < 256; ++i) at[i] = static_cast<float>(i * 37 % 256) / 256.0f;
  }
};
__constant__ Table table = Table();

// Sixteen bytes a thread and round through a table of 256 values.
KERNEL(lookups, 256, 1) {
  __shared__ float shared[256];
  shared[threadIdx.x] = table.at[threadIdx.x];
  __syncthreads();
  const auto look = [&](unsigned byte, float sum) {
    const float x = ON(0) ? table.at[byte & 15] : shared[byte & 15];
    sum = fmaf(sum, 0.5f, x);
    // to a whole number of sixteenths, by way of an integer or of a large sum
    if (ON(1)) sum = static_cast<float>(__float2int_rn(16.0f * sum)) * 0.0625f;
    if (!ON(1)) sum = (16.0f * sum + 12582912.0f - 12582912.0f) * 0.0625f;
    if (ON(2)) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum = __shfl_xor_sync(~0u, sum, 1 + k / 2);  // there and back
    }
    return sum;
  };
  const auto both = [&](unsigned byte, float sum) {
    if (ON(4) && threadIdx.x % 2) {
#pragma unroll 1
      for (int k = in.zero; k < 3; ++k) sum = fmaf(sum, 0.5f, 0.25f);
    } else {
#pragma unroll 1
      for (int k = in.zero; k < 3; ++k) sum = fmaf(sum, 0.5f, 0.25f);
    }
    return look(byte, sum);
  };
  float sum = 0.0f;
  if (ON(3)) {
#pragma unroll 4
    for (unsigned j = thread(); j < 1u << 26; j += threads()) sum = both(in.bytes[j], sum);
  } else {
    for (unsigned j = thread(); j < 1u << 22; j += threads()) {
      const uint4 all = reinterpret_cast<const uint4*>(in.bytes)[j];
      const unsigned words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
      for (int k = 0; k < 16; ++k) sum = both(words[k / 4] >> k % 4 * 8 & 255, sum);
    }
  }
  in.out[thread()] = sum;
}
