// Kernels with one bad habit each, and beside them the same work without it; prints a checksum.
#include <cstdio>

constexpr int kCount = 1 << 22, kFields = 8, kBins = 64, kTurns = 24;

__global__ void strided(const float* records, float* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = records[i * kFields] + records[i * kFields + 1];
}

__global__ void strided_repaired(const float* columns, float* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  sums[i] = columns[i] + columns[i + kCount];
}

__global__ void doubles(const float* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = from[i];
  for (int turn = 0; turn < kTurns; ++turn) value = value * 1.0001 + 0.1;
  to[i] = value;
}

__global__ void doubles_repaired(const float* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = from[i];
  for (int turn = 0; turn < kTurns; ++turn) value = value * 1.0001f + 0.1f;
  to[i] = value;
}

__global__ void columns(const float* matrix, float* turned, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  turned[x * width + y] = matrix[y * width + x];
}

__global__ void columns_repaired(const float* matrix, float* turned, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  turned[y * width + x] = matrix[y * width + x];
}

__global__ void crowd(const float* from, int* bins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(bins + static_cast<int>(from[i]) % kBins, 1);
}

int main() {
  float *in = nullptr, *out = nullptr;
  int* bins = nullptr;
  cudaMalloc(&in, sizeof(float) * kCount * kFields);
  cudaMalloc(&out, sizeof(float) * kCount);
  cudaMalloc(&bins, sizeof(int) * kBins);
  cudaMemset(in, 1, sizeof(float) * kCount * kFields);
  cudaMemset(bins, 0, sizeof(int) * kBins);
  const dim3 square(kCount / 2048 / 256, 2048);
  strided<<<kCount / 256, 256>>>(in, out);
  strided_repaired<<<kCount / 256, 256>>>(in, out);
  doubles<<<kCount / 256, 256>>>(in, out);
  doubles_repaired<<<kCount / 256, 256>>>(in, out);
  columns<<<square, 256>>>(in, out, 2048);
  columns_repaired<<<square, 256>>>(in, out, 2048);
  crowd<<<kCount / 256, 256>>>(in, bins);
  int first = 0;
  float last = 0;
  cudaMemcpy(&first, bins, sizeof first, cudaMemcpyDeviceToHost);
  cudaMemcpy(&last, out + kCount - 1, sizeof last, cudaMemcpyDeviceToHost);
  std::printf("checksum %d %.9g\n", first, last);
  return cudaDeviceSynchronize();
}
