// Durations of kernels: what CUPTI's activity records say, and how they are written down.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "launches.h"

namespace activity {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif

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

// Who is told of records as CUPTI delivers them.
struct Listener {
  void (*ran)(const KernelRecord& kernel) = nullptr;
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
  }
  size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
    listener().dropped(dropped);
  std::free(buffer);
}

}  // namespace activity
