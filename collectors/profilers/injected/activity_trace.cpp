// Timing pass for programs that know nothing of perfml: one line a kernel launch, copy or fill, no
// counters.
//
// The CUDA driver loads this library (CUDA_INJECTION64_PATH) and so does NVTX
// (NVTX_INJECTION64_PATH). CUPTI's activity records give the durations, the NVTX callbacks the
// ranges that were open on the launching thread. Nothing is serialised and no cache is flushed.
//
// Each process writes $PERFML_ACTIVITY_DIR/<pid>.tsv; its last line is "# end", so that a
// process that died is told apart from one that launched little.

#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "activity.h"
#include "launches.h"
#include "nvtx_ranges.h"
#include "record.h"

namespace {

// Never destroyed: the driver still delivers records while static objects are torn down.
struct State {
  std::mutex lock;
  std::unordered_map<uint32_t, activity::Made> launches;
  record::File file;
  std::atomic<size_t> dropped{0};
};

State& state() {
  static State* const only = new State;
  return *only;
}

std::atomic<unsigned long long> g_sequence{0};
std::atomic<bool> g_profiling{false};
std::atomic<bool> g_finished{false};

void note_launch(uint32_t correlation) {
  activity::Made launch{++g_sequence, 0, g_profiling.load(), ""};
  if (const nvtx::Range* range = nvtx::innermost()) {
    launch.instance = range->instance;
    launch.path = range->path;
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

activity::Made made_by(uint32_t correlation) {
  std::lock_guard<std::mutex> guard(state().lock);
  const auto found = state().launches.find(correlation);
  return found != state().launches.end() ? found->second : activity::Made{};
}

void kernel_ran(const activity::KernelRecord& kernel) {
  state().file.line(activity::line(kernel, made_by(kernel.correlationId)));
}

void memory_moved(const activity::Moved& moved) {
  state().file.line(activity::line(moved, made_by(moved.correlation)));
}

void records_dropped(size_t count) { state().dropped += count; }

void finish() {
  if (!state().file.is_open() || g_finished.exchange(true)) return;
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  state().file.note("dropped", state().dropped);
  state().file.close();
}

bool failed(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return false;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  state().file.note(std::string("error ") + what + ": " + (text ? text : "unknown"));
  return true;
}

bool watch_launches(CUpti_SubscriberHandle subscriber) {
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
  for (CUpti_CallbackId id : launches::kDriverCalls) {
    if (failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id), "driver call"))
      return false;
  }
  for (CUpti_CallbackId id : runtime) {
    if (failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, id), "runtime call"))
      return false;
  }
  return !failed(activity::watch_memory(subscriber), "memory calls");
}

}  // namespace

// Called by the CUDA driver when the program initialises it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string folder = record::text_from("PERFML_ACTIVITY_DIR");
    if (folder.empty() || !state().file.open(folder)) return;
    std::atexit(finish);
    activity::listener() = {kernel_ran, memory_moved, records_dropped};
    CUpti_SubscriberHandle subscriber = nullptr;
    if (failed(cuptiSubscribe(&subscriber, on_call, nullptr), "subscribe")) return;
    if (!watch_launches(subscriber)) return;
    if (failed(cuptiActivityRegisterCallbacks(activity::buffer_wanted, activity::buffer_done),
               "buffers"))
      return;
    failed(activity::enable(), "activity");
  });
  return 1;
}

// Called by NVTX once in every binary that uses it.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  return nvtx::install(export_table);
}
