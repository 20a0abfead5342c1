// A third ten kernels of which one line takes most of the time, as planted_lines_2.cu has them.

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#include "timed.cuh"

constexpr unsigned kSize = 1u << 24, kMask = kSize - 1;

#ifdef COLD
#define IF_HOT(hot, cold) cold
#else
#define IF_HOT(hot, cold) hot
#endif

__constant__ float g_table[1024];

__device__ unsigned place() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <int kTurns>
__global__ void softmaxed(float* out, float step) {
  float most = -1e30f, sum = 0;
  float value = threadIdx.x * step;
  for (int turn = 0; turn < kTurns; ++turn) {
    value = value * 1.01f + step;
    float larger = fmaxf(most, value);
    IF_HOT(sum = sum * expf(most - larger) + expf(value - larger), sum += larger);  // HOT
    most = larger;
  }
  out[place()] = sum + most;
}

__global__ void bytewise(const unsigned char* bytes, unsigned* out) {
  unsigned first = place() * 517u, sum = 0;
  for (unsigned k = 0; k < 48; ++k) {
    unsigned at = (first + k * 7919u) & kMask;
    sum = sum * 3 + IF_HOT(bytes[at], at);  // HOT
  }
  out[place()] = sum;
}

__global__ void looked_up(float* out) {
  float sum = 0;
  unsigned at = threadIdx.x * 37u;
  for (int turn = 0; turn < 512; ++turn) {
    at += 11u;
    sum += IF_HOT(g_table[at & 1023u], at);  // HOT
  }
  out[place()] = sum;
}

template <typename Value, int kWidth>
__device__ __forceinline__ Value exchange(Value value) {
#pragma unroll
  for (int lane = kWidth / 2; lane > 0; lane /= 2) {
    value += IF_HOT(__shfl_xor_sync(0xffffffffu, value, lane), Value(lane));  // HOT
  }
  return value;
}

__global__ void exchanged(float* out) {
  float value = threadIdx.x;
  for (int turn = 0; turn < 256; ++turn) {
    value = value * 0.03f + 1.0f;
    value = exchange<float, 32>(value);
  }
  out[place()] = value;
}

struct Root {
  __device__ double operator()(double value) const {
    return IF_HOT(sqrt(value) + 1.0 / value, value * 0.5);  // HOT
  }
};

template <class Function>
__device__ double applied(Function function, double value, int often) {
  while (often-- > 0) {
    value = function(value) + 2.0;
  }
  return value;
}

__global__ void rooted(double* out) {
  out[place()] = applied(Root(), 1.0 + threadIdx.x, 100);
}

__global__ void spread(float* out) {
  unsigned hash = place();
  for (int turn = 0; turn < 16; ++turn) {
    hash = (hash ^ (hash >> 15)) * 2246822519u + 374761393u;
    IF_HOT(atomicAdd(&out[hash & kMask], 1.0f), hash += 3u);  // HOT
  }
  if (hash == 12345u) out[0] = 1;
}

struct Particle {
  float position[3], velocity[3], mass, charge;
};

__global__ void weighed(const Particle* particles, float* out) {
  unsigned first = place();
  float sum = 0;
  for (unsigned turn = 0; turn < 8; ++turn) {
    unsigned one = (first * 5u + turn * 262147u) & (kMask >> 3);
    float mass = IF_HOT(particles[one].mass, float(one));  // HOT
    sum = fmaf(mass, 0.5f, sum);
  }
  out[first] = sum;
}

__global__ void transposed(const float* in, float* out, unsigned width, unsigned height) {
  unsigned column = blockIdx.x * 32 + threadIdx.x;
  for (unsigned row = threadIdx.y + blockIdx.y * 32; row < blockIdx.y * 32 + 32; row += blockDim.y) {
    float value = in[row * width + column];
    unsigned to = IF_HOT(column * height + row, row * width + column);
    out[to] = value;  // HOT
  }
}

__global__ void chained(unsigned* out, int turns) {
  __shared__ unsigned next[1024];
  for (unsigned k = threadIdx.x; k < 1024; k += blockDim.x) next[k] = (k * 389u + 7u) & 1023u;
  __syncthreads();
  unsigned at = threadIdx.x;
  for (int turn = 0; turn < turns; ++turn) {
    at = IF_HOT(next[at], (at + 5u) & 1023u);  // HOT
    if (at == 4096u) out[0] = turn;
  }
  out[place()] = at;
}

__global__ void napped(float* out) {
  float value = threadIdx.x;
  for (int turn = 0; turn < 40; ++turn) {
    value = value * 0.5f + turn;
    IF_HOT(__nanosleep(500), value += 1.0f);  // HOT
  }
  out[place()] = value;
}

int main(int count, char** words) {
  const int turns = count > 1 ? std::atoi(words[1]) : 10;
  float *in, *out;
  cudaMalloc(&in, kSize * sizeof(float));
  cudaMalloc(&out, kSize * sizeof(double));
  cudaMemset(in, 0, kSize * sizeof(float));
  timed("softmaxed", turns, [&] { softmaxed<256><<<1056, 256>>>(out, 0.01f); });
  timed("bytewise", turns, [&] { bytewise<<<1056, 256>>>(reinterpret_cast<unsigned char*>(in), reinterpret_cast<unsigned*>(out)); });
  timed("looked_up", turns, [&] { looked_up<<<528, 256>>>(out); });
  timed("exchanged", turns, [&] { exchanged<<<1056, 256>>>(out); });
  timed("rooted", turns, [&] { rooted<<<1056, 256>>>(reinterpret_cast<double*>(out)); });
  timed("spread", turns, [&] { spread<<<4096, 256>>>(out); });
  timed("weighed", turns, [&] { weighed<<<4096, 256>>>(reinterpret_cast<Particle*>(in), out); });
  timed("transposed", turns, [&] { transposed<<<dim3(128, 128), dim3(32, 8)>>>(in, out, 4096, 4096); });
  timed("chained", turns, [&] { chained<<<528, 256>>>(reinterpret_cast<unsigned*>(out), 2000); });
  timed("napped", turns, [&] { napped<<<528, 256>>>(out); });
  cudaError_t ended = cudaDeviceSynchronize();
  std::fprintf(stderr, "%s\n", cudaGetErrorString(ended));
  return ended != cudaSuccess;
}
