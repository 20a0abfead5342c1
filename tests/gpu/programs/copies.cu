// Copies and fills whose sizes and directions are known, each in a layer with one kernel.
#include <cstdio>
#include <cstdlib>

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

int main() {
  const int count = 1 << 18;  // 1 MiB
  const size_t bytes = count * sizeof(float);
  float *values = nullptr, *other = nullptr, *pinned = nullptr;
  float* pageable = static_cast<float*>(std::calloc(count, sizeof(float)));
  CHECK(cudaMalloc(&values, bytes));
  CHECK(cudaMalloc(&other, bytes));
  CHECK(cudaMallocHost(&pinned, bytes));
  CHECK(cudaMemset(other, 0, bytes));  // outside every iteration
  for (int step = 0; step < 24; ++step) {
    char name[16];
    std::snprintf(name, sizeof name, "iter_%d", step);
    nvtxRangePushA(name);
    nvtxRangePushA("upload");
    CHECK(cudaMemcpy(values, pageable, bytes, cudaMemcpyHostToDevice));
    scale<<<count / 256, 256>>>(values, 0.5f, count);
    nvtxRangePop();
    nvtxRangePushA("clear");
    CHECK(cudaMemsetAsync(other, 0, bytes / 4));
    scale<<<count / 256, 256>>>(values, 0.5f, count);
    nvtxRangePop();
    nvtxRangePushA("turn");
    CHECK(cudaMemcpyAsync(other, values, bytes / 2, cudaMemcpyDeviceToDevice));
    scale<<<count / 256, 256>>>(values, 0.5f, count);
    nvtxRangePop();
    nvtxRangePushA("download");
    scale<<<count / 256, 256>>>(values, 0.5f, count);
    CHECK(cudaMemcpyAsync(pinned, values, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    nvtxRangePop();
    nvtxRangePop();
  }
  std::printf("first %.1f\n", pinned[0]);
  return 0;
}
