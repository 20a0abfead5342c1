// Ten more kernels of which one line takes most of the time: the one that ends in "// HOT".
// Compile with -lineinfo. With -DCOLD that line does next to nothing, so that the times of both
// programs prove it. Arguments: how often each is launched. Prints a kernel and microseconds a line.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#include "timed.cuh"

constexpr unsigned kSize = 1u << 24, kMask = kSize - 1;

#ifdef COLD
constexpr bool kHot = false;
#else
constexpr bool kHot = true;
#endif

template <typename Value>
__global__ void gathered(const int* index, const Value* values, Value* out) {
  unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  Value sum = 0;
#pragma unroll 4
  for (unsigned turn = 0; turn < 16; ++turn) {
    int from = index[(first + turn * 262144u) & kMask];
    if (kHot)
      sum += values[from];  // HOT
    else
      sum += from;
  }
  out[first] = sum;
}

__global__ void binned(int* out, unsigned seed) {
  __shared__ int bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  __syncthreads();
  unsigned state = seed + threadIdx.x;
  for (int turn = 0; turn < 256; ++turn) {
    state = state * 1664525u + 1013904223u;
    if (kHot)
      atomicAdd(&bins[state >> 31], 1);  // HOT
    else
      bins[63] = state;
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = bins[threadIdx.x & 63];
}

struct Matrix {
  const float* data;
  unsigned width;
  __device__ float at(unsigned row, unsigned column) const {
    return data[(row * width + column) & kMask];  // HOT
  }
};

__global__ void multiplied(Matrix matrix, const float* vector, float* out) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (unsigned column = 0; column < 64; ++column) {
    float factor = vector[column];
    sum = fmaf(kHot ? matrix.at(row, column) : factor, factor, sum);
  }
  out[row] = sum;
}

struct Growth {
  double rate;
  __device__ __noinline__ double operator()(double value) const {
    return kHot ? pow(value, rate) : value * rate;  // HOT
  }
};

template <typename Step>
__global__ void integrated(double* out, Step step, int turns) {
  double value = 1.0 + threadIdx.x * 1e-3;
  for (int turn = 0; turn < turns; ++turn) {
    value = step(value);
    value = value * 0.5 + 0.6;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

template <int kPitch>
__global__ void tiled(float* out, const float* in) {
  __shared__ float tile[32 * kPitch];
  float value = in[blockIdx.x * blockDim.x + threadIdx.x];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int turn = 0; turn < 1024; ++turn) {
    value += 1.0f;
    if (kHot)
      tile[lane * kPitch + ((warp + turn) & (kPitch - 1))] = value;  // HOT
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x] + value;
}

__global__ void ticketed(unsigned* counter, unsigned* out) {
  unsigned ticket = threadIdx.x;
  do {
    if (kHot)
      ticket += atomicAdd(counter, ticket | 1u);  // HOT
    else
      ticket += 7;
  } while (ticket % 16 != 0 && ticket > 1u << 31);
  out[blockIdx.x * blockDim.x + threadIdx.x] = ticket;
}

template <typename Payload>
struct Node {
  unsigned next;
  Payload payload;
};

__global__ void walked(const Node<float>* nodes, float* out, int steps) {
  unsigned one = (blockIdx.x * blockDim.x + threadIdx.x) * 64u & (kMask >> 1);
  while (steps-- > 0) {
    if (kHot)
      one = nodes[one].next;  // HOT
    else
      one = one * 5 + 1;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = nodes[one & (kMask >> 1)].payload;
}

__global__ void met(float* out, int turns) {
  float value = threadIdx.x;
  for (int turn = 0; turn < turns; ++turn) {
    value = value * 0.5f + turn;
    if (kHot)
      __syncthreads();  // HOT
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void divided(unsigned long long* out, unsigned long long modulus) {
  unsigned long long hash = threadIdx.x + 1234567890123ull;
  for (int turn = 0; turn < 64; ++turn) {
    if (kHot)
      hash = (hash * 6364136223846793005ull + turn) % modulus;  // HOT
    else
      hash ^= modulus + turn;
    hash |= 1ull << 40;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = hash;
}

__global__ void scattered(float* out) {
  unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  float value = first * 0.25f;
  for (unsigned turn = 0; turn < 32; ++turn) {
    value = value * 1.5f + 1.0f;
    if (kHot || turn == 31)
      out[(first * 97u + turn * 524309u) & kMask] = value;  // HOT
  }
}

int main(int count, char** words) {
  const int turns = count > 1 ? std::atoi(words[1]) : 10;
  float *in, *out;
  int* index;
  void* nodes;
  cudaMalloc(&in, kSize * sizeof(float));
  cudaMalloc(&out, kSize * sizeof(double));
  cudaMalloc(&index, kSize * sizeof(int));
  cudaMalloc(&nodes, kSize / 2 * sizeof(Node<float>));
  cudaMemset(in, 0, kSize * sizeof(float));
  auto* host = static_cast<unsigned*>(std::malloc(kSize * sizeof(unsigned)));
  for (unsigned i = 0; i < kSize; ++i) host[i] = (i * 2654435761u + 40503u) & kMask;
  cudaMemcpy(index, host, kSize * sizeof(unsigned), cudaMemcpyHostToDevice);
  for (unsigned i = 0; i < kSize / 2; ++i) host[2 * i] = (i * 1664525u + 1013904223u) & (kMask >> 1);
  cudaMemcpy(nodes, host, kSize * sizeof(unsigned), cudaMemcpyHostToDevice);
  auto* wide = reinterpret_cast<double*>(out);
  timed("gathered", turns, [&] { gathered<<<4096, 256>>>(index, in, out); });
  timed("binned", turns, [&] { binned<<<1024, 256>>>(reinterpret_cast<int*>(out), 7); });
  timed("multiplied", turns, [&] { multiplied<<<1024, 256>>>(Matrix{in, 4099}, in, out); });
  timed("integrated", turns, [&] { integrated<<<512, 256>>>(wide, Growth{1.1}, 32); });
  timed("tiled", turns, [&] { tiled<32><<<512, 256>>>(out, in); });
  timed("ticketed", turns, [&] { ticketed<<<4096, 256>>>(reinterpret_cast<unsigned*>(in), reinterpret_cast<unsigned*>(out)); });
  timed("walked", turns, [&] { walked<<<512, 256>>>(static_cast<Node<float>*>(nodes), out, 64); });
  timed("met", turns, [&] { met<<<264, 1024>>>(out, 2000); });
  timed("divided", turns, [&] { divided<<<1024, 256>>>(reinterpret_cast<unsigned long long*>(out), 1000003ull << 20); });
  timed("scattered", turns, [&] { scattered<<<4096, 256>>>(out); });
  cudaError_t ended = cudaDeviceSynchronize();
  std::fprintf(stderr, "%s\n", cudaGetErrorString(ended));
  return ended != cudaSuccess;
}
