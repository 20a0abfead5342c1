// strangers2 check|before|after [case ...]: check compares with the host and times both sides without a
// profiler; before and after launch every case once to warm up, then three times inside NVTX ranges
// iter_K / name of the case.
#include "harness.h"
#ifndef ON_CPU
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#endif
std::vector<Entry>& entries() { static std::vector<Entry> all; return all; }
int multiprocessors() {
#ifdef ON_CPU
  return 4;
#else
  int n = 0; OK(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0)); return n;
#endif
}
static void wait_for_device() {
#ifndef ON_CPU
  OK(cudaGetLastError()); OK(cudaDeviceSynchronize());
#endif
}
static void open_range(const char* name) {
#ifndef ON_CPU
  nvtxRangePushA(name);
#else
  (void)name;
#endif
}
static void close_range() {
#ifndef ON_CPU
  nvtxRangePop();
#endif
}
static void recording(bool on) {  // with STRANGERS_MARK and ncu --profile-from-start off the warm-up is not profiled
#ifndef ON_CPU
  if (!getenv("STRANGERS_MARK")) return;
  if (on) cudaProfilerStart(); else cudaProfilerStop();
#else
  (void)on;
#endif
}
static double microseconds(const Case& c, int side) {
#ifdef ON_CPU
  (void)c; (void)side; return 0;
#else
  cudaEvent_t a, b; OK(cudaEventCreate(&a)); OK(cudaEventCreate(&b));
  float best = 1e30f;
  for (int i = 0; i < 9; ++i) {
    c.reset(); wait_for_device();
    OK(cudaEventRecord(a)); c.launch(side); OK(cudaEventRecord(b)); OK(cudaEventSynchronize(b));
    float ms; OK(cudaEventElapsedTime(&ms, a, b)); if (ms < best) best = ms;
  }
  OK(cudaEventDestroy(a)); OK(cudaEventDestroy(b));
  return best * 1000.0;
#endif
}
static bool wanted(int argc, char** argv, const char* name) {
  if (argc < 3) return true;
  for (int i = 2; i < argc; ++i) if (!strcmp(argv[i], name)) return true;
  return false;
}
int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  int wrong = 0;
  if (mode == "list") { for (const Entry& e : entries()) puts(e.name); return 0; }
  if (mode == "check") printf("case,before_us,after_us,ratio,error_before,error_after\n");
  for (const Entry& entry : entries()) {
    if (!wanted(argc, argv, entry.name)) continue;
    const Case c = entry.make();
    if (mode == "check") {
      double error[2];
      for (int side = 0; side < 2; ++side) { c.reset(); c.launch(side); wait_for_device(); error[side] = c.error(side); }
      const double before = microseconds(c, 0), after = microseconds(c, 1);
      const bool bad = !(error[0] < 2e-3 && error[1] < 2e-3); wrong += bad;
      printf("%s,%.1f,%.1f,%.2f,%.1e,%.1e%s\n", entry.name, before, after, before / (after + 1e-9), error[0], error[1], bad ? ",WRONG" : "");
      fflush(stdout);
    } else {
      const int side = mode == "after";
      c.reset(); c.launch(side); wait_for_device();
      recording(true);
      for (int i = 0; i < 3; ++i) {
        c.reset(); wait_for_device();
        const std::string iteration = "iter_" + std::to_string(i);
        open_range(iteration.c_str()); open_range(entry.name);
        c.launch(side); wait_for_device();
        close_range(); close_range();
      }
      recording(false);
    }
  }
  return wrong ? 1 : 0;
}
