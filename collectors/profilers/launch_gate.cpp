// Lets a profiler see chosen launches only: cudaProfilerStart and -Stop around each of them.
//
// The CUDA driver loads this library beside the profiler's own (CUDA_INJECTION64_PATH). Launches
// are counted from the program's own cudaProfilerStart if $PERFML_GATE_REGION is 1, else from its
// first launch; $PERFML_GATE_FILE holds the numbers to profile, one a line, counted from 0.

#include <cuda.h>
#include <cupti.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_set>

namespace {

std::mutex g_lock;
std::unordered_set<unsigned long long>* g_wanted = nullptr;
unsigned long long g_count = 0;
bool g_region = false;
bool g_counting = true;
thread_local int t_depth = 0;  // a runtime launch holds a driver launch
thread_local bool t_own = false;
thread_local bool t_open = false;

CUresult (*g_start)() = nullptr;
CUresult (*g_stop)() = nullptr;

void gate(bool open) {
  t_own = true;
  if (open) {
    g_start();
  } else {
    g_stop();
  }
  t_own = false;
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  const auto* info = static_cast<const CUpti_CallbackData*>(data);
  const bool enter = info->callbackSite == CUPTI_API_ENTER;
  if (t_own) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart ||
                                               id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop)) {
    if (enter) return;
    if (g_region) {
      std::lock_guard<std::mutex> guard(g_lock);
      g_counting = id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart;
    }
    if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) gate(false);
    return;
  }
  if (enter) {
    if (t_depth++ > 0) return;
    std::lock_guard<std::mutex> guard(g_lock);
    if (!g_counting) return;
    t_open = g_wanted->count(g_count++) > 0;
    if (t_open) gate(true);
  } else if (--t_depth == 0 && t_open) {
    gate(false);
    t_open = false;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  const char* path = std::getenv("PERFML_GATE_FILE");
  std::FILE* file = path ? std::fopen(path, "r") : nullptr;
  if (!file) return 1;
  g_wanted = new std::unordered_set<unsigned long long>;
  unsigned long long number = 0;
  while (std::fscanf(file, "%llu", &number) == 1) g_wanted->insert(number);
  std::fclose(file);
  const char* region = std::getenv("PERFML_GATE_REGION");
  g_region = region && region[0] == '1';
  g_counting = !g_region;
  // The program may have loaded the driver without making its symbols global.
  void* driver_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver_library) return 1;
  g_start = reinterpret_cast<CUresult (*)()>(dlsym(driver_library, "cuProfilerStart"));
  g_stop = reinterpret_cast<CUresult (*)()>(dlsym(driver_library, "cuProfilerStop"));
  if (!g_start || !g_stop) return 1;
  CUpti_SubscriberHandle subscriber = nullptr;
  const CUptiResult result = cuptiSubscribe(&subscriber, on_call, nullptr);
  if (result != CUPTI_SUCCESS) {
    std::fprintf(stderr, "perfml launch gate: cuptiSubscribe gave %d\n", static_cast<int>(result));
    return 1;
  }
  static const CUpti_CallbackId driver[] = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuProfilerStart,     CUPTI_DRIVER_TRACE_CBID_cuProfilerStop,
  };
  for (CUpti_CallbackId id : driver) {
    cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  return 1;
}
