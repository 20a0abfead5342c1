// Durations of kernels, copies and fills: what CUPTI's activity records say, and how they are written
// down.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "launches.h"

namespace activity {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using FillRecord = CUpti_ActivityMemset4;

// Copies between GPUs are records of another kind, which nobody asks for.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

inline CUptiResult enable() {
  for (CUpti_ActivityKind kind : kKinds) {
    const CUptiResult result = cuptiActivityEnable(kind);
    if (result != CUPTI_SUCCESS) return result;
  }
  return CUPTI_SUCCESS;
}

inline void disable() {
  for (CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
}

// A copy or a fill of memory that the device made.
struct Moved {
  uint32_t correlation = 0, device = 0, stream = 0;
  uint64_t start = 0, end = 0, bytes = 0;
  std::string name;
};

inline const char* memory(unsigned kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE: return "Pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED: return "Pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC: return "Device";
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY: return "Array";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC: return "Managed";
    default: return "Unknown";
  }
}

inline const char* direction(unsigned kind) {
  static const char* const names[] = {"", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                      "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < sizeof names / sizeof *names ? names[kind] : "";
}

// Named as torch.profiler does: "Memcpy HtoD (Pageable -> Device)", "Memset (Device)".
inline Moved moved(const CopyRecord& copy) {
  const std::string name = std::string("Memcpy ") + direction(copy.copyKind) + " (" +
                           memory(copy.srcKind) + " -> " + memory(copy.dstKind) + ")";
  return {copy.correlationId, copy.deviceId, copy.streamId, copy.start, copy.end, copy.bytes, name};
}

inline Moved moved(const FillRecord& fill) {
  const std::string name = std::string("Memset (") + memory(fill.memoryKind) + ")";
  return {fill.correlationId, fill.deviceId, fill.streamId, fill.start, fill.end, fill.bytes, name};
}

// Whether a call of the driver or of the runtime copies or fills memory.
inline bool moves_memory(const char* function) {
  for (const char* name : {"cuMemcpy", "cudaMemcpy", "cuMemset", "cudaMemset"}) {
    if (function && std::strncmp(function, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

// Such calls have many versions and forms: the library knows their names.
inline CUptiResult watch_memory(CUpti_SubscriberHandle subscriber) {
  constexpr struct {
    CUpti_CallbackDomain domain;
    uint32_t end;
  } of_both[] = {{CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE},
                 {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE}};
  for (const auto& each : of_both) {
    for (uint32_t id = 1; id < each.end; ++id) {
      const char* name = nullptr;
      if (cuptiGetCallbackName(each.domain, id, &name) != CUPTI_SUCCESS || !moves_memory(name))
        continue;
      const CUptiResult result = cuptiEnableCallback(1, subscriber, each.domain, id);
      if (result != CUPTI_SUCCESS) return result;
    }
  }
  return CUPTI_SUCCESS;
}

// What is known of a launch when it is made: its record, by the correlation id, follows later.
struct Made {
  unsigned long long sequence = 0;
  unsigned long long instance = 0;
  bool marked = false;  // lies in what is measured
  std::string path;
};

// The line of a kernel that ran; `collectors.profilers.timing.read_launch` reads it.
inline std::string line(const KernelRecord& kernel, const Made& launch) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%llu\t%d\t%llu\t%llu\t%u\t%u\t(%d, %d, %d)\t(%d, %d, %d)\t%llu\t",
                launch.sequence, launch.marked ? 1 : 0,
                static_cast<unsigned long long>(kernel.start),
                static_cast<unsigned long long>(kernel.end), kernel.deviceId, kernel.streamId,
                kernel.gridX, kernel.gridY, kernel.gridZ, kernel.blockX, kernel.blockY,
                kernel.blockZ, launch.instance);
  return text + launch.path + "\t" + launches::demangled(kernel.name);
}

// The same of a copy or a fill: without grid and block, and with its bytes at the end.
inline std::string line(const Moved& moved, const Made& call) {
  char text[256];
  std::snprintf(text, sizeof text, "%llu\t%d\t%llu\t%llu\t%u\t%u\t\t\t%llu\t", call.sequence,
                call.marked ? 1 : 0, static_cast<unsigned long long>(moved.start),
                static_cast<unsigned long long>(moved.end), moved.device, moved.stream,
                call.instance);
  return text + call.path + "\t" + moved.name + "\t" + std::to_string(moved.bytes);
}

// Who is told of records as CUPTI delivers them.
struct Listener {
  void (*ran)(const KernelRecord& kernel) = nullptr;
  void (*moved)(const Moved& moved) = nullptr;
  void (*dropped)(size_t count) = nullptr;
};

inline Listener& listener() {
  static Listener only;
  return only;
}

constexpr size_t kBufferBytes = 8u << 20;

inline void CUPTIAPI buffer_wanted(uint8_t** buffer, size_t* size, size_t* records) {
  void* memory = nullptr;
  *buffer = posix_memalign(&memory, 8, kBufferBytes) == 0 ? static_cast<uint8_t*>(memory) : nullptr;
  *size = *buffer ? kBufferBytes : 0;
  *records = 0;
}

inline void CUPTIAPI buffer_done(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                                 size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
        record->kind == CUPTI_ACTIVITY_KIND_KERNEL)
      listener().ran(*reinterpret_cast<const KernelRecord*>(record));
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY)
      listener().moved(moved(*reinterpret_cast<const CopyRecord*>(record)));
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
      listener().moved(moved(*reinterpret_cast<const FillRecord*>(record)));
  }
  size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
    listener().dropped(dropped);
  std::free(buffer);
}

}  // namespace activity
