// strangers check|before|after [case ...]: check compares with the host and times both sides without a
// profiler; before and after launch every case twice (warm-up, then once inside an NVTX range of its name).
#include "harness.h"
#ifndef ON_CPU
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
static double microseconds(const Case& c, int side) {
#ifdef ON_CPU
  (void)c; (void)side; return 0;
#else
  cudaEvent_t a, b; OK(cudaEventCreate(&a)); OK(cudaEventCreate(&b));
  float best = 1e30f;
  for (int i = 0; i < 9; ++i) {
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
  const bool warm = !getenv("STRANGERS_COLD");
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
      c.reset();
      if (warm) { c.launch(side); wait_for_device(); c.reset(); }
#ifndef ON_CPU
      nvtxRangePushA(entry.name);
#endif
      c.launch(side); wait_for_device();
#ifndef ON_CPU
      nvtxRangePop();
#endif
    }
  }
  return wrong ? 1 : 0;
}
