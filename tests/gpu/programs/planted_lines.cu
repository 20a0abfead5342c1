// Kernels of which one line takes nearly all the time: the one that ends in "// HOT".
// Compile with -lineinfo. Arguments: how often each is launched.

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr int kSize = 1 << 24;

__global__ void strided(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < 16; ++k) {
    long at = (long(i) * 4099 + k * 1048583L) % n;
    sum += in[at];  // HOT
  }
  out[i % n] = sum;
}

__global__ void chased(const int* next, int* out, int n) {
  int at = (blockIdx.x * blockDim.x + threadIdx.x) % n;
  for (int k = 0; k < 64; ++k)
    at = next[at];  // HOT
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

__global__ void counted(int* bins, const float* in, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int bin = int(in[i]) & 1;
    atomicAdd(&bins[bin], 1);  // HOT
  }
}

__global__ void divided(double* out, double seed) {
  double value = seed + threadIdx.x;
  for (int k = 0; k < 400; ++k) {
    value += 0.5;
    value = seed / value;  // HOT
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void banked(float* out) {
  __shared__ float tile[32 * 32];
  for (int k = threadIdx.x; k < 1024; k += blockDim.x) tile[k] = k;
  __syncthreads();
  float sum = 0;
  int at = (threadIdx.x % 32) * 32;
  for (int k = 0; k < 2000; ++k) {
    sum += tile[(at + k) & 1023];  // HOT
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void alone(float* out, float seed) {
  float value = seed;
  __shared__ float shared;
  for (int k = 0; k < 4000; ++k) {
    if (threadIdx.x == 0) value = sqrtf(value + k) * 0.5f;
    __syncthreads();  // HOT
  }
  if (threadIdx.x == 0) shared = value;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared;
}

__global__ void stored(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = i * 0.5f;
  for (int k = 0; k < 32; ++k) {
    long at = (long(i) * 33 + k * 65537L) % n;
    out[at] = value;  // HOT
  }
}

__device__ __forceinline__ float waves(float x) {
  return sinf(x * 1.0e6f);  // HOT
}

__global__ void inlined(float* out, float seed) {
  float value = seed + threadIdx.x;
  for (int k = 0; k < 200; ++k) value = waves(value) + 1.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void fenced(volatile int* flags, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 64; ++k) {
    flags[(i + k * 97) % n] = k;
    __threadfence();  // HOT
  }
}

__global__ void spilled(float* out, int turns) {
  float kept[96];
  for (int k = 0; k < 96; ++k) kept[k] = k + threadIdx.x;
  for (int t = 0; t < turns; ++t) {
    int at = (t * 37 + threadIdx.x) % 96;
    kept[at] = kept[(at + 31) % 96] + 1.0f;  // HOT
  }
  float sum = 0;
  for (int k = 0; k < 96; ++k) sum += kept[k];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main(int count, char** words) {
  int turns = count > 1 ? std::atoi(words[1]) : 20;
  float *in, *out;
  int *next, *bins;
  double* wide;
  cudaMalloc(&in, kSize * sizeof(float));
  cudaMalloc(&out, kSize * sizeof(float));
  cudaMalloc(&next, kSize * sizeof(int));
  cudaMalloc(&bins, kSize * sizeof(int));
  cudaMalloc(&wide, kSize * sizeof(double));
  cudaMemset(in, 0, kSize * sizeof(float));
  int* host = static_cast<int*>(std::malloc(kSize * sizeof(int)));
  for (int i = 0; i < kSize; ++i) host[i] = int((long(i) * 1103515245L + 12345L) % kSize);
  cudaMemcpy(next, host, kSize * sizeof(int), cudaMemcpyHostToDevice);
  for (int turn = 0; turn < turns; ++turn) {
    strided<<<2048, 256>>>(in, out, kSize);
    chased<<<1024, 256>>>(next, bins, kSize);
    counted<<<512, 256>>>(bins, in, kSize);
    divided<<<2048, 256>>>(wide, 3.0);
    banked<<<1024, 256>>>(out);
    alone<<<512, 256>>>(out, 2.0f);
    stored<<<2048, 256>>>(out, kSize);
    inlined<<<2048, 256>>>(out, 3.0f);
    fenced<<<1024, 256>>>(bins, kSize);
    spilled<<<1024, 256>>>(out, 2000);
  }
  cudaError_t ended = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(ended));
  return ended != cudaSuccess;
}
