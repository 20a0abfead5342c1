// factorial ITERATIONS|check: every combination of the toggles of `kernels.cuh`, in an NVTX range each.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "kernels.cuh"

static void ok(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::exit(3);
}

// How a combination is launched. `grid` 0: as many blocks as fit at once, and below 0 some more.
struct Shape {
  int grid, block, shared;
};

struct Combination {
  std::string family;
  unsigned mask, inputs;
  void (*kernel)(Inputs);
  Shape shape;
};
static std::vector<Combination> combinations;

constexpr int kLarge = 100 << 10;  // of shared memory: two blocks fit

#define FAMILY(name, inputs, ...)                                                  \
  template <unsigned... M>                                                         \
  static void add_##name(std::integer_sequence<unsigned, M...>) {                  \
    const auto shape = [](unsigned m) { return Shape __VA_ARGS__; };               \
    (combinations.push_back({#name, M, inputs, name<M>, shape(M)}), ...);                   \
  }                                                                                \
  static const int name##_added = (add_##name(std::make_integer_sequence<unsigned, 32>()), 0);

// family, toggles that change the results, {blocks, threads, bytes of shared memory} of mask m
FAMILY(map, 3, {m & 16 ? 44 : 0, 256, 0})
FAMILY(window, 4, {m & 16 ? 132 * 32 : 132 * 8, m & 16 ? 32 : 256, 0})
FAMILY(product, 0, {1024, 256, m & 4 ? kLarge : 0})
FAMILY(bins, 2, {m & 16 ? 44 : 132 * 4, 256, 0})
FAMILY(forces, 0, {1024, 256, m & 16 ? kLarge : 0})
FAMILY(filters, 31, {m & 8 ? -8 : 0, 256, 0})
FAMILY(turn, 0, {128 * 128, m & 8 ? 32 : 256, 0})
FAMILY(walks, 4, {m & 16 ? 33 : 512, 256, m & 2 ? kLarge : 0})
FAMILY(sparse, 6, {m & 1 ? 256 : 132 * 8, 256, 0})
FAMILY(lookups, 8, {0, 256, 0})

template <class T>
static T* on_device(const std::vector<T>& from) {
  T* to;
  ok(cudaMalloc(&to, from.size() * sizeof(T)));
  ok(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

static std::vector<int> cycle(int size, std::mt19937& random) {
  std::vector<int> path(size), next(size);
  std::iota(path.begin(), path.end(), 0);
  std::shuffle(path.begin(), path.end(), random);
  for (int i = 0; i < size; ++i) next[path[i]] = path[(i + 1) % size];
  return next;
}

static Inputs make_inputs() {
  std::mt19937 random(1);
  Inputs in{};
  std::vector<float> values(1 << 24);
  for (float& x : values) x = (random() >> 8) / 16777216.0f;
  std::vector<unsigned char> bytes(1 << 26);
  for (unsigned char& x : bytes) x = random() >> 24;
  in.values = on_device(values), in.bytes = on_device(bytes);
  in.order[0] = on_device(cycle(1 << 19, random)), in.order[1] = on_device(cycle(1 << 24, random));
  std::vector<int> even(1), uneven(1), beside(1 << 22), anywhere(1 << 22);
  for (int row = 0; row < 1 << 16; ++row) {
    even.push_back(even.back() + 64);
    // the last 512 rows have half of the entries
    uneven.push_back(uneven.back() + (row < (1 << 16) - 512 ? 32 : 4096));
  }
  for (int k = 0; k < 1 << 22; ++k) beside[k] = k / 4, anywhere[k] = random() >> 12;
  in.rows[0] = on_device(even), in.rows[1] = on_device(uneven);
  in.columns[0] = on_device(beside), in.columns[1] = on_device(anywhere);
  ok(cudaMalloc(&in.out, sizeof(float) << 24));
  in.width = 4096;
  return in;
}

static void launch(const Combination& one, const Inputs& in) {
  one.kernel<<<one.shape.grid, one.shape.block, one.shape.shared>>>(in);
  ok(cudaGetLastError());
}

static int check(const Inputs& in) {
  constexpr int kChecked = 1 << 22;
  std::vector<float> got(kChecked);
  std::vector<double> first(32);
  int wrong = 0;
  for (const Combination& one : combinations) {
    ok(cudaMemset(in.out, 0, sizeof(float) << 24));
    launch(one, in);
    ok(cudaMemcpy(got.data(), in.out, sizeof(float) * kChecked, cudaMemcpyDeviceToHost));
    double sum = 0;
    const bool counts = one.family == "bins" || (one.family == "walks" && one.mask & 8);
    for (int i = 0; i < kChecked; ++i) {
      if (counts && i < 4096) continue;
      sum += std::abs(static_cast<double>(got[i])) * (1 + i % 7);
    }
    if (one.family == "bins") {
      for (int i = 0; i < 1024; ++i) sum += reinterpret_cast<const unsigned*>(got.data())[i] % 65536;
    }
    if ((one.mask & one.inputs) == one.mask) first[one.mask] = sum;
    const double error = std::abs(sum / first[one.mask & one.inputs] - 1);
    if (!(error < 1e-3)) ++wrong, std::printf("%s %u: %g\n", one.family.c_str(), one.mask, error);
  }
  std::printf("%d of %zu combinations are wrong\n", wrong, combinations.size());
  return wrong > 0;
}

int main(int count, char** arguments) {
  const Inputs in = make_inputs();
  cudaDeviceProp device;
  ok(cudaGetDeviceProperties(&device, 0));
  for (Combination& one : combinations) {
    ok(cudaFuncSetAttribute(one.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, one.shape.shared));
    int fit = 0;
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, one.kernel, one.shape.block, one.shape.shared));
    if (one.shape.grid <= 0) one.shape.grid = fit * device.multiProcessorCount - one.shape.grid;
  }
  if (count > 1 && std::string(arguments[1]) == "check") return check(in);
  for (const Combination& one : combinations) launch(one, in);  // clocks and code are warm then
  const int iterations = count > 1 ? std::atoi(arguments[1]) : 3;
  for (int i = 0; i < iterations; ++i) {
    nvtxRangePushA(("iter_" + std::to_string(i)).c_str());
    for (const Combination& one : combinations) {
      nvtxRangePushA((one.family + "_" + std::to_string(one.mask)).c_str());
      launch(one, in);
      nvtxRangePop();
    }
    ok(cudaDeviceSynchronize());
    nvtxRangePop();
  }
  return 0;
}
