// Parts of the GPU's multiprocessors, each with a stream of its own (green contexts).
#pragma once

#include <cuda.h>

#include <string>

#include "experiment_driver.h"

namespace experiments {

// Multiprocessors set apart from the others, until `close`.
struct Partition {
  CUstream stream = nullptr, others = nullptr;
  CUgreenCtx of_stream = nullptr, of_others = nullptr;
  unsigned multiprocessors = 0;

  // A context that lives keeps the program from resetting its device.
  void close() {
    for (CUstream each : {stream, others}) {
      if (each) driver().end_stream(each);
    }
    for (CUgreenCtx each : {of_stream, of_others}) {
      if (each) driver().end_green(each);
    }
    *this = {};
  }
};

inline bool green_stream(CUdevice device, CUdevResource& part, CUgreenCtx& context,
                         CUstream& stream, std::string& why) {
  const Driver& all = driver();
  CUdevResourceDesc description = nullptr;
  return !failed(all.describe(&description, &part, 1), "green context", why) &&
         !failed(all.green(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                 "green context", why) &&
         !failed(all.green_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0), "green context",
                 why);
}

// Reserves at least `wanted` multiprocessors; the driver rounds up to what it can split.
inline bool part(CUdevice device, unsigned wanted, Partition& partition, std::string& why) {
  const Driver& all = driver();
  CUdevResource whole{}, chosen{}, rest{};
  if (failed(all.resource(device, &whole, CU_DEV_RESOURCE_TYPE_SM), "multiprocessors", why))
    return false;
  unsigned groups = 1;
  if (all.split(&chosen, &groups, &whole, &rest, 0, wanted) != CUDA_SUCCESS || groups == 0)
    return true;  // this GPU cannot be split so: its experiments are left out
  if (!green_stream(device, chosen, partition.of_stream, partition.stream, why)) return false;
  if (rest.sm.smCount > 0 &&
      !green_stream(device, rest, partition.of_others, partition.others, why))
    return false;
  partition.multiprocessors = chosen.sm.smCount;
  return true;
}

}  // namespace experiments
