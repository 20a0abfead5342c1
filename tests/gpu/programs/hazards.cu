// One kernel a hazard, each planted on purpose, in an NVTX range that names it: what a rule of
// advice has to find here is known. `healthy_fma` and `healthy_copy` are the controls.
//
// Build: nvcc -O2 -arch=sm_90 -o hazards hazards.cu
#include <cstdio>

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#define CHECK(call)                                                          \
  do {                                                                       \
    cudaError_t status = (call);                                             \
    if (status != cudaSuccess) {                                             \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));   \
      return 1;                                                              \
    }                                                                        \
  } while (0)

constexpr int kCount = 1 << 24;  // floats in a buffer: 64 MiB, more than L2 holds

__device__ int thread_id() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void healthy_fma(float* out, int rounds) {
  float a = threadIdx.x, b = 1.0f, c = 2.0f, d = 3.0f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01f + 0.5f;
    b = b * 1.02f + 0.5f;
    c = c * 1.03f + 0.5f;
    d = d * 1.04f + 0.5f;
  }
  out[thread_id()] = a + b + c + d;
}

__global__ void healthy_copy(float4* out, const float4* in) {
  const int i = thread_id();
  out[i] = in[i];
}

__global__ void uncoalesced_load(float* out, const float* in) {
  const int i = thread_id();
  out[i] = in[(i * 32LL) % kCount + (i * 32LL) / kCount];
}

__global__ void uncoalesced_store(float* out, const float* in) {
  const int i = thread_id();
  out[(i * 32LL) % kCount + (i * 32LL) / kCount] = in[i];
}

__global__ void bank_conflicts(float* out, int rounds) {
  __shared__ float tile[32 * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) sum += tile[lane * 32 + ((warp + i) & 31)];
  out[thread_id()] = sum;
}

// 8 blocks for more than 100 multiprocessors
__global__ void small_grid(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) a = a * 1.01f + 0.5f;
  out[thread_id()] = a;
}

// one block fits on a multiprocessor, and one block more than there are multiprocessors
__global__ void tail_wave(float* out, int rounds) {
  extern __shared__ float whole[];
  whole[threadIdx.x] = threadIdx.x;
  float a = whole[threadIdx.x], b = 1.0f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01f + 0.5f;
    b = b * 1.02f + 0.5f;
  }
  out[thread_id()] = a + b;
}

// shared memory lets two blocks of one warp each onto a multiprocessor; loads have nobody to hide
__global__ void low_occupancy_shared(float* out, const float* in, int rounds) {
  extern __shared__ float whole[];
  whole[threadIdx.x] = 0.0f;
  long long at = thread_id();
  float sum = whole[threadIdx.x];
  for (int i = 0; i < rounds; ++i) {
    sum += in[at % kCount];
    at += gridDim.x * blockDim.x + static_cast<int>(sum) % 2;
  }
  out[thread_id()] = sum;
}

// some 200 live registers a thread
__global__ void low_occupancy_registers(float* out, const float* in, int rounds) {
  float held[160];
#pragma unroll
  for (int k = 0; k < 160; ++k) held[k] = in[threadIdx.x + k];
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int k = 0; k < 160; ++k) held[k] = held[k] * 1.01f + held[(k + 7) % 160];
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 160; ++k) sum += held[k];
  out[thread_id()] = sum;
}

// one warp works between barriers, 31 wait
__global__ void barriers(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x / 32 == (i & 31)) {
      for (int k = 0; k < 64; ++k) a = a * 1.01f + 0.5f;
    }
    __syncthreads();
  }
  out[thread_id()] = a;
}

// each load gives the address of the next one
__global__ void pointer_chase(int* out, const int* next, int rounds) {
  int at = thread_id();
  for (int i = 0; i < rounds; ++i) at = next[at];
  out[thread_id()] = at;
}

__global__ void double_precision(double* out, int rounds) {
  double a = threadIdx.x, b = 1.0, c = 2.0, d = 3.0;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01 + 0.5;
    b = b * 1.02 + 0.5;
    c = c * 1.03 + 0.5;
    d = d * 1.04 + 0.5;
  }
  out[thread_id()] = a + b + c + d;
}

__global__ void special_functions(float* out, int rounds) {
  float a = threadIdx.x, b = 1.0f, c = 2.0f, d = 3.0f;
  for (int i = 0; i < rounds; ++i) {
    a = __sinf(a);
    b = __cosf(b);
    c = __sinf(c);
    d = __cosf(d);
  }
  out[thread_id()] = a + b + c + d;
}

// every lane of a warp has its own number of rounds
__global__ void divergence(float* out, int rounds) {
  const int lane = threadIdx.x % 32;
  float a = threadIdx.x;
  for (int i = 0; i < rounds * (lane + 1); ++i) a = a * 1.01f + 0.5f;
  if (lane % 2) {
    for (int i = 0; i < rounds; ++i) a = a * 1.02f + 0.25f;
  } else {
    for (int i = 0; i < rounds; ++i) a = a * 1.03f - 0.25f;
  }
  out[thread_id()] = a;
}

// one warp a scheduler at most, every instruction waits for the one before it
__global__ void dependent_chain(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01f + 0.5f;
    a = a * 1.02f + 0.5f;
    a = a * 1.03f + 0.5f;
    a = a * 1.04f + 0.5f;
  }
  out[thread_id()] = a;
}

// 16,384 instructions in a row, by few warps that are at different places
template <int N>
__device__ __forceinline__ float line(float a, float b) {
  if constexpr (N == 1) {
    return a * 1.01f + b;
  } else {
    return line<N / 2>(line<N - N / 2>(a, b), b);
  }
}
__global__ void long_code(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) a = line<16384>(a, 0.5f + i);
  out[thread_id()] = a;
}

// all blocks read the same 16 MiB again and again: it stays in L2
__global__ void l2_traffic(float4* out, const float4* in, int rounds) {
  const int size = 1 << 20;
  float4 sum = make_float4(0, 0, 0, 0);
  int at = thread_id();
  for (int i = 0; i < rounds; ++i) {
    const float4 value = __ldcg(in + (at & (size - 1)));
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
    at += 97 * 32;
  }
  out[thread_id()] = sum;
}

#define RUN(name, blocks, threads, shared, ...)                              \
  do {                                                                       \
    CHECK(cudaFuncSetAttribute(                                              \
        name, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));         \
    nvtxRangePushA(#name);                                                   \
    name<<<blocks, threads, shared>>>(__VA_ARGS__);                          \
    CHECK(cudaGetLastError());                                               \
    CHECK(cudaDeviceSynchronize());                                          \
    nvtxRangePop();                                                          \
  } while (0)

int main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  const int sms = device.multiProcessorCount;
  const int most = static_cast<int>(device.sharedMemPerBlockOptin);
  float *out = nullptr, *in = nullptr;
  int* next = nullptr;
  CHECK(cudaMalloc(&out, kCount * sizeof(float)));
  CHECK(cudaMalloc(&in, kCount * sizeof(float)));
  CHECK(cudaMalloc(&next, kCount * sizeof(int)));
  CHECK(cudaMemset(in, 0, kCount * sizeof(float)));
  int* host = new int[kCount];
  for (int i = 0; i < kCount; ++i) {
    host[i] = static_cast<int>((1664525LL * i + 1013904223LL) % kCount);
  }
  CHECK(cudaMemcpy(next, host, kCount * sizeof(int), cudaMemcpyHostToDevice));
  delete[] host;
  nvtxRangePushA("iter_0");
  RUN(healthy_fma, sms * 8, 256, 0, out, 2000);
  RUN(healthy_copy, kCount / 4 / 256, 256, 0, reinterpret_cast<float4*>(out),
      reinterpret_cast<const float4*>(in));
  RUN(uncoalesced_load, kCount / 256, 256, 0, out, in);
  RUN(uncoalesced_store, kCount / 256, 256, 0, out, in);
  RUN(bank_conflicts, sms * 2, 1024, 0, out, 500);
  RUN(small_grid, 8, 256, 0, out, 5000);
  RUN(tail_wave, sms + 1, 1024, most, out, 2000);
  RUN(low_occupancy_shared, sms * 4, 32, most / 2 - 1024, out, in, 100);
  RUN(low_occupancy_registers, sms * 4, 128, 0, out, in, 200);
  RUN(barriers, sms, 1024, 0, out, 200);
  RUN(pointer_chase, sms * 4, 256, 0, reinterpret_cast<int*>(out), next, 50);
  RUN(double_precision, sms * 8, 256, 0, reinterpret_cast<double*>(out), 1000);
  RUN(special_functions, sms * 8, 256, 0, out, 500);
  RUN(divergence, sms * 8, 256, 0, out, 60);
  RUN(dependent_chain, sms, 128, 0, out, 1000);
  RUN(long_code, sms * 2, 256, 0, out, 3);
  RUN(l2_traffic, sms * 8, 256, 0, reinterpret_cast<float4*>(out),
      reinterpret_cast<const float4*>(in), 100);
  nvtxRangePop();
  CHECK(cudaDeviceSynchronize());
  std::printf("done\n");
  return 0;
}
