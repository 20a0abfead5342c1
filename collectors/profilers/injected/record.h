// What the collector asks of a process, and the file in which the process answers.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nvtx_ranges.h"

namespace record {

inline std::string text_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

inline size_t number_from(const char* variable, size_t otherwise) {
  const std::string text = text_from(variable);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

struct Request {
  std::vector<std::string> metrics;
  // CUPTI repeats each launch, instead of the program its iterations
  bool kernel_replay = text_from("PERFML_COUNTERS_REPLAY") == "kernel";
  // what is repeated: "nvtx", "region" or "program"; empty: look what there is
  std::string unit = text_from("PERFML_COUNTERS_UNIT");
  // iterations that are timed, without counters, before the first counter pass
  size_t timed = number_from("PERFML_COUNTERS_TIMED", 0);
  // complete measurements of an iteration
  size_t sets = number_from("PERFML_COUNTERS_SETS", 1);
  // metrics fall into groups of at most so many passes (0: one group), measured from this one on
  size_t most_passes = number_from("PERFML_COUNTERS_PASSES", 0);
  size_t first_group = number_from("PERFML_COUNTERS_GROUP", 0);
  // launches of an iteration, where an earlier run has shown them
  size_t launches = number_from("PERFML_COUNTERS_LAUNCHES", 0);
  // bytes that the counters of one session may take
  size_t memory = number_from("PERFML_COUNTERS_MEMORY", size_t{2} << 30);
  // instrumented code may be run apart from the hardware's counters, once
  bool apart = number_from("PERFML_COUNTERS_APART", 1) != 0;
  // iterations count between cudaProfilerStart and cudaProfilerStop alone
  bool region_only = number_from("PERFML_COUNTERS_REGION", 0) != 0;
  // the program begins its iterations anew with other work: `timed` and `sets` are of each part
  bool parts = number_from("PERFML_COUNTERS_PARTS", 0) != 0;

  // kernels whose launches alone are counted, by their demangled names, and which of those
  // launches, from 0; empty: all
  std::set<std::string> kernels;
  size_t first_launch = number_from("PERFML_COUNTERS_FIRST", 0);
  size_t end_launch = number_from("PERFML_COUNTERS_END", 0);

  void read_metrics() {
    std::ifstream names(text_from("PERFML_COUNTERS_METRICS"));
    for (std::string name; std::getline(names, name);) {
      if (!name.empty()) metrics.push_back(name);
    }
    std::ifstream chosen(text_from("PERFML_COUNTERS_KERNELS"));
    for (std::string name; std::getline(chosen, name);) kernels.insert(name);
  }
};

// The lines of one process; its last is "# end".
//
// A child made by fork shares the file and what is not written yet, and has no use of CUDA: it
// writes nothing.
class File {
 public:
  bool open(const std::string& folder) {
    const std::string path = folder + "/" + std::to_string(getpid()) + ".tsv";
    file_ = std::fopen(path.c_str(), "w");
    if (!file_) return false;
    forked() = this;
    pthread_atfork([] { forked()->before_fork(); }, [] { forked()->lock_.unlock(); },
                   [] { forked()->after_fork(); });
    return true;
  }

  bool is_open() const { return file_ != nullptr; }

  void note(const std::string& text) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!file_) return;
    std::fprintf(file_, "# %s\n", nvtx::plain(text.c_str()).c_str());
    std::fflush(file_);
  }

  void note(const std::string& name, size_t number) { note(name + " " + std::to_string(number)); }

  void line(const std::string& text) {
    std::lock_guard<std::mutex> guard(lock_);
    if (file_) std::fprintf(file_, "%s\n", text.c_str());
  }

  void close() {
    std::lock_guard<std::mutex> guard(lock_);
    if (!file_) return;
    std::fprintf(file_, "# end\n");
    std::fclose(file_);
    file_ = nullptr;
  }

 private:
  static File*& forked() {
    static File* only = nullptr;
    return only;
  }

  void before_fork() {
    lock_.lock();
    if (file_) std::fflush(file_);
  }

  void after_fork() {
    file_ = nullptr;
    lock_.unlock();
  }

  std::mutex lock_;
  std::FILE* file_ = nullptr;
};

}  // namespace record
