// What is known of a kernel launch when the driver is asked for it.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuda_driver.h"
#include "nvtx_ranges.h"

namespace launches {

// What the compiler and the launch fix; -1 where the driver does not say.
struct Resources {
  int registers = -1;
  int static_shared = -1;
  int blocks_per_multiprocessor = -1;
};

struct Launch {
  unsigned context = 0;
  unsigned grid[3] = {0, 0, 0};
  unsigned block[3] = {0, 0, 0};
  unsigned dynamic_shared = 0;
  unsigned stream = 0;
  bool graph = false;
  std::string kernel;  // as the compiler mangled it
  Resources resources;
  unsigned long long instance = 0;
  std::string path;

  // Whether both are the same step of the same work.
  bool same(const Launch& other) const {
    for (int i = 0; i < 3; ++i) {
      if (grid[i] != other.grid[i] || block[i] != other.block[i]) return false;
    }
    return context == other.context && graph == other.graph && kernel == other.kernel;
  }
};

// Where the launches of a context lie among all.
inline std::vector<size_t> places_of(const std::vector<Launch>& launches, unsigned context) {
  std::vector<size_t> places;
  for (size_t i = 0; i < launches.size(); ++i) {
    if (launches[i].context == context) places.push_back(i);
  }
  return places;
}

// The same launches in another one's order of contexts: threads that launch into a context each
// need not take turns as they did before. Unchanged if a context has more or fewer launches.
inline std::vector<Launch> in_order_of(const std::vector<Launch>& order,
                                       const std::vector<Launch>& launches) {
  if (order.size() != launches.size()) return launches;
  std::map<unsigned, std::vector<size_t>> left;
  for (size_t i = launches.size(); i-- > 0;) left[launches[i].context].push_back(i);
  std::vector<Launch> ordered;
  for (const Launch& each : order) {
    std::vector<size_t>& of_context = left[each.context];
    if (of_context.empty()) return launches;
    ordered.push_back(launches[of_context.back()]);
    of_context.pop_back();
  }
  return ordered;
}

inline bool same(const std::vector<Launch>& left, const std::vector<Launch>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const Launch& one, const Launch& other) { return one.same(other); });
}

// A number that stands for these launches: kernels, grids and blocks in their order.
inline size_t signature(const std::vector<Launch>& launches) {
  size_t value = launches.size();
  const auto mix = [&value](size_t more) { value = value * 1099511628211u + more; };
  for (const Launch& launch : launches) {
    mix(std::hash<std::string>{}(launch.kernel));
    for (int i = 0; i < 3; ++i) {
      mix(launch.grid[i]);
      mix(launch.block[i]);
    }
  }
  return value;
}

// Kept: a server runs few kernels a hundred thousand times a second, and torch's names are long.
inline const std::string& demangled(const std::string& name) {
  thread_local std::unordered_map<std::string, std::string> known;
  std::string& text = known[name];
  if (text.empty()) {
    char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
    text = nvtx::plain(readable ? readable : name.c_str());
    std::free(readable);
  }
  return text;
}

inline std::string shape(const unsigned* sizes) {
  char text[64];
  std::snprintf(text, sizeof text, "(%u, %u, %u)", sizes[0], sizes[1], sizes[2]);
  return text;
}

inline std::string described(const Launch& launch) {
  return launch.graph ? "a CUDA graph"
                      : demangled(launch.kernel) + " " + shape(launch.grid) + shape(launch.block);
}

// The driver's calls that launch something, and those that mark a region.
constexpr CUpti_CallbackId kDriverCalls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuProfilerStart,
    CUPTI_DRIVER_TRACE_CBID_cuProfilerStop,
};

// Asks the driver once for each kernel under each block size.
inline const Resources& resources(CUfunction function, const Launch& launch, CUdevice device) {
  static auto* const known =
      new std::map<std::tuple<CUfunction, std::string, unsigned, unsigned>, Resources>;
  const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2];
  // a module that is unloaded may leave its functions' addresses to other ones
  auto [place, is_new] =
      known->try_emplace({function, launch.kernel, threads, launch.dynamic_shared});
  if (is_new) {
    Resources& of_kernel = place->second;
    of_kernel.registers = driver::attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, device);
    of_kernel.static_shared = driver::attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, device);
    int blocks = -1;
    if (driver::functions().active_blocks &&
        driver::functions().active_blocks(&blocks, function, static_cast<int>(threads),
                                          launch.dynamic_shared) == CUDA_SUCCESS)
      of_kernel.blocks_per_multiprocessor = blocks;
  }
  return place->second;
}

template <typename Parameters>
CUfunction plain_launch(const void* raw, Launch& launch, CUstream& stream) {
  const auto* given = static_cast<const Parameters*>(raw);
  const unsigned grid[] = {given->gridDimX, given->gridDimY, given->gridDimZ};
  const unsigned block[] = {given->blockDimX, given->blockDimY, given->blockDimZ};
  std::copy(grid, grid + 3, launch.grid);
  std::copy(block, block + 3, launch.block);
  launch.dynamic_shared = given->sharedMemBytes;
  stream = given->hStream;
  return given->f;
}

// Reads the driver's launch call; false if the call launches nothing, as while a graph is captured.
inline bool read(CUpti_CallbackId id, const CUpti_CallbackData& call, CUdevice device,
                 Launch& launch) {
  CUstream stream = nullptr;
  CUfunction function = nullptr;
  bool own_default_stream = false;
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: own_default_stream = true; [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      function = plain_launch<cuLaunchKernel_params>(call.functionParams, launch, stream);
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      own_default_stream = true;
      [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
      function = plain_launch<cuLaunchCooperativeKernel_params>(call.functionParams, launch, stream);
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: own_default_stream = true; [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx: {
      const auto* given = static_cast<const cuLaunchKernelEx_params*>(call.functionParams);
      const CUlaunchConfig& config = *given->config;
      const unsigned grid[] = {config.gridDimX, config.gridDimY, config.gridDimZ};
      const unsigned block[] = {config.blockDimX, config.blockDimY, config.blockDimZ};
      std::copy(grid, grid + 3, launch.grid);
      std::copy(block, block + 3, launch.block);
      launch.dynamic_shared = config.sharedMemBytes;
      stream = config.hStream;
      function = given->f;
      break;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz: own_default_stream = true; [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch:
      stream = static_cast<const cuGraphLaunch_params*>(call.functionParams)->hStream;
      launch.graph = true;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync: break;
    default: return false;
  }
  if (driver::is_capturing(stream, own_default_stream)) return false;
  launch.kernel = call.symbolName ? call.symbolName : "";
  if (function) launch.resources = resources(function, launch, device);
  cuptiGetStreamIdEx(call.context, stream, own_default_stream ? 1 : 0, &launch.stream);
  return true;
}

}  // namespace launches
