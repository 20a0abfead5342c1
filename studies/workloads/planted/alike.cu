// Look-alikes: what a cause is mistaken for, differing in what denies it. A program of its own:
// nvcc -arch=sm_90 -O3 -lineinfo -o alike alike.cu && ./alike
//
// Each kernel has three versions: 0 the base, 1 with its cause, 2 with the look-alike, which raises
// the same counter for another reason (`perfml.explain.tree.causes`, `beside`). alike.toml has what
// may be said of version 2.
#include <cstdio>

constexpr int kBlocks = 132 * 8, kThreads = 256, kAll = kBlocks * kThreads, kWords = 1 << 24;
constexpr unsigned kMask = kWords - 1;
__constant__ float table[1024];

#define AT (blockIdx.x * kThreads + threadIdx.x)
#define KERNEL(name) template <int V> __global__ void __launch_bounds__(kThreads) \
  name(const float* __restrict__ in, float* __restrict__ out, int n, int one)

__device__ float work(float a, int steps) {
#pragma unroll 4
  for (int i = 0; i < steps; ++i) a = fmaf(a, 0.999f, 0.01f);
  return a;
}
// 1: single words in place of four; 2: as wide, and a broadcast word on top
KERNEL(narrow_access) {
  float sum = 0;
  for (unsigned i = AT; i < unsigned(n) / 4; i += kAll) {
    if (V == 1) for (int k = 0; k < 4; ++k) sum += in[i + k * (n / 4)];
    else { const float4 x = reinterpret_cast<const float4*>(in)[i]; sum += x.x + x.y + x.z + x.w; }
    if (V == 2) for (int k = 0; k < 3; ++k) sum += in[((i >> 5) + k * 9) & kMask];
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
  for (int i = 0; i < 256; ++i) {
    if (V == 1) a = fma(a, 0.999, 0.01);
    else if (V == 2) a = reinterpret_cast<const double*>(in)[(AT + i * kAll) & (kMask >> 1)];
    else f = fmaf(f, 0.999f, 0.01f);
  }
  out[AT] = float(a) + f;
}
// 1: a chain of pointers; 2: as many loads that do not wait for each other
KERNEL(stall_memory_dependency) {
  unsigned at = AT * 97 & kMask;
  float sum = 0;
  for (int i = 0; i < 64; ++i) {
    const float x = in[at];
    sum += x;
    at = (at + (V == 1 ? __float_as_uint(x) % 8191 : 8191) * 33 * (V ? 1 : 0)) & kMask;
  }
  out[AT] = sum;
}
// 1: all go to few words; 2: each block to its own, four times as often
KERNEL(global_atomics) {
  for (int i = 0; i < (V == 2 ? 64 : 16); ++i)
    atomicAdd(out + kAll + (V == 1 ? i & 1 : (AT + i * kThreads) & 0xfffff), in[AT]);
}

template <class K> void run(K kernel, const float* in, float* out, int shared = 0) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  kernel<<<kBlocks, kThreads, shared>>>(in, out, kWords, 1);
}
#define ALL(name) run(name<0>, in, out), run(name<1>, in, out), run(name<2>, in, out)

int main() {
  float *in, *out;
  if (cudaMalloc(&in, 4u * kWords) || cudaMalloc(&out, 4u << 22)) return 1;
  cudaMemset(in, 1, 4u * kWords);
  ALL(narrow_access), ALL(redundant_traffic), ALL(sectors_per_request), ALL(wavefronts_per_shared_load);
  run(block_imbalance<0>, in, out, 4096), run(block_imbalance<1>, in, out, 4096), run(block_imbalance<2>, in, out, 100 << 10);
  ALL(constant_serialization), ALL(active_threads_per_warp), ALL(integer_arithmetic), ALL(special_function_pipe_time);
  ALL(fp64_pipe_time), ALL(stall_memory_dependency), ALL(global_atomics);
  const cudaError_t bad = cudaDeviceSynchronize();
  std::puts(cudaGetErrorString(bad));
  return bad != cudaSuccess;
}
