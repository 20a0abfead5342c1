// Launches that are hard to repeat: one with a counter that a memset clears, one whose loop ends by
// its data, one of a microsecond, and one whose input just fits into L2.
#include <cstdio>
#include <vector>

// Persistent blocks take tiles by a counter; where it was not cleared, nothing is left to do.
__global__ void tiles(const float* from, float* to, int* next, int count) {
  __shared__ int tile;
  for (;;) {
    if (threadIdx.x == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    const int mine = tile;
    __syncthreads();
    if (mine >= count) return;
    float sum = 0;
    for (int i = 0; i < 64; ++i) sum += from[(size_t(mine) * 64 + i) * blockDim.x + threadIdx.x];
    to[size_t(mine) * blockDim.x + threadIdx.x] = sum;
  }
}

// Newton's iteration until nothing changes: with cheaper functions it takes other turns.
__global__ void converges(const float* from, float* to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float wanted = from[i];
  float x = wanted, before = 0;
  while (fabsf(x - before) > 1e-5f * x) {
    before = x;
    x = x - (expf(x) - wanted) / expf(x);
  }
  to[i] = x;
}

__global__ void tiny(float* to) { to[threadIdx.x] += 1; }

__global__ void fits(const float4* from, float* to, size_t count) {
  float sum = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const float4 four = from[i];
    sum += four.x + four.y + four.z + four.w;
  }
  to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
  constexpr int kTiles = 4096, kThreads = 256, kValues = 1 << 22;
  constexpr size_t kFits = (size_t{40} << 20) / sizeof(float4);
  const size_t size = size_t{kTiles} * 64 * kThreads;
  float *from = nullptr, *to = nullptr, *values = nullptr;
  int* next = nullptr;
  cudaMalloc(&from, size * sizeof(float));
  cudaMalloc(&to, sizeof(float) * size_t{kTiles} * kThreads + (64 << 20));
  cudaMalloc(&values, kValues * sizeof(float));
  cudaMalloc(&next, 256);
  cudaMemset(from, 0, size * sizeof(float));
  std::vector<float> host(kValues);
  for (int i = 0; i < kValues; ++i) host[i] = 2 + static_cast<float>(i % 1000) / 50;
  cudaMemcpy(values, host.data(), kValues * sizeof(float), cudaMemcpyHostToDevice);
  for (int turn = 0; turn < 5; ++turn) {
    cudaMemsetAsync(next, 0, sizeof(int));
    tiles<<<264, kThreads>>>(from, to, next, kTiles);
    converges<<<(kValues + 255) / 256, 256>>>(values, to, kValues);
    tiny<<<1, 32>>>(to);
    for (int again = 0; again < 3; ++again)
      fits<<<264, 512>>>(reinterpret_cast<const float4*>(from), to, kFits);
  }
  float word = 0;
  cudaMemcpy(&word, to, sizeof word, cudaMemcpyDeviceToHost);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s, word %.6f\n", cudaGetErrorString(error), word);
  return error != cudaSuccess || cudaDeviceReset() != cudaSuccess;
}
