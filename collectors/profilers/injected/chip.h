// Which chip this is and which of its counters may be read.
#pragma once

#include <cupti.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "counter_session.h"
#include "cuda_driver.h"
#include "record.h"

namespace counters {

struct Chip {
  std::string name;
  std::vector<uint8_t> availability;
};

// CUPTI opens its library of metrics by the bare name, which is found if it is loaded already.
inline void preload_metric_library() {
  Dl_info where;
  if (!dladdr(reinterpret_cast<void*>(cuptiProfilerInitialize), &where) || !where.dli_fname) return;
  const std::string path = where.dli_fname;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  dlopen((folder + "libnvperf_host.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
}

inline bool find_chip(CUcontext context, CUdevice device, Chip& chip, std::string& why) {
  preload_metric_library();
  CUPTI_PARAMETERS(CUpti_Profiler_Initialize_Params, start);
  if (failed(cuptiProfilerInitialize(&start), "ProfilerInitialize", why)) return false;
  CUPTI_PARAMETERS(CUpti_Device_GetChipName_Params, name);
  name.deviceIndex = static_cast<size_t>(device);
  if (failed(cuptiDeviceGetChipName(&name), "GetChipName", why)) return false;
  CUPTI_PARAMETERS(CUpti_Profiler_GetCounterAvailability_Params, available);
  available.ctx = context;
  if (failed(cuptiProfilerGetCounterAvailability(&available), "GetCounterAvailability", why))
    return false;
  chip.availability.assign(available.counterAvailabilityImageSize, 0);
  available.pCounterAvailabilityImage = chip.availability.data();
  if (failed(cuptiProfilerGetCounterAvailability(&available), "GetCounterAvailability", why))
    return false;
  chip.name = name.pChipName;
  return true;
}

inline void describe(CUdevice device, const Chip& chip, record::File& file) {
  char name[256] = "";
  if (driver::functions().name) driver::functions().name(name, sizeof name, device);
  uint32_t version = 0;
  cuptiGetVersion(&version);
  auto value = [&](CUdevice_attribute which) {
    return std::to_string(driver::attribute(device, which));
  };
  file.note("chip " + chip.name);
  file.note(std::string("device ") + name);
  file.note("capability " + value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) + "." +
            value(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  file.note("multiprocessors " + value(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  file.note("threads_per_multiprocessor " +
            value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
  file.note("cupti", version);
}

}  // namespace counters
