// Kernels with a habit each; habits.ptx is what nvcc 13.0.88 makes of them:
// nvcc -ptx -O3 -arch=compute_90 -lineinfo habits.cu
__constant__ float table[256];

struct Record { float fields[12]; };

extern "C" __global__ void records(const Record* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i].fields[3] + from[i].fields[4] + from[i].fields[5] + from[i].fields[6];
}
extern "C" __global__ void rows(const float* matrix, float* sums, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < width; ++k) sum += matrix[i * 64 + k];
  sums[i] = sum;
}
extern "C" __global__ void gathers(const int* index, const float* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[index[i]];
}
extern "C" __global__ void scatters(const float* from, float* to) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1000) to[i * 64] = from[i];
}
extern "C" __global__ void banks(const float* from, float* to) {
  __shared__ float tile[1024];
  tile[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = tile[(threadIdx.x & 31) * 32] + tile[threadIdx.x * 3];
}
extern "C" __global__ void bins(const unsigned* from, unsigned* to) {
  __shared__ unsigned counts[64];
  atomicAdd(&counts[from[threadIdx.x] & 63], 1u);
  __syncthreads();
  atomicAdd(to + (threadIdx.x & 7), counts[threadIdx.x & 63]);
}
extern "C" __global__ void swaps(float* to, float value) {
  int* word = reinterpret_cast<int*>(to);
  int old = *word, seen;
  do {
    seen = old;
    old = atomicCAS(word, seen, __float_as_int(fmaxf(value, __int_as_float(seen))));
  } while (seen != old);
}
extern "C" __global__ void doubles(const float* from, const double* wide, float* to) {
  const float x = from[threadIdx.x];
  const double y = 1.0 / (x * 0.1 + wide[threadIdx.x]) + static_cast<double>(threadIdx.x);
  to[threadIdx.x] = y > 0.5 ? static_cast<float>(sqrt(y)) : 0.f;
}
extern "C" __global__ void functions(const float* from, float* to) {
  const float x = from[threadIdx.x];
  to[threadIdx.x] = x / (1.f + __expf(-x)) + static_cast<float>(static_cast<int>(x * 3.f));
}
extern "C" __global__ void divides(const float* from, float* to, unsigned width, long long height) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i / width + i % width + static_cast<long long>(i) / height];
}
extern "C" __global__ void constants(const int* index, float* to) {
  to[threadIdx.x] = table[index[threadIdx.x]];
}
extern "C" __global__ void __launch_bounds__(256, 8) bounded(float* to, int turns) {
  float kept[16];
#pragma unroll
  for (int k = 0; k < 16; ++k) kept[k] = to[k * 256 + threadIdx.x];
  for (int turn = 0; turn < turns; ++turn) kept[turn & 15] += 1.f;
#pragma unroll
  for (int k = 0; k < 16; ++k) to[k * 256 + threadIdx.x] = kept[k];
}
extern "C" __global__ void fences(volatile int* to) {
  to[threadIdx.x] = 1;
  __threadfence();
  to[threadIdx.x] = 2;
}
extern "C" __global__ void copies(const float* from, float* to, int away) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[(i + away) * 64] = from[i * 64];
}
extern "C" __global__ void adds(const float* from, float* to) { to[threadIdx.x] += from[threadIdx.x]; }
