// Look-alikes: what a cause is mistaken for, differing in what denies it. A program of its own:
// nvcc -arch=sm_90 -O3 -lineinfo -o alike alike.cu && ./alike
//
// Each kernel has three versions: 0 the base, 1 with its cause, 2 with the look-alike, which raises
// the same counter for another reason (`perfml.explain.tree.causes`, `beside`). alike.toml has what
// may be said of version 2.
#include <cuda_fp16.h>
#include <cstdio>
constexpr int kBlocks = 132 * 8, kThreads = 256, kAll = kBlocks * kThreads, kWords = 1 << 26;
constexpr unsigned kMask = kWords - 1, kStep = 1664525, kFrom = 1013904223;  // a cycle of 2^k rows
constexpr int kOne = 200 << 10, kTwo = 100 << 10;  // shared memory with which one, two blocks fit
__constant__ float table[1024];
#define AT (blockIdx.x * kThreads + threadIdx.x)
#define KERNEL(name) template <int V> __global__ void __launch_bounds__(kThreads) \
  name(const float* __restrict__ in, float* __restrict__ out, int n, int one)
__device__ float work(float a, int steps) {
#pragma unroll 4
  for (int i = 0; i < steps; ++i) a = fmaf(a, 0.999f, 0.01f);
  return a;
}
// 1: single words in place of four; 2: as wide, and broadcast words on top. A warp waits for every load
KERNEL(narrow_access) {
  float sum = 0;
#pragma unroll 1
  for (unsigned i = AT; i < 1 << 20; i += gridDim.x * kThreads) {
    if (V == 1) {
#pragma unroll 1
      for (int k = 0; k < 4; ++k) sum += in[(i + (k << 20) + int(sum)) & kMask];
    } else {
      const float4 x = reinterpret_cast<const float4*>(in)[i + int(sum)];
      sum += x.x + x.y + x.z + x.w;
    }
    if (V == 2) {
#pragma unroll 1
      for (int k = 0; k < 3; ++k) sum += in[((i >> 5) + (k << 16) + int(sum)) & kMask];
    }
  }
  out[AT] = sum;
}
// 1: every value is loaded four times from L2; 2: four times as many values, each of them once
KERNEL(redundant_traffic) {
  float sum = 0;
  for (int r = 0; r < (V ? 4 : 1); ++r)
    for (unsigned i = AT; i < unsigned(n) / 8; i += kAll) sum += __ldcg(in + (V == 2 ? r * (n / 8) : 0) + i) * (r + one);
  out[AT] = sum;
}
// 1: lanes 32 words apart; 2: doubles, whose requests touch twice the sectors
KERNEL(sectors_per_request) {
  double sum = 0;
  for (unsigned i = AT; i < unsigned(n) / 2; i += kAll)
    sum += V == 2 ? reinterpret_cast<const double*>(in)[i] > 0.5 : double(in[V == 1 ? i * 32 & kMask : i] > 0.5f);
  out[AT] = float(sum);
}
// 1: conflicts; 2: loads of four words, which need four wavefronts
KERNEL(wavefronts_per_shared_load) {
  __shared__ float4 tile[kThreads * 2];
  tile[threadIdx.x] = tile[threadIdx.x + kThreads] = make_float4(in[AT], 1, 2, 3);
  __syncthreads();
  const float* words = reinterpret_cast<const float*>(tile);
  float sum = 0;
  for (int i = 0; i < 512; ++i) {
    if (V == 2) { const float4 x = tile[(threadIdx.x + i * one) % kThreads]; sum += x.x + x.y + x.z + x.w; }
    else sum += words[((V ? 4 : 1) * threadIdx.x + i * one) % (kThreads * 8)];
  }
  out[AT] = sum;
}
// 1: one block has all the work; 2: equal blocks, of which few fit at once
KERNEL(block_imbalance) {
  extern __shared__ float room[];
  room[threadIdx.x] = in[AT];
  out[AT] = work(room[threadIdx.x], V == 1 ? (blockIdx.x % 8 ? 512 : 16384) : V == 2 ? 2560 : 2048);
}
// 1: lanes read their own constants; 2: all lanes the same one, by an index of the run
KERNEL(constant_serialization) {
  float a = in[AT];
  for (int i = 0; i < 512; ++i)
    a = fmaf(a, 0.999f, V == 0 ? 0.25f : table[V == 1 ? (threadIdx.x * 8 + i) & 1023 : i * one & 1023]);
  out[AT] = a;
}
// 1: lanes take turns; 2: more iterations for all of them
KERNEL(active_threads_per_warp) {
  float a = in[AT];
  for (int t = 0; t < (V == 1 ? 8 : 1); ++t) if (V != 1 || threadIdx.x % 8 == t) a = work(a, V == 2 ? 4096 : 512 + t);
  out[AT] = a;
}
// 1: division by what the compiler does not know; 2: conversions of floats
KERNEL(integer_arithmetic) {
  unsigned a = AT;
  float f = in[AT];
  for (int i = 0; i < 256; ++i) {
    if (V == 1) a = a / unsigned(one + 1) + a * 3; else a = a * 5 + 1;
    f = V == 2 ? f + float(int(f * 3.0f)) : f + float(V);
  }
  out[AT] = f + float(a);
}
// 1: slow argument reduction; 2: fast functions, four times as many
KERNEL(special_function_pipe_time) {
  float a = in[AT] * float(V == 1 ? 1000000 : 1);
  for (int i = 0; i < (V == 2 ? 512 : 128); ++i) a = V == 1 ? sinf(a) * 1e6f : __sinf(a) + 1.0f;
  out[AT] = a;
}
// 1: arithmetic on doubles; 2: doubles that are only moved
KERNEL(fp64_pipe_time) {
  double a = in[AT];
  float f = in[AT];
  long long moved = 0;
  for (int i = 0; i < 256; ++i) {
    if (V == 1) a = fma(a, 0.999, 0.01);
    else if (V == 2) moved ^= __double_as_longlong(reinterpret_cast<const double*>(in)[(AT + i * kAll) & (kMask >> 1)]);
    else f = fmaf(f, 0.999f, 0.01f);
  }
  out[AT] = float(a) + f + float(int(moved));
}
// 1: a chain of pointers over 16 MiB, whose rows all warps read as often without waiting in 0;
// 2: rows of 256 MiB, which come from DRAM, without waiting
KERNEL(stall_memory_dependency) {
  const unsigned rows = (V == 2 ? 1u << 21 : 1u << 17) - 1, lane = threadIdx.x % 32;
  unsigned at = AT / 32 * 2654435761u & rows, sum = 0;
#pragma unroll 8
  for (int i = 0; i < 1024; ++i) {
    const unsigned next = __float_as_uint(in[at * 32 + lane]);
    sum += next;
    at = (V == 1 ? next : at * kStep + kFrom) & rows;
  }
  out[AT] = float(sum);
}
// 1: all go to few words; 2: each block to its own, four times as often
KERNEL(global_atomics) {
  for (int i = 0; i < (V == 2 ? 64 : 16); ++i)
    atomicAdd(out + kAll + (V == 1 ? i & 1 : (AT + i * kThreads) & 0xfffff), in[AT]);
}
// 1: four blocks more than a wave has, for the same work; 2: twice the work, in 12.03 waves
KERNEL(wave_quantization) { out[AT] = work(in[AT], V == 0 ? 13312 : V == 1 ? 12920 : 2048); }
// 1: a quarter of the blocks has three times the work of the others; 2: as much work in 198 equal blocks
KERNEL(sm_imbalance) { out[AT] = work(in[AT], (V == 0 ? 3 : V == 2 || blockIdx.x % 4 ? 2 : 6) << 12); }
// 1: an array that is indexed at run time; 2: one that is used twice, and more arithmetic
KERNEL(local_memory) {
  float a = in[AT], kept[64];
  for (int k = 0; k < 64; ++k) kept[k] = V ? a + k : 0;
  for (int i = 0; i < 128; ++i) {
    a = work(a, V == 2 ? 128 : 16);
    if (V == 1) for (int k = 0; k < 4; ++k) a += kept[(i * 7 + k * one) & 63], kept[(i * 5 + k * one) & 63] = a;
  }
  out[AT] = V ? a + kept[(threadIdx.x * one) & 63] : a;
}
// 1: one block fits in place of eight; 2: two fit, and far more arithmetic that needs few warps
KERNEL(theoretical_occupancy) {
  unsigned at = AT / 32 * 2654435761u & 131071;
  for (int i = 0; i < 16; ++i) at = __float_as_uint(in[at * 32 + threadIdx.x % 32]) & 131071;
  float a[4] = {float(at), 1, 2, 3};
  for (int i = 0; i < (V == 2 ? 1024 : 64); ++i)
    for (float& x : a) x = fmaf(x, 0.999f, 0.01f);
  out[AT] = a[0] + a[1] + a[2] + a[3];
}
// 1: more instructions of three kinds; 2: four times the bytes, with as many instructions a byte
KERNEL(instructions) {
  float sum = 0;
  __half2 h = __floats2half2_rn(in[AT], 1);
  for (unsigned i = AT; i < unsigned(n) / (V == 2 ? 1 : 4); i += kAll) {
    const float x = in[i];
    sum += x;
    if (V == 1) {
      float f = x;
      unsigned u = i;
      for (int k = 0; k < 12; ++k) {
        for (int j = 0; j < 4; ++j) f = fmaf(f, 0.999f, 0.01f), h = __hfma2(h, h, h);
        u = u * 5 + 1, u ^= u >> 7;
      }
      sum += f + float(u);
    }
  }
  out[AT] = sum + __low2float(h);
}
// 1: as many loads, from DRAM and not from L2; 2: five times the bytes of DRAM, beside arithmetic
KERNEL(dram_bytes_per_sector) {
  float sum = 0;
#pragma unroll 4
  for (unsigned i = AT; i < 1u << 25; i += gridDim.x * kThreads) {
    const unsigned far = V == 1 || (V == 2 && i >> 23 == 0) ? kMask : (1 << 21) - 1;
    const float x = in[i & far];
    sum += V == 2 ? work(x, 32) : x;
  }
  out[AT] = sum;
}
// 1: a fence after every store; 2: as much work, one warp after the other between barriers, and a fence at
// every eighth one. Stores and fences are volatile: a compiler that may drop some changes what is planted
KERNEL(memory_fence) {
  float a = in[AT];
  volatile float* stored = out;
  for (int i = 0; i < 64; ++i) {
    if (V != 2) a = work(a, 64);
    else if (threadIdx.x / 32 == i % 8) a = work(a, 512);
    stored[AT] = a;
    if (V == 1 || (V == 2 && i % 8 == 0)) asm volatile("membar.gl;" ::: "memory");
    if (V == 2) __syncthreads();
  }
}
// 1: exchanges between lanes; 2: loads of shared memory, and an exchange for eight times as many
KERNEL(lsu_pipe_time) {
  __shared__ float words[kThreads * 2];
  words[threadIdx.x] = words[threadIdx.x + kThreads] = in[AT];
  __syncthreads();
  float a = in[AT];
  for (int i = 0; i < 256; ++i) {
    a = fmaf(a, 0.999f, 0.01f);
    for (int k = 0; k < 8; ++k) {
      if (V == 1) a += __shfl_xor_sync(~0u, a, 1 + k);
      if (V == 2) a += words[(threadIdx.x + (i + k) * one) % (kThreads * 2)];
    }
    if (V == 2 && i % 8 == 0) a += __shfl_xor_sync(~0u, a, 1);
  }
  out[AT] = a;
}
__global__ void fill(unsigned* next) {
  for (unsigned i = AT; i < kWords; i += kAll) next[i] = i / 32 * kStep + kFrom;
}
template <class K> void run(K kernel, const float* in, float* out, int shared = 0, int blocks = kBlocks) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  kernel<<<blocks, kThreads, shared>>>(in, out, kWords, 1);
}
#define ALL(name, from, ...) run(name<0>, from, out, ##__VA_ARGS__), run(name<1>, from, out, ##__VA_ARGS__), run(name<2>, from, out, ##__VA_ARGS__)
int main() {
  float *in, *out, *next;
  if (cudaMalloc(&in, 4ull * kWords) || cudaMalloc(&next, 4ull * kWords) || cudaMalloc(&out, 4u << 22)) return 1;
  cudaMemset(in, 1, 4ull * kWords);
  fill<<<kBlocks, kThreads>>>(reinterpret_cast<unsigned*>(next));
  ALL(narrow_access, in, 0, 132);
  ALL(redundant_traffic, in), ALL(sectors_per_request, in), ALL(wavefronts_per_shared_load, in);
  run(block_imbalance<0>, in, out, 4096), run(block_imbalance<1>, in, out, 4096), run(block_imbalance<2>, in, out, kTwo);
  ALL(constant_serialization, in), ALL(active_threads_per_warp, in), ALL(integer_arithmetic, in);
  ALL(special_function_pipe_time, in), ALL(fp64_pipe_time, in), ALL(global_atomics, in);
  ALL(stall_memory_dependency, next, 0, 132);
  run(wave_quantization<0>, in, out, kOne, 132), run(wave_quantization<1>, in, out, kOne, 136), run(wave_quantization<2>, in, out, kOne, 1588);
  run(sm_imbalance<0>, in, out, kOne, 132), run(sm_imbalance<1>, in, out, kOne, 132), run(sm_imbalance<2>, in, out, kOne, 198);
  run(theoretical_occupancy<0>, next, out), run(theoretical_occupancy<1>, next, out, kOne), run(theoretical_occupancy<2>, next, out, kTwo);
  ALL(local_memory, in), ALL(instructions, in), ALL(dram_bytes_per_sector, in, 0, 132);
  ALL(memory_fence, in, kTwo), ALL(lsu_pipe_time, in);
  const cudaError_t bad = cudaDeviceSynchronize();
  std::puts(cudaGetErrorString(bad));
  return bad != cudaSuccess;
}
