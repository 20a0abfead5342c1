// The few driver functions that are needed beside CUPTI, looked up in the driver that is loaded.
//
// The library is not linked with libcuda: it is compiled where there may be none.
#pragma once

#include <cuda.h>

#include <dlfcn.h>

#include <type_traits>

namespace driver {

struct Functions {
  CUresult (*synchronize)() = nullptr;
  CUresult (*push)(CUcontext) = nullptr;
  CUresult (*pop)(CUcontext*) = nullptr;
  CUresult (*current)(CUcontext*) = nullptr;
  CUresult (*device)(CUdevice*) = nullptr;
  CUresult (*name)(char*, int, CUdevice) = nullptr;
  CUresult (*device_attribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  CUresult (*function_attribute)(int*, CUfunction_attribute, CUfunction) = nullptr;
  CUresult (*kernel_attribute)(int*, CUfunction_attribute, CUkernel, CUdevice) = nullptr;
  CUresult (*active_blocks)(int*, CUfunction, int, size_t) = nullptr;
  CUresult (*capturing)(CUstream, CUstreamCaptureStatus*) = nullptr;
  CUresult (*capturing_own_default)(CUstream, CUstreamCaptureStatus*) = nullptr;
};

inline const Functions& functions() {
  static const Functions loaded = [] {
    Functions all;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return all;
    auto look_up = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, name));
    };
    look_up(all.synchronize, "cuCtxSynchronize");
    look_up(all.push, "cuCtxPushCurrent_v2");
    look_up(all.pop, "cuCtxPopCurrent_v2");
    look_up(all.current, "cuCtxGetCurrent");
    look_up(all.device, "cuCtxGetDevice");
    look_up(all.name, "cuDeviceGetName");
    look_up(all.device_attribute, "cuDeviceGetAttribute");
    look_up(all.function_attribute, "cuFuncGetAttribute");
    look_up(all.kernel_attribute, "cuKernelGetAttribute");
    look_up(all.active_blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    look_up(all.capturing, "cuStreamIsCapturing");
    look_up(all.capturing_own_default, "cuStreamIsCapturing_ptsz");
    return all;
  }();
  return loaded;
}

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
