// A program that repeats itself, without a GPU: what it does is named by its words.
//
// iter:N           N iterations of three launches, each in a range
// pairs:N          the same between cudaProfilerStart and cudaProfilerStop
// unlike:N         N pairs, each with a kernel of its own
// bare:N           the same without any mark
// part:N           N iterations, counted anew, of one launch in a range of this part's own
// epoch:N          N iterations, counted anew, of the same work as iter:N
// odd:N            one iteration that launches another kernel as its second
// more:N           one iteration of N launches more
// contexts:N       iterations whose second launch is in another context
// threads:N        iterations whose last launch is made by a thread of its own
// backward:N       the same while the iteration's thread waits for it in a range
// named:N          as threads:N, in a range of that thread
// library:N        iterations of launches in a library's ranges, which have a domain of their own
// graph:N          iterations that launch a graph
// meeting:N        iterations in which two threads launch into a context each, in turns that change;
//                  the second kernels of the two wait for each other
// captured:N       iterations with a launch into a stream that is captured
// copy:N           iterations that copy 4096 bytes from the host in a range of their own
// refused:N        iterations with a launch that the driver refuses
// fork             a child that ends as programs do, which is not by _exit
// abort, exit      end at once, by a signal or without cleaning up; exit as the first word: before
//                  anything is launched
//
// Without a word it launches nothing.
#include "fake_cupti.h"

#include <nvtx3/nvToolsExt.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

int g_iteration = 0, g_part = 0;

void in_range(const char* name, int context, const char* kernel, unsigned blocks) {
  nvtxRangePushA(name);
  fake_launch(context, kernel, blocks, 128);
  nvtxRangePop();
}

void marked_by_library(const char* kernel) {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("CCCL");
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = "cub::Device";
  nvtxDomainRangePushEx(domain, &event);
  fake_launch(0, kernel, 5, 64);
  nvtxDomainRangePop(domain);
}

void profiler(CUpti_CallbackId id) { fake_call(0, id, nullptr, nullptr); }

std::atomic<int> g_waiting{0};

// A kernel that waits for one of another context, as those of collectives do.
void wait_for_the_other(const char* symbol) {
  if (std::strcmp(symbol, "_Z7collectPf") != 0) return;
  const int came = ++g_waiting;
  const int both = came + came % 2;
  for (int i = 0; i < 300'000 && g_waiting < both; ++i) usleep(1000);
  if (g_waiting < both) std::abort();
}

void meeting() {
  fake_runs(wait_for_the_other);
  std::thread threads[2];
  for (int turn = 0; turn < 2; ++turn) {
    const int context = (turn + g_iteration) % 2;
    const char* mine = context == 0 ? "_Z4leftPf" : "_Z5rightPf";
    fake_launch(context, mine, 10, 128);
    threads[turn] = std::thread([context] { fake_launch(context, "_Z7collectPf", 20, 64); });
  }
  for (std::thread& each : threads) each.join();
}

void work(const std::string& kind, bool odd, int more) {
  if (kind == "graph") {
    cuGraphLaunch_params given = {};
    fake_call(0, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, nullptr, &given);
    return;
  }
  if (kind == "meeting") return meeting();
  if (kind == "part" || kind == "unlike") {
    const std::string number = std::to_string(kind == "part" ? g_part : g_iteration);
    return in_range(("part_" + number).c_str(), 0, ("_Z5part" + number + "Pf").c_str(), 10);
  }
  in_range("conv", 0, "_Z4convPf", 10);
  if (kind == "captured") {
    fake_capture(true);
    in_range("captured", 0, "_Z8capturedPf", 40);
    fake_capture(false);
  }
  if (kind == "copy") {
    nvtxRangePushA("upload");
    fake_copy(4096);
    nvtxRangePop();
  }
  if (kind == "refused") {
    cuLaunchKernel_params given = {};
    fake_call_that(true, 0, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "_Z7refusedPf", &given);
  }
  in_range("a/b", kind == "contexts" ? 1 : 0, odd ? "_Z5otherPf" : "_Z4poolPf", 20);
  if (kind == "library") {
    marked_by_library("_Z4sortPf");
    nvtxRangePushA("layer");
    marked_by_library("_Z4scanPf");
    fake_launch(0, "_Z3addPf", 30, 64);
    nvtxRangePop();
    return;
  }
  if (kind == "backward") {
    nvtxRangePushA("backward");
    std::thread([] {
      fake_launch(0, "_Z8backwardPf", 30, 64);
      marked_by_library("_Z4sortPf");
    }).join();
    nvtxRangePop();
  } else if (kind == "threads") {
    std::thread([] { fake_launch(0, "_Z8backwardPf", 30, 64); }).join();
  } else if (kind == "named") {
    std::thread([] {
      nvtxRangePushA("fc.backward");
      fake_launch(0, "_Z8backwardPf", 30, 64);
      nvtxRangePop();
    }).join();
  } else {
    fake_launch(0, "_Z4tailPf", 30, 64);
  }
  for (int i = 0; i < more; ++i) fake_launch(0, "_Z4morePf", 1, 32);
}

void iteration(const std::string& kind, bool odd, int more) {
  const std::string name = "iter_" + std::to_string(g_iteration++);
  const bool paired = kind == "pairs" || kind == "unlike";
  const bool marked = kind != "bare" && !paired;
  if (marked) nvtxRangePushA(name.c_str());
  if (paired) profiler(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
  work(kind, odd, more);
  if (paired) profiler(CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
  if (marked) nvtxRangePop();
}

}  // namespace

int main(int count, char** words) {
  if (const char* injected = std::getenv("CUDA_INJECTION64_PATH")) {
    void* library = dlopen(injected, RTLD_NOW);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 3;
    reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))();
  }
  if (count == 1) return 0;
  if (words[1] == std::string("exit")) _exit(0);
  fake_launch(0, "_Z5setupPf", 1, 32);
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::string kind = word.substr(0, word.find(':'));
    const int number = word.find(':') < word.size() ? std::atoi(&word[word.find(':') + 1]) : 0;
    if (kind == "abort") std::abort();
    if (kind == "exit") _exit(0);
    if (kind == "fork") {
      const pid_t child = fork();
      if (child == 0) {
        iteration("iter", false, 0);  // ranges are harmless; CUDA would not work here
        std::exit(0);
      }
      waitpid(child, nullptr, 0);
      continue;
    }
    if (kind == "odd" || kind == "more") {
      iteration("iter", kind == "odd", kind == "more" ? number : 0);
      continue;
    }
    if (kind == "part" || kind == "epoch") g_iteration = 0;
    g_part += kind == "part";
    for (int n = 0; n < number; ++n) iteration(kind, false, 0);
  }
  return 0;
}
