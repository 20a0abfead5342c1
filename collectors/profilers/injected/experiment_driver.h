// The driver's functions that experiments need, looked up in the driver that is loaded.
//
// Green contexts came with CUDA 12.4: on an older driver the experiments that need them are left out.
#pragma once

#include <cuda.h>

#include <dlfcn.h>

#include <string>

namespace experiments {

struct Driver {
  decltype(&cuMemAlloc) allocate = nullptr;
  decltype(&cuMemFree) free = nullptr;
  decltype(&cuMemGetInfo) memory = nullptr;
  decltype(&cuMemcpyDtoDAsync) copy = nullptr;
  decltype(&cuMemsetD8Async) fill = nullptr;
  decltype(&cuStreamCreate) stream = nullptr;
  decltype(&cuStreamSynchronize) wait = nullptr;
  decltype(&cuCtxSynchronize) wait_for_all = nullptr;
  decltype(&cuEventCreate) event = nullptr;
  decltype(&cuEventRecord) record = nullptr;
  decltype(&cuEventQuery) reached = nullptr;
  CUresult (*elapsed)(float*, CUevent, CUevent) = nullptr;
  decltype(&cuLaunchKernelEx) launch = nullptr;
  decltype(&cuFuncSetAttribute) set = nullptr;
  decltype(&cuFuncGetAttribute) get = nullptr;
  decltype(&cuKernelGetFunction) function_of = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) blocks = nullptr;
  decltype(&cuCtxSetLimit) limit = nullptr;
  decltype(&cuCtxGetLimit) limit_now = nullptr;
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) function = nullptr;
  decltype(&cuModuleUnload) unload = nullptr;
  decltype(&cuModuleGetGlobal) variable = nullptr;
  decltype(&cuFuncGetModule) module_of = nullptr;
  decltype(&cuCtxGetDevice) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuDeviceGetDevResource) resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) green = nullptr;
  decltype(&cuGreenCtxStreamCreate) green_stream = nullptr;
  decltype(&cuGetErrorString) error = nullptr;

  bool complete() const { return launch && elapsed && set && get && blocks && load; }
  bool has_green() const { return resource && split && describe && green && green_stream; }
};

#define PERFML_TEXT_OF(name) #name
#define PERFML_TEXT(name) PERFML_TEXT_OF(name)
#define PERFML_LOOK_UP(member, name) \
  all.member = reinterpret_cast<decltype(all.member)>(dlsym(library, PERFML_TEXT(name)))

inline const Driver& driver() {
  static const Driver loaded = [] {
    Driver all;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return all;
    PERFML_LOOK_UP(allocate, cuMemAlloc);
    PERFML_LOOK_UP(free, cuMemFree);
    PERFML_LOOK_UP(memory, cuMemGetInfo);
    PERFML_LOOK_UP(copy, cuMemcpyDtoDAsync);
    PERFML_LOOK_UP(fill, cuMemsetD8Async);
    PERFML_LOOK_UP(stream, cuStreamCreate);
    PERFML_LOOK_UP(wait, cuStreamSynchronize);
    PERFML_LOOK_UP(wait_for_all, cuCtxSynchronize);
    PERFML_LOOK_UP(event, cuEventCreate);
    PERFML_LOOK_UP(record, cuEventRecord);
    PERFML_LOOK_UP(reached, cuEventQuery);
    all.elapsed = reinterpret_cast<decltype(all.elapsed)>(dlsym(library, "cuEventElapsedTime"));
    PERFML_LOOK_UP(launch, cuLaunchKernelEx);
    PERFML_LOOK_UP(set, cuFuncSetAttribute);
    PERFML_LOOK_UP(get, cuFuncGetAttribute);
    PERFML_LOOK_UP(function_of, cuKernelGetFunction);
    PERFML_LOOK_UP(blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor);
    PERFML_LOOK_UP(limit, cuCtxSetLimit);
    PERFML_LOOK_UP(limit_now, cuCtxGetLimit);
    PERFML_LOOK_UP(load, cuModuleLoadData);
    PERFML_LOOK_UP(function, cuModuleGetFunction);
    PERFML_LOOK_UP(unload, cuModuleUnload);
    PERFML_LOOK_UP(variable, cuModuleGetGlobal);
    PERFML_LOOK_UP(module_of, cuFuncGetModule);
    PERFML_LOOK_UP(device, cuCtxGetDevice);
    PERFML_LOOK_UP(attribute, cuDeviceGetAttribute);
    PERFML_LOOK_UP(resource, cuDeviceGetDevResource);
    PERFML_LOOK_UP(split, cuDevSmResourceSplitByCount);
    PERFML_LOOK_UP(describe, cuDevResourceGenerateDesc);
    PERFML_LOOK_UP(green, cuGreenCtxCreate);
    PERFML_LOOK_UP(green_stream, cuGreenCtxStreamCreate);
    PERFML_LOOK_UP(error, cuGetErrorString);
    return all;
  }();
  return loaded;
}

#undef PERFML_LOOK_UP

inline bool failed(CUresult result, const std::string& what, std::string& why) {
  if (result == CUDA_SUCCESS) return false;
  const char* text = nullptr;
  if (driver().error) driver().error(result, &text);
  why = what + ": " + (text ? text : std::to_string(result));
  return true;
}

}  // namespace experiments
