// Counters through CUPTI's Range Profiler: which metrics fit together, and one session a context.
//
// Order of calls that works (CUPTI 13.0): host object, configuration image, Enable, counter data
// image, SetConfig; a pass is Start, the work, Stop; after the last one DecodeData once, then the
// values. A session is used again with an empty image and SetConfig; other metrics need a new one.
#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cuda_driver.h"

// Every call takes a structure that states its own size, by which CUPTI tells versions apart.
#define CUPTI_PARAMETERS(type, name) \
  type name = {};                    \
  name.structSize = type##_STRUCT_SIZE

namespace counters {

constexpr int kOrdersTried = 6;

// True if a call failed; `why` then says which one and how.
inline bool failed(CUptiResult result, const char* call, std::string& why) {
  if (result == CUPTI_SUCCESS) return false;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  why = std::string(call) + ": " + (text ? text : "unknown");
  return true;
}

// Metrics that are measured together, for one kind of chip; works without a GPU.
class Group {
 public:
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() { close(); }

  bool open(const std::string& chip, const std::vector<uint8_t>& availability,
            const std::vector<std::string>& metrics, std::string& why) {
    close();
    metrics_ = metrics;
    names_.clear();
    for (const std::string& metric : metrics_) names_.push_back(metric.c_str());
    CUPTI_PARAMETERS(CUpti_Profiler_Host_Initialize_Params, host);
    host.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    host.pChipName = chip.c_str();
    host.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
    if (failed(cuptiProfilerHostInitialize(&host), "HostInitialize", why)) return false;
    host_ = host.pHostObject;
    CUPTI_PARAMETERS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = host_;
    add.ppMetricNames = names_.data();
    add.numMetrics = names_.size();
    if (failed(cuptiProfilerHostConfigAddMetrics(&add), "ConfigAddMetrics", why)) return false;
    CUPTI_PARAMETERS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = host_;
    if (failed(cuptiProfilerHostGetConfigImageSize(&size), "GetConfigImageSize", why)) return false;
    image_.assign(size.configImageSize, 0);
    CUPTI_PARAMETERS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = host_;
    image.pConfigImage = image_.data();
    image.configImageSize = image_.size();
    if (failed(cuptiProfilerHostGetConfigImage(&image), "GetConfigImage", why)) return false;
    CUPTI_PARAMETERS(CUpti_Profiler_Host_GetNumOfPasses_Params, passes);
    passes.pConfigImage = image_.data();
    passes.configImageSize = image_.size();
    if (failed(cuptiProfilerHostGetNumOfPasses(&passes), "GetNumOfPasses", why)) return false;
    passes_ = passes.numOfPasses;
    return true;
  }

  size_t passes() const { return passes_; }
  const std::vector<std::string>& metrics() const { return metrics_; }
  std::vector<const char*>& names() { return names_; }
  const std::vector<uint8_t>& image() const { return image_; }
  CUpti_Profiler_Host_Object* host() const { return host_; }

 private:
  void close() {
    if (!host_) return;
    CUPTI_PARAMETERS(CUpti_Profiler_Host_Deinitialize_Params, end);
    end.pHostObject = host_;
    cuptiProfilerHostDeinitialize(&end);
    host_ = nullptr;
  }

  std::vector<std::string> metrics_;
  std::vector<const char*> names_;
  std::vector<uint8_t> image_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  size_t passes_ = 0;
};

// The counters of one context. Every call returns false on failure and says why.
class Session {
 public:
  explicit Session(CUcontext context) : context_(context) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Reserves `wanted` ranges, or as many as `memory` bytes hold: `reserved()` tells.
  bool open(Group& group, size_t wanted, size_t memory, CUpti_ProfilerReplayMode replay,
            std::string& why) {
    driver::Current current(context_);
    if (!close(why)) return false;
    group_ = &group;
    replay_ = replay;
    CUPTI_PARAMETERS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = context_;
    if (failed(cuptiRangeProfilerEnable(&enable), "Enable", why)) return false;
    profiler_ = enable.pRangeProfilerObject;
    size_t few = 0, more = 0, bytes = 0;
    if (!image_bytes(1, few, why) || !image_bytes(11, more, why)) return false;
    const size_t a_range = std::max<size_t>(1, (more - few) / 10);
    reserved_ = std::max<size_t>(1, std::min(wanted, memory / a_range));
    if (!image_bytes(reserved_, bytes, why)) return false;
    image_.assign(bytes, 0);
    return again(why);
  }

  // Makes an open session ready for the first pass of the same metrics.
  bool again(std::string& why) {
    driver::Current current(context_);
    CUPTI_PARAMETERS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, empty);
    empty.pRangeProfilerObject = profiler_;
    empty.counterDataSize = image_.size();
    empty.pCounterData = image_.data();
    if (failed(cuptiRangeProfilerCounterDataImageInitialize(&empty), "CounterDataImageInitialize",
               why))
      return false;
    CUPTI_PARAMETERS(CUpti_RangeProfiler_SetConfig_Params, config);
    config.pRangeProfilerObject = profiler_;
    config.pConfig = group_->image().data();
    config.configSize = group_->image().size();
    config.pCounterDataImage = image_.data();
    config.counterDataImageSize = image_.size();
    config.range = CUPTI_AutoRange;
    config.replayMode = replay_;
    config.maxRangesPerPass = reserved_;
    config.numNestingLevels = 1;
    config.minNestingLevel = 1;
    config.passIndex = 0;
    config.targetNestingLevel = 1;
    return !failed(cuptiRangeProfilerSetConfig(&config), "SetConfig", why);
  }

  bool start(std::string& why) {
    driver::Current current(context_);
    CUPTI_PARAMETERS(CUpti_RangeProfiler_Start_Params, start);
    start.pRangeProfilerObject = profiler_;
    return !failed(cuptiRangeProfilerStart(&start), "Start", why);
  }

  // `complete` tells whether all passes have been taken.
  bool stop(bool& complete, std::string& why) {
    driver::Current current(context_);
    CUPTI_PARAMETERS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = profiler_;
    if (failed(cuptiRangeProfilerStop(&stop), "Stop", why)) return false;
    complete = stop.isAllPassSubmitted != 0;
    return true;
  }

  // Values of every range, metrics of a range side by side; the ranges CUPTI says it dropped.
  bool read(std::vector<double>& values, size_t& ranges, size_t& dropped, std::string& why) {
    driver::Current current(context_);
    CUPTI_PARAMETERS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = profiler_;
    if (failed(cuptiRangeProfilerDecodeData(&decode), "DecodeData", why)) return false;
    dropped = decode.numOfRangeDropped;
    CUPTI_PARAMETERS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    if (failed(cuptiRangeProfilerGetCounterDataInfo(&info), "GetCounterDataInfo", why)) return false;
    ranges = info.numTotalRanges;
    const size_t width = group_->metrics().size();
    values.assign(ranges * width, 0.0);
    for (size_t range = 0; range < ranges; ++range) {
      CUPTI_PARAMETERS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, evaluate);
      evaluate.pHostObject = group_->host();
      evaluate.pCounterDataImage = image_.data();
      evaluate.counterDataImageSize = image_.size();
      evaluate.rangeIndex = range;
      evaluate.ppMetricNames = group_->names().data();
      evaluate.numMetrics = width;
      evaluate.pMetricValues = &values[range * width];
      if (failed(cuptiProfilerHostEvaluateToGpuValues(&evaluate), "EvaluateToGpuValues", why))
        return false;
    }
    return true;
  }

  bool close(std::string& why) {
    if (!profiler_) return true;
    driver::Current current(context_);
    CUPTI_PARAMETERS(CUpti_RangeProfiler_Disable_Params, disable);
    disable.pRangeProfilerObject = profiler_;
    profiler_ = nullptr;
    return !failed(cuptiRangeProfilerDisable(&disable), "Disable", why);
  }

  bool is_open() const { return profiler_ != nullptr; }
  const Group* group() const { return group_; }
  size_t reserved() const { return reserved_; }
  size_t image_size() const { return image_.size(); }

 private:
  bool image_bytes(size_t ranges, size_t& bytes, std::string& why) {
    CUPTI_PARAMETERS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = profiler_;
    size.pMetricNames = group_->names().data();
    size.numMetrics = group_->names().size();
    size.maxNumOfRanges = ranges;
    size.maxNumRangeTreeNodes = static_cast<uint32_t>(ranges);
    if (failed(cuptiRangeProfilerGetCounterDataSize(&size), "GetCounterDataSize", why)) return false;
    bytes = size.counterDataSize;
    return true;
  }

  CUcontext context_;
  Group* group_ = nullptr;
  CUpti_ProfilerReplayMode replay_ = CUPTI_UserReplay;
  CUpti_RangeProfiler_Object* profiler_ = nullptr;
  std::vector<uint8_t> image_;
  size_t reserved_ = 0;
};

// The order of metrics that takes the fewest passes, of a few that are tried.
//
// CUPTI fills passes in the order in which metrics are named, and packs them better in some orders
// than in others: the published set takes 7 passes of an sm_90 by name, and 6 in most other orders.
inline std::vector<std::string> best_order(const std::string& chip,
                                           const std::vector<uint8_t>& availability,
                                           std::vector<std::string> metrics) {
  Group probe;
  std::string why;
  std::vector<std::string> best = metrics;
  size_t fewest = SIZE_MAX;
  std::mt19937 random(1);  // the same orders in every run of a program
  for (int trial = 0; trial < kOrdersTried; ++trial) {
    if (probe.open(chip, availability, metrics, why) && probe.passes() < fewest) {
      fewest = probe.passes();
      best = metrics;
    }
    std::shuffle(metrics.begin(), metrics.end(), random);
  }
  return best;
}

// The groups that a list of metrics falls into if no group may need more than `most` passes.
// Metrics that the chip does not have go to `missing`. A metric that alone needs more stays alone.
inline bool partition(const std::string& chip, const std::vector<uint8_t>& availability,
                      const std::vector<std::string>& metrics, size_t most,
                      std::vector<std::vector<std::string>>& groups,
                      std::vector<std::string>& missing, std::string& why) {
  Group probe;
  std::vector<std::string> known;
  if (probe.open(chip, availability, metrics, why)) {
    known = metrics;
  } else {
    for (const std::string& metric : metrics) {
      (probe.open(chip, availability, {metric}, why) ? known : missing).push_back(metric);
    }
    if (known.empty()) return false;
  }
  known = best_order(chip, availability, known);
  if (!probe.open(chip, availability, known, why)) return false;
  groups.clear();
  if (most == 0 || probe.passes() <= most) {
    groups.push_back(known);
    return true;
  }
  for (const std::string& metric : known) {
    std::vector<std::string> wider = groups.empty() ? std::vector<std::string>{} : groups.back();
    wider.push_back(metric);
    if (groups.empty() || !probe.open(chip, availability, wider, why) || probe.passes() > most) {
      groups.push_back({metric});
    } else {
      groups.back() = wider;
    }
  }
  return true;
}

}  // namespace counters
