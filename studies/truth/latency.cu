// How many cycles a load takes until it has its value, where nothing else is under way.
//
// One thread follows pointers, one a line of 128 bytes, in an order drawn at random. Tables of
// several sizes lie in shared memory, L1, L2 or DRAM. A row of the output is what was measured.
//
//   nvcc -std=c++17 -O3 -arch=native -o latency latency.cu && ./latency > latency.csv
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#define CHECK(call)                                                          \
  do {                                                                       \
    const cudaError_t error = (call);                                        \
    if (error != cudaSuccess) {                                              \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));         \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

constexpr int kLine = 128, kSteps = 4096, kRuns = 9;

// A pointer stands at the start of every line; .ca may be kept in L1, .cg never is.
template <bool InL1>
__device__ __forceinline__ uint64_t follow(uint64_t at) {
  uint64_t next;
  if (InL1) {
    asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
  } else {
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
  }
  return next;
}

template <bool InL1>
__global__ void chase(uint64_t start, int warm, int steps, long long* cycles, uint64_t* end) {
  uint64_t at = start;
  for (int i = 0; i < warm; ++i) at = follow<InL1>(at);
  const long long began = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) at = follow<InL1>(at);
  *cycles = clock64() - began;
  *end = at;
}

__global__ void chase_shared(const unsigned* next, int count, int steps, long long* cycles,
                             uint64_t* end) {
  __shared__ unsigned table[1024];
  const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(table));
  for (int i = 0; i < count; ++i) table[i] = first + 4 * next[i];
  unsigned at = first;
  const long long began = clock64();
#pragma unroll 16
  for (int i = 0; i < steps; ++i) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(at) : "r"(at) : "memory");
  }
  *cycles = clock64() - began;
  *end = at;
}

// Brings a table to L2, as far as it fits.
__global__ void touch(const uint64_t* table, size_t lines, uint64_t* end) {
  uint64_t sum = 0;
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < lines; i += threads) {
    sum += follow<false>(reinterpret_cast<uint64_t>(table + i * (kLine / 8)));
  }
  if (sum == 1) *end = sum;
}

// One cycle through all places, in random order.
static std::vector<unsigned> cycle(size_t count, std::mt19937_64& random) {
  std::vector<unsigned> order(count), next(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), random);
  for (size_t i = 0; i < count; ++i) next[order[i]] = order[(i + 1) % count];
  return next;
}

static void print(const char* memory, size_t bytes, std::vector<double> cycles) {
  std::sort(cycles.begin(), cycles.end());
  printf("%s,%zu,%d,%.2f,%.2f,%.2f\n", memory, bytes, kSteps, cycles[cycles.size() / 2],
         cycles.front(), cycles.back());
  fflush(stdout);
}

int main() {
  std::mt19937_64 random(1);
  long long* cycles;
  uint64_t *end, *table, *other;
  const size_t largest = size_t{512} << 20;
  CHECK(cudaMallocManaged(&cycles, sizeof *cycles));
  CHECK(cudaMalloc(&end, sizeof *end));
  CHECK(cudaMalloc(&table, largest));
  CHECK(cudaMalloc(&other, largest / 2));
  printf("memory,bytes,loads,cycles,least,most\n");
  {
    const std::vector<unsigned> next = cycle(1024, random);
    CHECK(cudaMemcpy(table, next.data(), next.size() * 4, cudaMemcpyHostToDevice));
    std::vector<double> found;
    for (int run = 0; run < kRuns; ++run) {
      chase_shared<<<1, 1>>>(reinterpret_cast<unsigned*>(table), 1024, kSteps, cycles, end);
      CHECK(cudaDeviceSynchronize());
      found.push_back(static_cast<double>(*cycles) / kSteps);
    }
    print("shared", 4096, found);
  }
  struct Case {
    const char* memory;
    size_t bytes;
    bool in_l1;
  };
  const Case cases[] = {{"l1", 16 << 10, true},   {"l1", 64 << 10, true},
                        {"l2", 1 << 20, false},   {"l2", 4 << 20, false},
                        {"l2", 16 << 20, false},  {"dram", size_t{256} << 20, false},
                        {"dram", largest, false}};
  for (const Case& one : cases) {
    const size_t lines = one.bytes / kLine;
    const std::vector<unsigned> next = cycle(lines, random);
    std::vector<uint64_t> host(one.bytes / 8, 0);
    const uint64_t first = reinterpret_cast<uint64_t>(table);
    for (size_t i = 0; i < lines; ++i) host[i * (kLine / 8)] = first + uint64_t{next[i]} * kLine;
    CHECK(cudaMemcpy(table, host.data(), one.bytes, cudaMemcpyHostToDevice));
    std::vector<double> found;
    for (int run = 0; run < kRuns; ++run) {
      const bool in_l2 = one.bytes <= (size_t{16} << 20);
      // what is to be read from DRAM must not be in L2 any more
      const size_t filled = in_l2 ? lines : largest / 2 / kLine;
      touch<<<256, 256>>>(in_l2 ? table : other, filled, end);
      const uint64_t start = first + random() % lines * kLine;
      const int warm = one.in_l1 ? static_cast<int>(lines) : 64;
      if (one.in_l1) {
        chase<true><<<1, 1>>>(start, warm, kSteps, cycles, end);
      } else {
        chase<false><<<1, 1>>>(start, warm, kSteps, cycles, end);
      }
      CHECK(cudaGetLastError());
      CHECK(cudaDeviceSynchronize());
      found.push_back(static_cast<double>(*cycles) / kSteps);
    }
    print(one.memory, one.bytes, found);
  }
  return 0;
}
