// Passes of sets of metrics on a chip that need not be there: chip_passes CHIP < sets.
//
// A line of the input is the metrics of one set under Nsight Compute's names, with spaces between;
// a line of the output its passes, or -1 and the first metric that the chip does not have. Asked is
// the library that CUPTI itself plans with (libnvperf_host); it needs neither GPU nor driver, which
// CUPTI's own host functions do.
#include <nvperf_common.h>
#include <nvperf_cuda_host.h>
#include <nvperf_host.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

// Every call takes a structure that states its own size.
#define PARAMETERS(type, name) \
  type name = {};              \
  name.structSize = type##_STRUCT_SIZE

namespace {

void check(NVPA_Status status, const char* call) {
  if (status == NVPA_STATUS_SUCCESS) return;
  std::cerr << call << ": status " << status << "\n";
  std::exit(1);
}

class Chip {
 public:
  explicit Chip(const char* name) : name_(name) {
    PARAMETERS(NVPW_InitializeHost_Params, start);
    check(NVPW_InitializeHost(&start), "InitializeHost");
    PARAMETERS(NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize_Params, size);
    size.pChipName = name;
    check(NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize(&size), "no such chip");
    scratch_.resize(size.scratchBufferSize);
    PARAMETERS(NVPW_CUDA_MetricsEvaluator_Initialize_Params, made);
    made.pChipName = name;
    made.pScratchBuffer = scratch_.data();
    made.scratchBufferSize = scratch_.size();
    check(NVPW_CUDA_MetricsEvaluator_Initialize(&made), "MetricsEvaluator_Initialize");
    evaluator_ = made.pMetricsEvaluator;
  }

  // The raw counters behind a metric; none if the chip does not have it.
  const std::vector<std::string>& counters(const std::string& metric) {
    auto known = counters_.find(metric);
    if (known != counters_.end()) return known->second;
    std::vector<std::string>& names = counters_[metric];
    NVPW_MetricEvalRequest request = {};
    PARAMETERS(NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest_Params, asked);
    asked.pMetricsEvaluator = evaluator_;
    asked.pMetricName = metric.c_str();
    asked.pMetricEvalRequest = &request;
    asked.metricEvalRequestStructSize = NVPW_MetricEvalRequest_STRUCT_SIZE;
    if (NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(&asked)) return names;
    PARAMETERS(NVPW_MetricsEvaluator_GetMetricRawDependencies_Params, raw);
    raw.pMetricsEvaluator = evaluator_;
    raw.pMetricEvalRequests = &request;
    raw.numMetricEvalRequests = 1;
    raw.metricEvalRequestStructSize = NVPW_MetricEvalRequest_STRUCT_SIZE;
    raw.metricEvalRequestStrideSize = sizeof(request);
    check(NVPW_MetricsEvaluator_GetMetricRawDependencies(&raw), "GetMetricRawDependencies");
    std::vector<const char*> needed(raw.numRawDependencies), rest(raw.numOptionalRawDependencies);
    raw.ppRawDependencies = needed.data();
    raw.ppOptionalRawDependencies = rest.data();
    check(NVPW_MetricsEvaluator_GetMetricRawDependencies(&raw), "GetMetricRawDependencies");
    names.assign(needed.begin(), needed.end());
    return names;
  }

  size_t passes(const std::vector<std::string>& metrics) {
    PARAMETERS(NVPW_CUDA_RawMetricsConfig_Create_V2_Params, made);
    made.activityKind = NVPA_ACTIVITY_KIND_PROFILER;
    made.pChipName = name_;
    check(NVPW_CUDA_RawMetricsConfig_Create_V2(&made), "RawMetricsConfig_Create");
    PARAMETERS(NVPW_RawMetricsConfig_BeginPassGroup_Params, begin);
    begin.pRawMetricsConfig = made.pRawMetricsConfig;
    check(NVPW_RawMetricsConfig_BeginPassGroup(&begin), "BeginPassGroup");
    std::vector<NVPA_RawMetricRequest> requests;
    for (const std::string& metric : metrics)
      for (const std::string& counter : counters(metric)) {
        NVPA_RawMetricRequest request = {};
        request.structSize = NVPA_RAW_METRIC_REQUEST_STRUCT_SIZE;
        request.pMetricName = counter.c_str();
        request.isolated = request.keepInstances = 1;
        requests.push_back(request);
      }
    PARAMETERS(NVPW_RawMetricsConfig_AddMetrics_Params, add);
    add.pRawMetricsConfig = made.pRawMetricsConfig;
    add.pRawMetricRequests = requests.data();
    add.numMetricRequests = requests.size();
    check(NVPW_RawMetricsConfig_AddMetrics(&add), "AddMetrics");
    PARAMETERS(NVPW_RawMetricsConfig_EndPassGroup_Params, end);
    end.pRawMetricsConfig = made.pRawMetricsConfig;
    check(NVPW_RawMetricsConfig_EndPassGroup(&end), "EndPassGroup");
    PARAMETERS(NVPW_RawMetricsConfig_GetNumPasses_V2_Params, count);
    count.pRawMetricsConfig = made.pRawMetricsConfig;
    check(NVPW_RawMetricsConfig_GetNumPasses_V2(&count), "GetNumPasses");
    PARAMETERS(NVPW_RawMetricsConfig_Destroy_Params, gone);
    gone.pRawMetricsConfig = made.pRawMetricsConfig;
    NVPW_RawMetricsConfig_Destroy(&gone);
    return count.numPasses;
  }

 private:
  const char* name_;
  std::vector<uint8_t> scratch_;
  NVPW_MetricsEvaluator* evaluator_ = nullptr;
  std::map<std::string, std::vector<std::string>> counters_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  Chip chip(words[1]);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream stream(line);
    std::vector<std::string> metrics;
    std::string missing;
    for (std::string metric; stream >> metric;) {
      metrics.push_back(metric);
      if (chip.counters(metric).empty() && missing.empty()) missing = metric;
    }
    if (missing.empty())
      std::cout << chip.passes(metrics) << "\n";
    else
      std::cout << "-1 " << missing << "\n";
  }
}
