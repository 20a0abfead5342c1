// A program for the sweep benchmark: STEPS steps of three kernels whose work SIZE scales, with the
// NVTX ranges that such a program has anyway. With LOOPS a step is one kernel that does LOOPS
// thousand multiplications a thread: 16 cycles of each multiprocessor an iteration at SIZE 2, which
// is 8 us a thousand at 1.98 GHz by the issue rate.
// Usage: sweep_program STEPS SIZE [LOOPS]
#include <cstdio>
#include <cstdlib>

#include <nvtx3/nvToolsExt.h>

#define CHECK(call)                                                        \
  do {                                                                     \
    cudaError_t status = (call);                                           \
    if (status != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status)); \
      return 1;                                                            \
    }                                                                      \
  } while (0)

__global__ void stream(float* to, const float* from, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i] * 0.5f + 1.0f;
}

__global__ void compute(float* values, int count, int loops) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float x = values[i];
  for (int k = 0; k < loops; ++k) x = fmaf(x, 0.999f, 0.001f);
  values[i] = x;
}

__global__ void transpose(float* to, const float* from, int side) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  if (x < side && y < side) tile[threadIdx.y][threadIdx.x] = from[y * side + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  if (x < side && y < side) to[y * side + x] = tile[threadIdx.x][threadIdx.y];
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 4;
  const int side = 256 * (argc > 2 ? std::atoi(argv[2]) : 1);
  const int loops = argc > 3 ? 1000 * std::atoi(argv[3]) : 0;
  const int count = side * side;
  float *one = nullptr, *two = nullptr;
  CHECK(cudaMalloc(&one, count * sizeof(float)));
  CHECK(cudaMalloc(&two, count * sizeof(float)));
  CHECK(cudaMemset(one, 0, count * sizeof(float)));
  const dim3 grid(side / 32, side / 32), block(32, 32);
  for (int step = 0; step < steps; ++step) {
    char name[16];
    std::snprintf(name, sizeof name, "step_%d", step);
    nvtxRangePushA(name);
    if (loops == 0) {
      nvtxRangePushA("stream");
      stream<<<count / 256, 256>>>(two, one, count);
      nvtxRangePop();
    }
    nvtxRangePushA("compute");
    compute<<<count / 256, 256>>>(two, count, loops > 0 ? loops : 512);
    nvtxRangePop();
    if (loops == 0) {
      nvtxRangePushA("transpose");
      transpose<<<grid, block>>>(one, two, side);
      nvtxRangePop();
    }
    nvtxRangePop();
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
