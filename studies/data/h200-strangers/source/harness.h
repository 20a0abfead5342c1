// One case: two kernels (before, after), or one kernel with two settings, and a check against the host.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#ifdef ON_CPU
#include "on_cpu.h"
inline bool tiny = true;
#else
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
inline bool tiny = false;
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) unsigned char dynamic_bytes[]; type* name = reinterpret_cast<type*>(dynamic_bytes)
#define LAUNCH(kernel, grid, block, shared, ...) kernel<<<grid, block, shared>>>(__VA_ARGS__)
#define OK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); exit(2); } } while (0)
#endif

template <class T> struct Device {
  T* data = nullptr; size_t size = 0;
  explicit Device(size_t n) : size(n) {
#ifdef ON_CPU
    data = (T*)aligned_alloc(256, (n * sizeof(T) + 255) / 256 * 256);
#else
    OK(cudaMalloc(&data, n * sizeof(T)));
#endif
    clear();
  }
  explicit Device(const std::vector<T>& host) : Device(host.size()) { upload(host); }
  Device(const Device&) = delete;
  ~Device() {
#ifdef ON_CPU
    free(data);
#else
    cudaFree(data);
#endif
  }
  void upload(const std::vector<T>& host) {
#ifdef ON_CPU
    memcpy(data, host.data(), size * sizeof(T));
#else
    OK(cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice));
#endif
  }
  void clear() {
#ifdef ON_CPU
    memset(data, 0, size * sizeof(T));
#else
    OK(cudaMemset(data, 0, size * sizeof(T)));
#endif
  }
  std::vector<T> host() const {
    std::vector<T> all(size);
#ifdef ON_CPU
    memcpy(all.data(), data, size * sizeof(T));
#else
    OK(cudaMemcpy(all.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
#endif
    return all;
  }
};
template <class T> using Held = std::shared_ptr<Device<T>>;
template <class T> Held<T> on_device(const std::vector<T>& host) { return std::make_shared<Device<T>>(host); }
template <class T> Held<T> empty(size_t n) { return std::make_shared<Device<T>>(n); }

struct Case {
  std::function<void(int)> launch;  // 0 before, 1 after
  std::function<void()> reset;      // clears what a launch writes
  std::function<double(int)> error; // largest error against the host, relative to the largest value
};
struct Entry { const char* name; Case (*make)(); };
std::vector<Entry>& entries();
struct Register { Register(const char* name, Case (*make)()) { entries().push_back({name, make}); } };
#define CASE(name) static Case make_##name(); static Register register_##name(#name, make_##name); static Case make_##name()

inline int pick(int full, int small) { return tiny ? small : full; }
inline unsigned next_random(uint64_t& state) { state = state * 6364136223846793005ull + 1442695040888963407ull; return (unsigned)(state >> 33); }
inline std::vector<float> random_floats(size_t n, float low = -1.0f, float high = 1.0f, uint64_t seed = 1) {
  std::vector<float> all(n); uint64_t s = seed; const size_t head = n < (1u << 20) - 3 ? n : (1u << 20) - 3;
  for (size_t i = 0; i < head; ++i) all[i] = low + (high - low) * (next_random(s) / 2147483648.0f);
  for (size_t i = head; i < n; i += head) memcpy(&all[i], &all[0], sizeof(float) * (n - i < head ? n - i : head));
  return all;
}
struct Largest {  // relative to the largest expected value
  double difference = 0, value = 1e-30;
  void add(double found, double expected) {
    const double d = std::fabs(found - expected);
    if (!(d <= difference)) difference = std::isnan(d) ? 1e30 : d;
    if (std::fabs(expected) > value) value = std::fabs(expected);
  }
  double relative() const { return difference / value; }
};
template <class F> double sampled(size_t n, size_t count, F add_at) {  // add_at(Largest&, index)
  Largest largest; uint64_t s = 99;
  add_at(largest, 0); add_at(largest, n - 1);
  for (size_t i = 0; i < count; ++i) add_at(largest, ((uint64_t)next_random(s) * 2654435761ull + next_random(s)) % n);
  return largest.relative();
}
int multiprocessors();
