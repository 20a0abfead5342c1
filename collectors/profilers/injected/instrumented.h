// Counters of instrumented code, apart from those of the hardware.
//
// Instrumented code takes as long as four passes of the hardware's counters, and counts what a
// launch executes. So of several measurements each reads the hardware's counters, and instrumented
// code is run once, at the end, as long as every measurement executed as many instructions by the
// hardware's count; else it is run as often as the others.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "launches.h"
#include "record.h"

namespace counters {

using launches::Launch;

class Instrumented {
 public:
  static bool wanted(const record::Request& request) {
    return request.apart && request.sets > 1 && request.most_passes == 0 && !request.kernel_replay;
  }

  // The hardware's counters and those of instrumented code; all are the hardware's if none of them
  // counts instructions.
  static void part(const std::vector<std::string>& metrics, std::vector<std::string>& hardware,
                   std::vector<std::string>& instrumented) {
    hardware = metrics;
    if (place_of_count(metrics) == metrics.size()) return;
    const auto first = std::stable_partition(
        hardware.begin(), hardware.end(),
        [](const std::string& name) { return name.find("__sass_") == std::string::npos; });
    instrumented.assign(first, hardware.end());
    hardware.erase(first, hardware.end());
  }

  void run_apart() { apart_ = true; }
  bool apart() const { return apart_; }
  bool same_work() const { return same_work_; }
  // What the first measurement launched.
  const std::vector<Launch>& launches() const { return first_launches_; }

  void group_opens(const std::vector<std::string>& metrics) { column_ = place_of_count(metrics); }

  void keep(size_t place, const double* values, size_t width) {
    if (!apart_ || column_ >= width) return;
    counts_.resize(std::max(counts_.size(), place + 1));
    counts_[place] = values[column_];
  }

  void forget() { counts_.clear(); }

  // A measurement of the hardware's counters is complete.
  void measured(const std::vector<Launch>& launches, bool first) {
    if (first) {
      first_counts_ = counts_;
      first_launches_ = launches;
    } else {
      same_work_ = same_work_ && launches::same(launches, first_launches_) && same_counts();
    }
    forget();
  }

 private:
  static size_t place_of_count(const std::vector<std::string>& metrics) {
    const auto found = std::find(metrics.begin(), metrics.end(), "smsp__inst_executed.sum");
    return static_cast<size_t>(found - metrics.begin());
  }

  bool same_counts() const {
    constexpr double kAsMany = 1e-3;  // relative difference of two counts that is none
    return std::equal(counts_.begin(), counts_.end(), first_counts_.begin(), first_counts_.end(),
                      [](double now, double then) {
                        return std::fabs(now - then) <= kAsMany * then;
                      });
  }

  bool apart_ = false, same_work_ = true;
  size_t column_ = 0;
  std::vector<double> counts_, first_counts_;
  std::vector<Launch> first_launches_;
};

}  // namespace counters
