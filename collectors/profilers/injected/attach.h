// Measures a process that runs already, and was started with the library loaded, while it is asked to.
//
// $PERFML_ATTACH_DIR/<pid>.asked names the folder for the record, the seconds to measure, and of each
// second the part in which kernels are recorded, in three lines; it is removed when the record is
// whole. Until then the library has one thread, which looks for that file four times a second, and is
// subscribed to nothing.
//
// Timing every kernel costs a server 9 to 19 % of its throughput (H100). So kernels are recorded in one
// short window a second, at a random moment of it; between windows CUPTI records nothing. A launch is
// recorded if it is made in a window, a replay of a CUDA graph with all its kernels, wherever they end.
// What stays until the process ends (CUPTI 13.0, H100): 0.2 us a kernel of a CUDA graph after CUPTI's
// first call, whatever it is and whenever it comes; 0.4 to 0.8 us a launch once kernels were recorded.
// cuptiFinalize, from a thread of its own or from the exit of a call as NVIDIA advises, broke
// processes that went on launching; so did CUPTI_ACTIVITY_KIND_GRAPH_TRACE, which would be cheaper.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

namespace attach {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kPatience{0.25};  // for kernels that still run when the last window ends

// What the library does when it is asked.
struct Recorder {
  bool (*begin)(const std::string& folder);
  void (*window)(bool open);
  void (*seen)(size_t windows, double seconds);
  void (*finish)();
};

inline void sleep_until(Clock::time_point start, double after) {
  std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(Seconds(after)));
}

inline void measure(double seconds, double share, const Recorder& recorder) {
  const int windows = share < 1 ? std::max(1, static_cast<int>(std::lround(seconds))) : 1;
  const double period = seconds / windows, width = share * period;
  std::minstd_rand generator(static_cast<unsigned>(getpid()));
  std::uniform_real_distribution<double> place(0, period - width);
  const Clock::time_point start = Clock::now();
  Seconds seen{0};
  for (int i = 0; i < windows; ++i) {
    sleep_until(start, i * period + place(generator));
    recorder.window(true);
    const Clock::time_point opened = Clock::now();
    std::this_thread::sleep_for(Seconds(width));
    seen += Clock::now() - opened;
    recorder.window(false);
  }
  sleep_until(start, seconds + kPatience.count());
  recorder.seen(static_cast<size_t>(windows), seen.count());
}

inline void listen(const std::string& folder, const Recorder& recorder) {
  const std::string asked = folder + "/" + std::to_string(getpid()) + ".asked";
  std::ofstream(folder + "/" + std::to_string(getpid()) + ".ready") << getpid() << "\n";
  std::thread([=] {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(250))) {
      std::ifstream request(asked);
      std::string into;
      double seconds = 0, share = 0;
      if (!std::getline(request, into) || !(request >> seconds >> share)) continue;
      setenv("PERFML_COUNTERS_UNIT", "program", 1);
      setenv("PERFML_COUNTERS_TIMED", "1", 1);
      if (recorder.begin(into)) {
        measure(seconds, share, recorder);
        recorder.finish();
      }
      std::remove(asked.c_str());
    }
  }).detach();
}

}  // namespace attach
