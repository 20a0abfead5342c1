// A CUDA C++ program that knows nothing of perfml: two steps of scale, add and a reduction,
// with the nested NVTX ranges such a program has anyway.
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

#define CHECK(call)                                                          \
  do {                                                                       \
    cudaError_t status = (call);                                             \
    if (status != cudaSuccess) {                                             \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));   \
      return 1;                                                              \
    }                                                                        \
  } while (0)

__global__ void scale(float* values, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

__global__ void add(float* sum, const float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] += values[i];
}

template <int kThreads>
__global__ void reduce(const float* values, float* total, int count) {
  __shared__ float partial[kThreads];
  float mine = 0.0f;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    mine += values[i];
  }
  partial[threadIdx.x] = mine;
  __syncthreads();
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, partial[0]);
}

int main() {
  const int count = 1 << 20;
  float *values = nullptr, *sum = nullptr, *total = nullptr;
  CHECK(cudaMalloc(&values, count * sizeof(float)));
  CHECK(cudaMalloc(&sum, count * sizeof(float)));
  CHECK(cudaMalloc(&total, sizeof(float)));
  CHECK(cudaMemset(values, 0x3f, count * sizeof(float)));
  CHECK(cudaMemset(sum, 0, count * sizeof(float)));
  CHECK(cudaMemset(total, 0, sizeof(float)));
  scale<<<count / 256, 256>>>(values, 1.0f, count);  // outside every range
  for (int step = 0; step < 2; ++step) {
    char name[16];
    std::snprintf(name, sizeof name, "step_%d", step);
    nvtxRangePushA(name);
    nvtxRangePushA("update");
    nvtxRangePushA("scale");
    scale<<<count / 256, 256>>>(values, 0.5f, count);
    nvtxRangePop();
    add<<<count / 256, 256>>>(sum, values, count);
    nvtxRangePop();
    nvtxRangePushA("reduce");
    reduce<256><<<264, 256>>>(sum, total, count);
    nvtxRangePop();
    nvtxRangePop();
  }
  float result = 0.0f;
  CHECK(cudaMemcpy(&result, total, sizeof result, cudaMemcpyDeviceToHost));
  CHECK(cudaDeviceSynchronize());
  std::printf("total %.1f\n", result);
  return 0;
}
