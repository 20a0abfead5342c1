// Stands in for libcuda where launches take time: a GPU of 132 multiprocessors that computes nothing
// but how long a kernel takes, on a clock of its own. Its memory is the host's.
//
// Kernels, by the number that is their handle:
//   1 takes 1320 us on one multiprocessor      3 takes 10 us, and adds 1 to the first word it is given
//   2 takes 10 us, 15 while others use DRAM    4 ends only where all multiprocessors are there
//   5 takes 5 s                                6 is launched on all multiprocessors only
//   7 takes 10 us, and adds 1 to a variable of its module
#include "fake_cupti.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace {

struct Stream {
  unsigned multiprocessors = 132;
};

struct Event {
  double at_us = 0;
  bool never = false;
};

Stream g_all;
double g_now_us = 0;
bool g_never = false;          // a launch that does not end lies before the next event
const int* g_stop = nullptr;   // of traffic that flows
bool g_dram = false;

constexpr size_t kTraffic = 100, kAtomics = 101, kEmpty = 102, kCompare = 103;

struct Module {
  std::string text;
  unsigned toggle = 0;
};
std::set<const void*> g_modules;
bool g_broken = false;  // a kernel went wrong: nothing works in this process any more

// A kernel of PTX takes 10 us in blocks of 128 threads, twice as long in twice as large ones, and 4
// while its switch is on. One whose atomics are then left out goes wrong.
void run(const Module& module, const CUlaunchConfig& config) {
  const bool on = module.toggle != 0;
  const unsigned block = config.blockDimX * config.blockDimY * config.blockDimZ;
  g_broken |= block * config.gridDimX != 256 * 128;  // other threads than the program's
  g_now_us += on ? 4 : block / 12.8;
  g_broken |= on && module.text.find(" atom.") != std::string::npos &&
              module.text.find("\natom.") == std::string::npos;
}

// Counts the words that differ, as perfml_compare does in chunks of 64 KiB.
void compare(void** given, unsigned chunks) {
  const auto* one = *static_cast<const unsigned**>(given[0]);
  const auto* other = *static_cast<const unsigned**>(given[1]);
  const auto words = *static_cast<const unsigned long long*>(given[2]);
  auto* counts = *static_cast<unsigned**>(given[3]);
  for (unsigned long long i = 0; i < words && i < chunks * 16384ull; ++i)
    counts[i / 16384] += one[i] != other[i];
}

bool flows() { return g_stop && *g_stop == 0; }

}  // namespace

extern "C" {

int fake_green_contexts = 0;  // that live
int fake_turns = 0;

CUresult CUDAAPI cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  *address = reinterpret_cast<CUdeviceptr>(std::calloc(1, size));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = size_t{std::getenv("FAKE_GPU_FULL") ? 0u : 80u} << 30;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostAlloc(void** address, size_t size, unsigned) {
  *address = std::calloc(1, size);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction, size_t i, size_t* offset, size_t* size) {
  *offset = 0;
  *size = sizeof(void*);
  return i ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream) {
  std::memcpy(to, reinterpret_cast<void*>(from), size);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size, CUstream) {
  if (size < 4096) std::memset(reinterpret_cast<void*>(address), value, size);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(new Stream);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSynchronize(void) {
  return g_broken ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream) {
  *reinterpret_cast<Event*>(event) = {g_now_us, g_never};
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
  if (g_broken) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return reinterpret_cast<Event*>(event)->never ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  const double us = reinterpret_cast<Event*>(to)->at_us - reinterpret_cast<Event*>(from)->at_us;
  *ms = static_cast<float>(us / 1000);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** given,
                                  void**) {
  const auto* stream = reinterpret_cast<const Stream*>(config->hStream);
  const unsigned there = stream ? stream->multiprocessors : g_all.multiprocessors;
  if (g_modules.count(function)) return run(*reinterpret_cast<Module*>(function), *config), CUDA_SUCCESS;
  switch (reinterpret_cast<size_t>(function)) {
    case 1: g_now_us += 1320.0 / there; break;
    case 2: g_now_us += flows() && g_dram ? 15 : 10; break;
    case 3: g_now_us += 10; ++**static_cast<int**>(given[0]); break;
    case 4: g_never |= there < 132; break;
    case 5: g_now_us += 5e6; break;
    case 6:
      if (there < 132) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
      g_now_us += 10;
      break;
    case 7: g_now_us += 10; ++fake_turns; break;
    case kCompare: compare(given, config->gridDimX); break;
    case kTraffic: case kAtomics:
      g_now_us += flows() ? 20 : 10;
      if (*static_cast<const int*>(given[4]) > 100) {
        g_stop = *static_cast<const int**>(given[3]);
        g_dram = *static_cast<const unsigned long long*>(given[2]) > 1u << 20;
      }
      break;
    default: g_now_us += 2;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int,
                                                             size_t shared) {
  *blocks = shared ? static_cast<int>(230'000 / shared) : 8;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  auto* made = new Module{static_cast<const char*>(image)};
  if (made->text.find("wgmma") != std::string::npos) return CUDA_ERROR_INVALID_PTX;
  g_modules.insert(made);
  *module = reinterpret_cast<CUmodule>(made);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
  *module = reinterpret_cast<CUmodule>(function);
  return reinterpret_cast<size_t>(function) == 7 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule module,
                                      const char* name) {
  const bool turns = std::strcmp(name, "turns") == 0 && reinterpret_cast<size_t>(module) == 7;
  if (!turns && std::strcmp(name, "perfml_switch")) return CUDA_ERROR_NOT_FOUND;
  *address = reinterpret_cast<CUdeviceptr>(
      turns ? reinterpret_cast<unsigned*>(&fake_turns) : &reinterpret_cast<Module*>(module)->toggle);
  *size = sizeof(unsigned);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (std::strncmp(name, "perfml", 6)) {
    *function = reinterpret_cast<CUfunction>(module);
    return CUDA_SUCCESS;
  }
  const bool traffic = std::strcmp(name, "perfml_traffic") == 0;
  const bool atomics = std::strcmp(name, "perfml_atomics") == 0;
  const bool compares = std::strcmp(name, "perfml_compare") == 0;
  *function = reinterpret_cast<CUfunction>(
      traffic ? kTraffic : atomics ? kAtomics : compares ? kCompare : kEmpty);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice*) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233'472; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232'448; break;
    default: *value = 1024;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetDevResource(CUdevice, CUdevResource* resource, CUdevResourceType) {
  resource->sm.smCount = 132;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevSmResourceSplitByCount(CUdevResource* chosen, unsigned* groups,
                                             const CUdevResource*, CUdevResource* rest, unsigned,
                                             unsigned wanted) {
  *groups = 1;
  chosen->sm.smCount = (wanted + 7) / 8 * 8;
  rest->sm.smCount = 132 - chosen->sm.smCount;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* part,
                                           unsigned) {
  *description = reinterpret_cast<CUdevResourceDesc>(size_t{part->sm.smCount});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice,
                                  unsigned) {
  *context = reinterpret_cast<CUgreenCtx>(description);
  ++fake_green_contexts;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx) {
  --fake_green_contexts;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned, int) {
  *stream = reinterpret_cast<CUstream>(
      new Stream{static_cast<unsigned>(reinterpret_cast<size_t>(context))});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "an error";
  return CUDA_SUCCESS;
}

}  // extern "C"
