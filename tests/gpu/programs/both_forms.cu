// Kernels that make the metrics' spellings differ from 0, so that two spellings can be compared:
// texture fetches, FP64, special functions, tensor cores, asynchronous copies (scattered ones,
// beside coalesced loads), atomics and reductions, shared memory with conflicts, local memory.
//
// Build: nvcc -O2 -arch=sm_90 -o both_forms both_forms.cu
// Recorded on an H200 (ncu 2025.3.1) as tests/data/ncu/both_forms.csv.xz, cut to the columns that
// the catalogue reads: ncu --set full --metrics <every spelling of catalogue.csv> both_forms
#include <cstdio>

#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <mma.h>

constexpr int kBlocks = 528, kThreads = 256, kCount = kBlocks * kThreads;

__device__ int thread_id() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void texture_fetches(float* out, cudaTextureObject_t texture, int rounds) {
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) {
    sum += tex1Dfetch<float>(texture, (thread_id() * 7 + i * 1031) % kCount);
  }
  out[thread_id()] = sum;
}

__global__ void double_fma(double* out, int rounds) {
  double a = threadIdx.x, b = 1.0;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01 + 0.5;
    b = b * 1.02 + 0.5;
  }
  out[thread_id()] = a + b;
}

__global__ void special_functions(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) a = __sinf(a) + rsqrtf(a * a + 1.0f);
  out[thread_id()] = a;
}

__global__ void half_fma(__half2* out, int rounds) {
  __half2 a = __float2half2_rn(threadIdx.x), b = __float2half2_rn(0.5f);
  for (int i = 0; i < rounds; ++i) a = __hfma2(a, b, b);
  out[thread_id()] = a;
}

__global__ void single_mix(float* out, int rounds) {
  float a = threadIdx.x, b = 1.0f, c = 2.0f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 1.01f + 0.5f;
    b = __fadd_rn(b, a);
    c = __fmul_rn(c, b);
  }
  out[thread_id()] = a + b + c;
}

__global__ void tensor_products(float* out, const __half* in, int rounds) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> a;
  fragment<matrix_b, 16, 16, 16, __half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> c;
  fill_fragment(c, 0.0f);
  load_matrix_sync(a, in, 16);
  load_matrix_sync(b, in + 256, 16);
  for (int i = 0; i < rounds; ++i) mma_sync(c, a, b, c);
  store_matrix_sync(out + thread_id() / 32 * 256, c, 16, mem_row_major);
}

// coalesced copies of 4 bytes through L1
__global__ void copies_only(float* out, const float* in, int rounds) {
  __shared__ float tile[kThreads];
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[(thread_id() + i * 8192) % kCount], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[(threadIdx.x + 1) % kThreads];
    __syncthreads();
  }
  out[thread_id()] = sum;
}

// scattered copies of 4 bytes and one coalesced load a round
__global__ void scattered_copies_and_loads(float* out, const float* in, int rounds) {
  __shared__ float tile[kThreads];
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[(thread_id() * 8LL + i) % kCount], 4);
    __pipeline_commit();
    sum += __ldcg(&in[(thread_id() + i * 8192) % kCount]);
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[(threadIdx.x + 1) % kThreads];
    __syncthreads();
  }
  out[thread_id()] = sum;
}

// copies of 16 bytes past L1
__global__ void wide_copies(float4* out, const float4* in, int rounds) {
  __shared__ float4 tile[kThreads];
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) {
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[(thread_id() + i * 8192) % (kCount / 4)], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    sum += tile[(threadIdx.x + 1) % kThreads].x;
    __syncthreads();
  }
  out[thread_id() / 4].x = sum;
}

__global__ void scattered_loads(float* out, const float* in, int rounds) {
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) sum += in[(thread_id() * 8LL + i) % kCount];
  out[thread_id()] = sum;
}

__global__ void atomics(int* out, int* total) {
  const int old = atomicAdd(&out[thread_id() % 4096], 1);
  if (old >= 0) atomicAdd(total, 1);
}

__global__ void shared_conflicts(float* out, int rounds) {
  __shared__ float tile[32 * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 1024; i += kThreads) tile[i] = i;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) sum += tile[(lane * 32 + ((warp + i) & 31)) & 1023];
  out[thread_id()] = sum;
}

__global__ void local_arrays(float* out, const float* in, int rounds) {
  float many[64];
  for (int i = 0; i < 64; ++i) many[i] = in[(thread_id() + i) % kCount];
  float sum = 0.0f;
  for (int i = 0; i < rounds; ++i) sum += many[(threadIdx.x * 13 + i * 7) & 63];
  out[thread_id()] = sum;
}

__global__ void divergent(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds + (int)(threadIdx.x % 32) * 4; ++i) a = a * 1.01f + 0.5f;
  out[thread_id()] = a;
}

// 4 blocks: most multiprocessors have nothing to do
__global__ void few_blocks(float* out, int rounds) {
  float a = threadIdx.x;
  for (int i = 0; i < rounds; ++i) a = a * 1.01f + 0.5f;
  out[thread_id()] = a;
}

int main() {
  void *in, *out;
  cudaMalloc(&in, kCount * 16LL);
  cudaMalloc(&out, kCount * 16LL);
  cudaMemset(in, 0, kCount * 16LL);
  cudaMemset(out, 0, kCount * 16LL);
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = in;
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  resource.res.linear.sizeInBytes = kCount * 4LL;
  cudaTextureDesc how = {};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  cudaCreateTextureObject(&texture, &resource, &how, nullptr);
  texture_fetches<<<kBlocks, kThreads>>>((float*)out, texture, 256);
  double_fma<<<kBlocks, kThreads>>>((double*)out, 512);
  special_functions<<<kBlocks, kThreads>>>((float*)out, 512);
  half_fma<<<kBlocks, kThreads>>>((__half2*)out, 512);
  single_mix<<<kBlocks, kThreads>>>((float*)out, 512);
  tensor_products<<<kBlocks / 8, kThreads>>>((float*)out, (const __half*)in, 512);
  copies_only<<<kBlocks, kThreads>>>((float*)out, (const float*)in, 64);
  scattered_copies_and_loads<<<kBlocks, kThreads>>>((float*)out, (const float*)in, 64);
  wide_copies<<<kBlocks, kThreads>>>((float4*)out, (const float4*)in, 64);
  scattered_loads<<<kBlocks, kThreads>>>((float*)out, (const float*)in, 64);
  atomics<<<kBlocks, kThreads>>>((int*)out, (int*)in);
  shared_conflicts<<<kBlocks, kThreads>>>((float*)out, 256);
  local_arrays<<<kBlocks, kThreads>>>((float*)out, (const float*)in, 64);
  divergent<<<kBlocks, kThreads>>>((float*)out, 256);
  few_blocks<<<4, kThreads>>>((float*)out, 512);
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(status));
  return status != cudaSuccess;
}
