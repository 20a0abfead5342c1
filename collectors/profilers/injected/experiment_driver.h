// The driver's functions that experiments need, looked up in the driver that is loaded.
//
// Green contexts came with CUDA 12.4: on an older driver the experiments that need them are left out.
#pragma once

#include <cuda.h>

#include <dlfcn.h>

#include <string>

#include "cuda_driver.h"

namespace experiments {

// What a function is called here, and in the driver.
#define PERFML_DRIVER(each) each(allocate, cuMemAlloc) each(free, cuMemFree) \
    each(memory, cuMemGetInfo) each(copy, cuMemcpyAsync) each(fill, cuMemsetD8Async) \
    each(to_host, cuMemcpyDtoHAsync) each(begin_capture, cuStreamBeginCapture) \
    each(end_capture, cuStreamEndCapture) each(instantiate, cuGraphInstantiateWithFlags) \
    each(run_graph, cuGraphLaunch) each(free_graph, cuGraphDestroy) \
    each(free_executable, cuGraphExecDestroy) \
    each(stream, cuStreamCreate) each(wait, cuStreamSynchronize) \
    each(wait_for_all, cuCtxSynchronize) each(event, cuEventCreate) each(record, cuEventRecord) \
    each(reached, cuEventQuery) each(launch, cuLaunchKernelEx) each(set, cuFuncSetAttribute) \
    each(get, cuFuncGetAttribute) each(function_of, cuKernelGetFunction) \
    each(blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    each(load, cuModuleLoadData) \
    each(function, cuModuleGetFunction) each(unload, cuModuleUnload) \
    each(variable, cuModuleGetGlobal) each(module_of, cuFuncGetModule) each(parameter, cuFuncGetParamInfo) \
    each(device, cuCtxGetDevice) each(attribute, cuDeviceGetAttribute) \
    each(resource, cuDeviceGetDevResource) each(split, cuDevSmResourceSplitByCount) \
    each(describe, cuDevResourceGenerateDesc) each(green, cuGreenCtxCreate) \
    each(green_stream, cuGreenCtxStreamCreate) each(end_green, cuGreenCtxDestroy) \
    each(end_stream, cuStreamDestroy) each(error, cuGetErrorString)

struct Driver {
  PERFML_DRIVER(PERFML_MEMBER)
  CUresult (*elapsed)(float*, CUevent, CUevent) = nullptr;  // its new name is of CUDA 12.8

  bool complete() const { return launch && elapsed && set && get && blocks && load; }
  bool has_graphs() const {
    return begin_capture && end_capture && instantiate && run_graph && free_graph &&
           free_executable;
  }
  bool has_green() const {
    return resource && split && describe && green && green_stream && end_green && end_stream;
  }
};

inline const Driver& driver() {
  static const Driver loaded = [] {
    Driver all;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return all;
    PERFML_DRIVER(PERFML_LOOK_UP)
    all.elapsed = reinterpret_cast<decltype(all.elapsed)>(dlsym(library, "cuEventElapsedTime"));
    return all;
  }();
  return loaded;
}

#undef PERFML_DRIVER

inline bool failed(CUresult result, const std::string& what, std::string& why) {
  if (result == CUDA_SUCCESS) return false;
  const char* text = nullptr;
  if (driver().error) driver().error(result, &text);
  why = what + ": " + (text ? text : std::to_string(result));
  return true;
}

}  // namespace experiments
