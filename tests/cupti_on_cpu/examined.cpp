// A program for the stand-in of a GPU: words name what it launches, in order (see fake_gpu.cpp).
//
// units, dram, adds, waits, long, cluster, turns
//                                     a launch
// iterations                          three iterations of one launch of `units`, in a range each
// capture, captured                   a capture of a graph begins, and ends
// cooperative                         a cooperative launch
// pinned                              what is launched later is given memory of the host
// away                                a launch in another context
// reset                               cudaDeviceReset(), which fails while a green context lives
// loads                               PTX is given to the driver
// rests                               nothing more, for as long as it may
#include "fake_cupti.h"

#include <nvtx3/nvToolsExt.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

static CUdeviceptr g_word = 0;

static void launch(size_t function, const std::string& symbol, int context = 0) {
  void* parameters[] = {&g_word};
  cuLaunchKernel_params given = {};
  given.f = reinterpret_cast<CUfunction>(function);
  given.gridDimX = 256;
  given.blockDimX = 128;
  given.gridDimY = given.gridDimZ = given.blockDimY = given.blockDimZ = 1;
  given.kernelParams = parameters;
  fake_call(context, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, symbol.c_str(), &given);
  CUlaunchConfig config = {};
  cuLaunchKernelEx(&config, given.f, parameters, nullptr);
}

int main(int count, char** words) {
  void* library = dlopen(std::getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 3;
  reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))();
  cuMemAlloc(&g_word, 64);
  cuMemAlloc_v2_params allocated = {&g_word, 64};
  fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, nullptr, &allocated);
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "units") launch(1, "_Z5unitsPf");
    if (word == "dram") launch(2, "_Z4dramPf");
    if (word == "adds") launch(3, "_Z4addsPi");
    if (word == "waits") launch(4, "_Z5waitsPi");
    if (word == "long") launch(5, "_Z4longPi");
    if (word == "cluster") launch(6, "_Z7clusterPi");
    if (word == "turns") launch(7, "_Z5turnsPi");
    if (word == "away") launch(1, "_Z4awayPf", 1);
    if (word == "pinned") {
      void* host = nullptr;
      cuMemHostAlloc(&host, 64, 0);
      g_word = reinterpret_cast<CUdeviceptr>(host);
      cuMemHostAlloc_params pinned = {&host, 64, 0};
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, nullptr, &pinned);
    }
    if (word == "rests") sleep(1000);
    if (word == "loads") {  // what FAKE_PTX holds
      cuModuleLoadData_params given = {nullptr, std::getenv("FAKE_PTX")};
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData, nullptr, &given);
    }
    if (word == "cooperative") {
      cuLaunchCooperativeKernel_params given = {};
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, "_Z4gridPf", &given);
    }
    if (word == "reset") {
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2, nullptr, nullptr);
      if (fake_green_contexts > 0) return std::puts("cudaDeviceReset() failed"), 1;
    }
    if (word == "capture")
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, nullptr, nullptr);
    if (word == "captured")
      fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuStreamEndCapture, nullptr, nullptr);
    for (int n = 0; word == "iterations" && n < 3; ++n) {
      nvtxRangePushA(("iter_" + std::to_string(n)).c_str());
      nvtxRangePushA("layer");
      launch(1, "_Z5unitsPf");
      nvtxRangePop();
      nvtxRangePop();
    }
  }
  if (fake_turns) std::printf("turns %d\n", fake_turns);
  std::printf("word %d\n", *reinterpret_cast<int*>(g_word));
  // as of a program that checks cudaDeviceReset() at its end
  if (std::string(words[count - 1]) != "checked") return 0;
  return std::puts("cudaDeviceReset() failed"), 1;
}
