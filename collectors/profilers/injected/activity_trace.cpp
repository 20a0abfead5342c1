// Timing pass for programs that know nothing of perfml: one line a kernel launch, no counters.
//
// The CUDA driver loads this library (CUDA_INJECTION64_PATH) and so does NVTX
// (NVTX_INJECTION64_PATH). CUPTI's activity records give the durations, the NVTX callbacks the
// ranges that were open on the launching thread. Nothing is serialised and no cache is flushed.
//
// Each process writes $PERFML_ACTIVITY_DIR/<pid>.tsv; its last line is "# end", so that a
// process that died is told apart from one that launched little.

#include <cuda.h>
#include <cupti.h>

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nvtx_ranges.h"

namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif

constexpr size_t kBufferBytes = 8u << 20;

struct Launch {
  unsigned long long sequence;
  unsigned long long instance;
  bool profiled;  // between cudaProfilerStart and cudaProfilerStop
  std::string path;
};

// Never destroyed: the driver still delivers records while static objects are torn down.
struct State {
  std::mutex lock;
  std::unordered_map<uint32_t, Launch> launches;
  std::FILE* file = nullptr;
  unsigned long long dropped = 0;
};

State& state() {
  static State* const only = new State;
  return *only;
}

std::atomic<unsigned long long> g_sequence{0};
std::atomic<bool> g_profiling{false};
std::atomic<bool> g_finished{false};
void note_launch(uint32_t correlation) {
  Launch launch{++g_sequence, 0, g_profiling.load(), ""};
  if (!nvtx::stack().empty()) {
    launch.instance = nvtx::stack().back().instance;
    launch.path = nvtx::stack().back().path;
  }
  std::lock_guard<std::mutex> guard(state().lock);
  state().launches[correlation] = std::move(launch);
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const auto* info = static_cast<const CUpti_CallbackData*>(data);
  if (info->callbackSite != CUPTI_API_ENTER) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) g_profiling = true;
    if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) g_profiling = false;
  }
  note_launch(info->correlationId);
}

void write_kernel(const KernelRecord& kernel) {
  State& all = state();
  std::lock_guard<std::mutex> guard(all.lock);
  if (!all.file) return;
  Launch launch{0, 0, false, ""};
  const auto found = all.launches.find(kernel.correlationId);
  if (found != all.launches.end()) launch = found->second;
  int status = 0;
  char* readable = abi::__cxa_demangle(kernel.name, nullptr, nullptr, &status);
  const std::string name = nvtx::plain(readable ? readable : kernel.name);
  std::free(readable);
  std::fprintf(all.file, "%llu\t%d\t%llu\t%llu\t%u\t%u\t(%d, %d, %d)\t(%d, %d, %d)\t%llu\t%s\t%s\n",
               launch.sequence, launch.profiled ? 1 : 0,
               static_cast<unsigned long long>(kernel.start),
               static_cast<unsigned long long>(kernel.end), kernel.deviceId, kernel.streamId,
               kernel.gridX, kernel.gridY, kernel.gridZ, kernel.blockX, kernel.blockY,
               kernel.blockZ, launch.instance, launch.path.c_str(), name.c_str());
}

void CUPTIAPI buffer_wanted(uint8_t** buffer, size_t* size, size_t* records) {
  void* memory = nullptr;
  *buffer = posix_memalign(&memory, 8, kBufferBytes) == 0 ? static_cast<uint8_t*>(memory) : nullptr;
  *size = *buffer ? kBufferBytes : 0;
  *records = 0;
}

void CUPTIAPI buffer_done(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
        record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      write_kernel(*reinterpret_cast<const KernelRecord*>(record));
    }
  }
  size_t dropped = 0;
  if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
    std::lock_guard<std::mutex> guard(state().lock);
    state().dropped += dropped;
  }
  std::free(buffer);
}

void finish() {
  if (g_finished.exchange(true)) return;
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  State& all = state();
  std::lock_guard<std::mutex> guard(all.lock);
  if (!all.file) return;
  std::fprintf(all.file, "# dropped %llu\n# end\n", all.dropped);
  std::fclose(all.file);
  all.file = nullptr;
}

bool failed(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return false;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::lock_guard<std::mutex> guard(state().lock);
  if (state().file) std::fprintf(state().file, "# error %s: %s\n", what, text ? text : "unknown");
  return true;
}

bool watch_launches(CUpti_SubscriberHandle subscriber) {
  static const CUpti_CallbackId driver[] = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunch,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
      CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuProfilerStart,
      CUPTI_DRIVER_TRACE_CBID_cuProfilerStop,
  };
  static const CUpti_CallbackId runtime[] = {
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000,
      CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
      CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060,
      CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060,
#if CUPTI_API_VERSION >= 130000
      CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000,
      CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000,
#endif
  };
  for (CUpti_CallbackId id : driver) {
    if (failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "driver call"))
      return false;
  }
  for (CUpti_CallbackId id : runtime) {
    if (failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, id), "runtime call"))
      return false;
  }
  return true;
}

}  // namespace

// Called by the CUDA driver when the program initialises it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* folder = std::getenv("PERFML_ACTIVITY_DIR");
    if (!folder) return;
    const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".tsv";
    state().file = std::fopen(path.c_str(), "w");
    if (!state().file) return;
    std::atexit(finish);
    CUpti_SubscriberHandle subscriber = nullptr;
    if (failed(cuptiSubscribe(&subscriber, on_call, nullptr), "subscribe")) return;
    if (!watch_launches(subscriber)) return;
    if (failed(cuptiActivityRegisterCallbacks(buffer_wanted, buffer_done), "buffers")) return;
    failed(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernel activity");
  });
  return 1;
}

// Called by NVTX once in every binary that uses it.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  return nvtx::install(export_table);
}
