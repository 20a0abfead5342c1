// Whether a mutant takes the path of its kernel, and whether its results are the kernel's.
//
// A number of a mutant is that of a repair only if it executes the same blocks equally often: fewer
// turns of a loop are another program. What it changes of the results is said beside its number.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conditions.h"
#include "experiment_driver.h"
#include "memory_image.h"
#include "mutants.h"

namespace experiments {

class MutantCheck {
 public:
  // Runs the launch under a condition, once, and waits; its switch is set before.
  using Once = std::function<bool(const Condition&, std::string& why)>;

  MutantCheck(Image& image, Comparison& comparison, CUstream stream, Once once)
      : image_(image), comparison_(comparison), stream_(stream), once_(std::move(once)) {}
  ~MutantCheck() {
    if (scratch_ && !given_up) driver().free(scratch_);
  }
  MutantCheck(const MutantCheck&) = delete;
  MutantCheck& operator=(const MutantCheck&) = delete;

  bool given_up = false;  // a kernel does not end: the driver would wait for it

  // Part of the words that the control writes which the mutant leaves otherwise, beyond those that
  // two runs of the control do; negative where that is not known.
  double changed(const Condition& control, const Condition& mutant, std::string& why) {
    std::vector<Region> written, other;
    unsigned long long words = 0, ignored = 0, noise = 0, differ = 0;
    if (!fresh(control, why) || !image_.changed(comparison_, stream_, written, words, why) ||
        !keep(written, why) || !fresh(control, why) || !against(written, noise, why) ||
        !fresh(mutant, why) || !against(written, differ, why) ||
        !image_.changed(comparison_, stream_, other, ignored, why))
      return -1;
    for (const Region& region : other) {
      bool known = false;
      for (const Region& each : written)
        known |= region.address < each.address + each.size && each.address < region.address + region.size;
      if (!known) differ += region.size / sizeof(uint32_t);
    }
    if (words == 0) return differ > 0 ? 1 : 0;
    return differ <= noise ? 0 : std::min(1.0, static_cast<double>(differ - noise) / static_cast<double>(words));
  }

  // 1 if the blocks are executed equally often, 0 if not, -1 if that is not known: it cannot be
  // counted, or differs between two runs of the control.
  int same_path(const LoadedMutants::Counted& control, const LoadedMutants::Counted& mutant,
                std::string& why) {
    if (!control.condition.instead || !mutant.condition.instead || control.bytes != mutant.bytes) return -1;
    const std::vector<uint64_t> first = counts(control, false, why), again = counts(control, false, why);
    const std::vector<uint64_t> other = counts(mutant, true, why);
    if (first.empty() || first != again || other.empty()) return -1;
    return first == other ? 1 : 0;
  }

 private:
  bool fresh(const Condition& condition, std::string& why) {
    return image_.put_back(stream_, why) && once_(condition, why);
  }

  // Copies what was written, so that `copy` of each region is that.
  bool keep(std::vector<Region>& regions, std::string& why) {
    size_t total = 0;
    for (const Region& region : regions) total += region.size;
    if (total == 0) return true;
    if (scratch_) driver().free(scratch_);
    scratch_ = 0;
    if (failed(driver().allocate(&scratch_, total), "copy of the results", why)) return false;
    size_t offset = 0;
    for (Region& region : regions) {
      region.copy = scratch_ + offset;
      if (failed(driver().copy(region.copy, region.address, region.size, stream_),
                 "copy of the results", why))
        return false;
      offset += region.size;
    }
    return true;
  }

  bool against(const std::vector<Region>& regions, unsigned long long& words, std::string& why) {
    for (const Region& region : regions) {
      std::vector<uint32_t> of_chunk;
      if (!comparison_.differ(region, stream_, of_chunk, why)) return false;
      for (uint32_t count : of_chunk) words += count;
    }
    return true;
  }

  std::vector<uint64_t> counts(const LoadedMutants::Counted& which, bool on, std::string& why) {
    const Driver& all = driver();
    Condition condition = which.condition;
    condition.on = on;
    std::vector<uint64_t> made(which.bytes / sizeof(uint64_t));
    if (!image_.put_back(stream_, why) ||
        failed(all.fill(which.counts, 0, which.bytes, stream_), "counts", why) ||
        !once_(condition, why) ||
        failed(all.to_host(made.data(), which.counts, which.bytes, stream_), "counts", why) ||
        failed(all.wait(stream_), "counts", why))
      return {};
    return made;
  }

  Image& image_;
  Comparison& comparison_;
  CUstream stream_;
  Once once_;
  CUdeviceptr scratch_ = 0;
};

}  // namespace experiments
