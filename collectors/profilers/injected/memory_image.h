// The device memory that a program has allocated, and a copy of it that is put back.
//
// An experiment runs a launch many times. What the launch writes is put back before each batch and
// at the end, so that the program goes on with what it had. Allocations are known from the driver's
// calls since the program began; variables of a kernel's module (__device__) by their names. Of the
// host's pinned memory a launch may write what it is given a pointer to. Pageable memory that a GPU
// reaches (Grace), and pointers behind pointers, are not among them.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "conditions.h"
#include "experiment_driver.h"

namespace experiments {

// Allocations by their first address; followed through CUPTI's callbacks.
class Allocations {
 public:
  // Takes a driver call in; false if it is none that allocates or frees.
  bool heard(CUpti_CallbackId id, const CUpti_CallbackData& call) {
    const bool enters = call.callbackSite == CUPTI_API_ENTER;
    const void* given = call.functionParams;
    switch (id) {
      case CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2:
        return made<cuMemAlloc_v2_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocManaged:
        return made<cuMemAllocManaged_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync:
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocAsync_ptsz:
        return made<cuMemAllocAsync_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync:
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocFromPoolAsync_ptsz:
        return made<cuMemAllocFromPoolAsync_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocPitch_v2: {
        const auto* pitch = static_cast<const cuMemAllocPitch_v2_params*>(given);
        if (!enters && succeeded(call)) add(call, *pitch->dptr, *pitch->pPitch * pitch->Height);
        return true;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemMap: {
        const auto* map = static_cast<const cuMemMap_params*>(given);
        if (!enters && succeeded(call)) add(call, map->ptr, map->size);
        return true;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc:
        return pinned<cuMemHostAlloc_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemAllocHost_v2:
        return pinned<cuMemAllocHost_v2_params>(call, enters);
      case CUPTI_DRIVER_TRACE_CBID_cuMemHostRegister_v2: {
        const auto* host = static_cast<const cuMemHostRegister_v2_params*>(given);
        if (!enters && succeeded(call)) pin(host->p, host->bytesize);
        return true;
      }
      case CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost:
        if (enters) unpin(static_cast<const cuMemFreeHost_params*>(given)->p);
        return true;
      case CUPTI_DRIVER_TRACE_CBID_cuMemHostUnregister:
        if (enters) unpin(static_cast<const cuMemHostUnregister_params*>(given)->p);
        return true;
      case CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2:
        if (enters) remove(static_cast<const cuMemFree_v2_params*>(given)->dptr);
        return true;
      case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync:
      case CUPTI_DRIVER_TRACE_CBID_cuMemFreeAsync_ptsz:
        if (enters) remove(static_cast<const cuMemFreeAsync_params*>(given)->dptr);
        return true;
      case CUPTI_DRIVER_TRACE_CBID_cuMemUnmap:
        if (enters) remove(static_cast<const cuMemUnmap_params*>(given)->ptr);
        return true;
      default: return false;
    }
  }

  // Those of a context.
  std::map<CUdeviceptr, size_t> now(CUcontext context) {
    std::lock_guard<std::mutex> guard(lock_);
    std::map<CUdeviceptr, size_t> sizes;
    for (const auto& [address, allocation] : known_) {
      if (allocation.context == context) sizes[address] = allocation.size;
    }
    return sizes;
  }

  // Adds the host's pinned memory into which one of these words points.
  void add_host(const std::vector<CUdeviceptr>& words, std::map<CUdeviceptr, size_t>& parts) {
    std::lock_guard<std::mutex> guard(lock_);
    for (CUdeviceptr word : words) {
      auto after = pinned_.upper_bound(word);
      if (after == pinned_.begin()) continue;
      const auto& [address, size] = *--after;
      if (word - address < size) parts[address] = size;
    }
  }

 private:
  template <typename Parameters>
  bool made(const CUpti_CallbackData& call, bool enters) {
    const auto* given = static_cast<const Parameters*>(call.functionParams);
    if (!enters && succeeded(call)) add(call, *given->dptr, given->bytesize);
    return true;
  }

  template <typename Parameters>
  bool pinned(const CUpti_CallbackData& call, bool enters) {
    const auto* given = static_cast<const Parameters*>(call.functionParams);
    if (!enters && succeeded(call)) pin(*given->pp, given->bytesize);
    return true;
  }

  static bool succeeded(const CUpti_CallbackData& call) {
    const auto* result = static_cast<const CUresult*>(call.functionReturnValue);
    return result && *result == CUDA_SUCCESS;
  }

  void add(const CUpti_CallbackData& call, CUdeviceptr address, size_t size) {
    std::lock_guard<std::mutex> guard(lock_);
    if (size) known_[address] = {call.context, size};
  }

  void remove(CUdeviceptr address) {
    std::lock_guard<std::mutex> guard(lock_);
    known_.erase(address);
  }

  void pin(const void* address, size_t size) {
    std::lock_guard<std::mutex> guard(lock_);
    pinned_[reinterpret_cast<CUdeviceptr>(address)] = size;
  }

  void unpin(const void* address) {
    std::lock_guard<std::mutex> guard(lock_);
    pinned_.erase(reinterpret_cast<CUdeviceptr>(address));
  }

  struct Allocation {
    CUcontext context;
    size_t size;
  };
  std::mutex lock_;
  std::map<CUdeviceptr, Allocation> known_;
  std::map<CUdeviceptr, size_t> pinned_;  // one address is the host's and the device's
};

// A launch takes a CUfunction or, cast to one, a CUkernel: nothing but trying tells which.
inline CUfunction own_function(CUfunction function) {
  const Driver& all = driver();
  CUfunction own = nullptr;
  int value = 0;
  if (all.get(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function) == CUDA_SUCCESS || !all.function_of ||
      all.function_of(&own, reinterpret_cast<CUkernel>(function)) != CUDA_SUCCESS)
    return function;
  return own;
}

// The words of 8 bytes that a launch is given, of which some are pointers.
inline std::vector<CUdeviceptr> words_of(const Subject& subject) {
  const Driver& all = driver();
  const char* together = nullptr;  // parameters may come in one buffer
  for (void** one = subject.extra; one && *one != CU_LAUNCH_PARAM_END; one += 2) {
    if (*one == CU_LAUNCH_PARAM_BUFFER_POINTER) together = static_cast<const char*>(one[1]);
  }
  std::vector<CUdeviceptr> words;
  const CUfunction function = own_function(subject.function);
  size_t offset = 0, size = 0;
  for (size_t i = 0; all.parameter && (together || subject.parameters) &&
                     all.parameter(function, i, &offset, &size) == CUDA_SUCCESS; ++i) {
    const char* given = together ? together + offset : static_cast<const char*>(subject.parameters[i]);
    for (size_t at = 0; at + sizeof(CUdeviceptr) <= size; at += sizeof(CUdeviceptr)) {
      words.emplace_back();
      std::memcpy(&words.back(), given + at, sizeof(CUdeviceptr));
    }
  }
  return words;
}

// Adds the variables of a kernel's module to what is allocated.
inline void add_variables(CUfunction function, const std::vector<std::string>& names,
                          std::map<CUdeviceptr, size_t>& parts) {
  const Driver& all = driver();
  CUmodule module = nullptr;
  if (names.empty() || !all.module_of || !all.variable ||
      all.module_of(&module, own_function(function)) != CUDA_SUCCESS)
    return;
  for (const std::string& name : names) {
    CUdeviceptr address = 0;
    size_t size = 0;
    if (all.variable(&address, &size, module, name.c_str()) == CUDA_SUCCESS && size)
      parts[address] = size;
  }
}

// A part of the memory, and where its copy lies.
struct Region {
  CUdeviceptr address, copy;
  size_t size;
};

// Counts words that differ, by chunks: a kernel, and where it counts.
class Comparison {
 public:
  static constexpr size_t kChunk = size_t{64} << 10;

  bool open(CUfunction kernel) { return (kernel_ = kernel) != nullptr; }

  // How many words of each chunk differ between a region and its copy.
  bool differ(const Region& region, CUstream stream, std::vector<uint32_t>& counts,
              std::string& why) {
    const Driver& all = driver();
    counts.assign((region.size + kChunk - 1) / kChunk, 0);
    const size_t bytes = counts.size() * sizeof(uint32_t);
    if (bytes > room_) {
      if (counts_) all.free(counts_);
      room_ = 0;
      if (failed(all.allocate(&counts_, bytes), "comparison of the memory", why)) return false;
      room_ = bytes;
    }
    CUlaunchConfig config{};
    config.gridDimX = static_cast<unsigned>(counts.size());
    config.blockDimX = 256;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    CUdeviceptr now = region.address, kept = region.copy;
    unsigned long long words = region.size / sizeof(uint32_t);
    void* given[] = {&now, &kept, &words, &counts_};
    return !failed(all.fill(counts_, 0, bytes, stream), "comparison of the memory", why) &&
           !failed(all.launch(&config, kernel_, given, nullptr), "comparison of the memory", why) &&
           !failed(all.to_host(counts.data(), counts_, bytes, stream), "comparison", why) &&
           !failed(all.wait(stream), "comparison of the memory", why);
  }

 private:
  CUfunction kernel_ = nullptr;
  CUdeviceptr counts_ = 0;
  size_t room_ = 0;
};

// A copy on the device of all that is allocated.
class Image {
 public:
  // Copies the allocations; false, and why, if they do not fit beside themselves.
  bool take(const std::map<CUdeviceptr, size_t>& allocations, CUstream stream, std::string& why) {
    size_t total = 0;
    for (const auto& [address, size] : allocations) total += room_of(size);
    if (total > room_ && !make_room(total, why)) return false;
    parts_ = allocations;
    return copy(stream, true, why);
  }

  bool put_back(CUstream stream, std::string& why) { return copy(stream, false, why); }

  // The regions that differ from their copy, and how many words do.
  bool changed(Comparison& comparison, CUstream stream, std::vector<Region>& regions,
               unsigned long long& words, std::string& why) const {
    regions.clear();
    words = 0;
    size_t offset = 0;
    for (const auto& [address, size] : parts_) {
      std::vector<uint32_t> counts;
      if (!comparison.differ({address, copy_ + offset, size}, stream, counts, why)) return false;
      for (size_t at = 0; at < counts.size(); ++at) {
        if (!counts[at]) continue;
        words += counts[at];
        const size_t begin = at * Comparison::kChunk;
        const size_t length = std::min(Comparison::kChunk, size - begin);
        if (!regions.empty() && regions.back().address + regions.back().size == address + begin)
          regions.back().size += length;
        else
          regions.push_back({address + begin, copy_ + offset + begin, length});
      }
      offset += room_of(size);
    }
    return true;
  }

  void release() {
    if (copy_) driver().free(copy_);
    copy_ = 0;
    room_ = 0;
  }

 private:
  static constexpr size_t kSpare = size_t{512} << 20;  // what the program may still want

  // Copies are compared by words.
  static size_t room_of(size_t size) { return (size + 15) / 16 * 16; }

  bool make_room(size_t total, std::string& why) {
    release();
    size_t free = 0, all = 0;
    if (driver().memory(&free, &all) != CUDA_SUCCESS || free < total + kSpare) {
      why = "the program's " + std::to_string(total >> 20) + " MiB do not fit twice into memory";
      return false;
    }
    if (failed(driver().allocate(&copy_, total), "copy of the memory", why)) return false;
    room_ = total;
    return true;
  }

  bool copy(CUstream stream, bool out, std::string& why) {
    size_t offset = 0;
    for (const auto& [address, size] : parts_) {
      const CUdeviceptr from = out ? address : copy_ + offset, to = out ? copy_ + offset : address;
      if (failed(driver().copy(to, from, size, stream), "copy of the memory", why)) return false;
      offset += room_of(size);
    }
    return !failed(driver().wait(stream), "copy of the memory", why);
  }

  CUdeviceptr copy_ = 0;
  size_t room_ = 0;
  std::map<CUdeviceptr, size_t> parts_;
};

}  // namespace experiments
