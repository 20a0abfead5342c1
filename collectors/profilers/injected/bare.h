// How long iterations take while nothing is recorded: an event on the GPU where each begins.
//
// No callback and no activity of CUPTI is on meanwhile: the ranges alone are followed. A process
// writes $PERFML_BARE_DIR/<pid>.steps, a line of microseconds an iteration, from its begin to that
// of the next one; a program's last one to its own end.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_driver.h"
#include "nvtx_ranges.h"
#include "record.h"

namespace bare {

constexpr size_t kMost = 1000;  // events that are kept

struct Mark {
  CUevent event = nullptr;
  std::chrono::steady_clock::time_point host;
};

class Steps {
 public:
  static Steps& only() {
    static Steps* steps = new Steps;  // never destroyed, as threads may still push
    return *steps;
  }

  void open() {
    std::lock_guard<std::mutex> guard(lock_);
    folder_ = record::text_from("PERFML_BARE_DIR");
    begins_.clear();
    inside_ = false;
  }

  void pushed(const std::string& name, size_t depth) {
    if (!nvtx::is_iteration(name)) return;
    std::lock_guard<std::mutex> guard(lock_);
    if (folder_.empty() || inside_ || begins_.size() >= kMost) return;
    if (begins_.empty()) {
      thread_ = std::this_thread::get_id();
      // after the driver's own, so before them
      static std::once_flag once;
      std::call_once(once, [] { std::atexit([] { only().close(); }); });
    }
    if (thread_ != std::this_thread::get_id()) return;
    inside_ = true;
    depth_ = depth;
    begins_.push_back(mark());
  }

  void popping(size_t depth) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!inside_ || depth != depth_ || thread_ != std::this_thread::get_id()) return;
    inside_ = false;
    end_ = mark();
  }

  void close() {
    std::lock_guard<std::mutex> guard(lock_);
    if (folder_.empty() || begins_.empty()) return;
    if (!inside_) begins_.push_back(end_);
    const std::string path = folder_ + "/" + std::to_string(getpid()) + ".steps";
    folder_.clear();
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) return;
    for (size_t i = 1; i < begins_.size(); ++i)
      std::fprintf(file, "%.3f\n", between(begins_[i - 1], begins_[i]));
    std::fclose(file);
  }

 private:
  static Mark mark() {
    Mark made;
    const driver::Functions& all = driver::functions();
    const bool known = all.event_create && all.event_record && all.event_wait && all.elapsed;
    if (known && driver::current_context() && !driver::is_capturing(nullptr, false) &&
        all.event_create(&made.event, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        all.event_record(made.event, nullptr) != CUDA_SUCCESS)
      made.event = nullptr;
    made.host = std::chrono::steady_clock::now();
    return made;
  }

  // Microseconds on the GPU; on the host's clock where there was no context yet.
  static double between(const Mark& first, const Mark& last) {
    const driver::Functions& all = driver::functions();
    float milliseconds = 0;
    if (first.event && last.event && all.event_wait(last.event) == CUDA_SUCCESS &&
        all.elapsed(&milliseconds, first.event, last.event) == CUDA_SUCCESS)
      return 1e3 * static_cast<double>(milliseconds);
    return std::chrono::duration<double, std::micro>(last.host - first.host).count();
  }

  std::mutex lock_;
  std::string folder_;
  std::vector<Mark> begins_;
  Mark end_;
  std::thread::id thread_;
  size_t depth_ = 0;
  bool inside_ = false;
};

inline void pushed(const std::string& name, size_t depth) { Steps::only().pushed(name, depth); }
inline void popping(size_t depth) { Steps::only().popping(depth); }
inline void close() { Steps::only().close(); }

inline void listen() {
  Steps::only().open();
  nvtx::listener() = {pushed, popping, nullptr};
}

}  // namespace bare
