// Kernels whose results depend on what ran before them, with known limits: in two threads, on a
// stream each, with copies between. Prints a checksum.
#include <cuda_runtime.h>

#include <cstdio>
#include <thread>
#include <vector>

__global__ void grow(float* x, int n, float by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 1.5f + by;
}

__global__ void count(int* words) { atomicAdd(words, 1); }

__global__ void multiply(float* out, int turns) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < turns; ++i) {
    a = a * 1.0001f + 0.5f;
    b = b * 1.0001f + 0.5f;
    c = c * 1.0001f + 0.5f;
    d = d * 1.0001f + 0.5f;
  }
  if (a + b + c + d == 12345.f) out[0] = a;
}

__global__ void stream(float4* out, const float4* in, size_t n) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i];
}

static void work(int id, double* sum) {
  constexpr int kCount = 1 << 18;
  cudaStream_t queue;
  cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);
  float* x;
  int* words;
  cudaMalloc(&x, kCount * sizeof(float));
  cudaMalloc(&words, sizeof(int));
  cudaMemsetAsync(words, 0, sizeof(int), queue);
  std::vector<float> host(kCount, 0.01f * id);
  for (int turn = 0; turn < 20; ++turn) {
    cudaMemcpyAsync(x, host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, queue);
    for (int i = 0; i < 5; ++i) grow<<<kCount / 256 + i, 256, 0, queue>>>(x, kCount, i);
    count<<<64, 32 + 32 * (turn % 3), 0, queue>>>(words);
    cudaMemcpyAsync(host.data(), x, kCount * sizeof(float), cudaMemcpyDeviceToHost, queue);
    cudaStreamSynchronize(queue);
    for (float& value : host) value = value > 100 ? value - 100 : value;
  }
  int counted = 0;
  cudaMemcpy(&counted, words, sizeof(int), cudaMemcpyDeviceToHost);
  for (float value : host) *sum += value;
  *sum += counted;
}

int main() {
  constexpr size_t kBytes = size_t{1} << 28;
  float4 *in, *out;
  cudaMalloc(&in, kBytes);
  cudaMalloc(&out, kBytes);
  cudaMemset(in, 1, kBytes);
  double sums[2] = {0, 0};
  std::thread one(work, 1, &sums[0]), other(work, 2, &sums[1]);
  one.join();
  other.join();
  multiply<<<1056, 256>>>(reinterpret_cast<float*>(out), 10000);
  stream<<<1056, 256>>>(out, in, kBytes / sizeof(float4));
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("checksum %.17g %.17g %s\n", sums[0], sums[1], cudaGetErrorString(error));
}
