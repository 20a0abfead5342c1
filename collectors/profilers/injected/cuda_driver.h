// The few driver functions that are needed beside CUPTI, looked up in the driver that is loaded.
//
// The library is not linked with libcuda: it is compiled where there may be none.
#pragma once

#include <cuda.h>

#include <dlfcn.h>

namespace driver {

// What a function is called here, and in the driver, by whose header a name may stand for a version.
#define PERFML_DRIVER(each) each(synchronize, cuCtxSynchronize) each(push, cuCtxPushCurrent) \
    each(pop, cuCtxPopCurrent) each(current, cuCtxGetCurrent) each(device, cuCtxGetDevice) \
    each(name, cuDeviceGetName) each(device_attribute, cuDeviceGetAttribute) \
    each(function_attribute, cuFuncGetAttribute) each(kernel_attribute, cuKernelGetAttribute) \
    each(active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    each(capturing, cuStreamIsCapturing) each(event_create, cuEventCreate) \
    each(event_record, cuEventRecord) each(event_wait, cuEventSynchronize) \
    each(elapsed, cuEventElapsedTime)

#define PERFML_TEXT_OF(name) #name
#define PERFML_TEXT(name) PERFML_TEXT_OF(name)
#define PERFML_MEMBER(member, name) decltype(&name) member = nullptr;
#define PERFML_LOOK_UP(member, name) \
  all.member = reinterpret_cast<decltype(all.member)>(dlsym(library, PERFML_TEXT(name)));

struct Functions {
  PERFML_DRIVER(PERFML_MEMBER)
  decltype(&cuStreamIsCapturing) capturing_own_default = nullptr;
};

inline const Functions& functions() {
  static const Functions loaded = [] {
    Functions all;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return all;
    PERFML_DRIVER(PERFML_LOOK_UP)
    all.capturing_own_default = reinterpret_cast<decltype(&cuStreamIsCapturing)>(
        dlsym(library, "cuStreamIsCapturing_ptsz"));
    return all;
  }();
  return loaded;
}

#undef PERFML_DRIVER

// Makes a context current for as long as it lives.
class Current {
 public:
  explicit Current(CUcontext context)
      : pushed_(functions().push && functions().push(context) == CUDA_SUCCESS) {}
  ~Current() {
    CUcontext before = nullptr;
    if (pushed_) functions().pop(&before);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_;
};

inline bool synchronize(CUcontext context) {
  Current current(context);
  return functions().synchronize && functions().synchronize() == CUDA_SUCCESS;
}

inline CUcontext current_context() {
  CUcontext context = nullptr;
  if (functions().current) functions().current(&context);
  return context;
}

// Whether launches into a stream become part of a CUDA graph instead of running.
inline bool is_capturing(CUstream stream, bool own_default_stream) {
  const auto ask = own_default_stream ? functions().capturing_own_default : functions().capturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

inline int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  if (functions().device_attribute) functions().device_attribute(&value, which, device);
  return value;
}

// A launch takes a CUfunction or, cast to one, a CUkernel: nothing but trying tells which.
inline int attribute(CUfunction function, CUfunction_attribute which, CUdevice device) {
  int value = -1;
  const Functions& all = functions();
  if (all.function_attribute && all.function_attribute(&value, which, function) == CUDA_SUCCESS)
    return value;
  if (all.kernel_attribute && all.kernel_attribute(&value, which,
                                                   reinterpret_cast<CUkernel>(function),
                                                   device) == CUDA_SUCCESS)
    return value;
  return -1;
}

}  // namespace driver
