// Where warps wait: samples of the program counter with stall reasons, and the machine code of them.
//
// The CUDA driver loads this library (CUDA_INJECTION64_PATH). CUPTI samples each multiprocessor every
// 2^PERFML_LINES_PERIOD cycles while kernels run as they do without it; nothing is serialised. Of a
// kernel of 10 us 2^11 hits the same few places each time (H100); 2^9 costs no kernel more.
//
// Each process writes $PERFML_COUNTERS_DIR/<pid>.tsv: P, kernel, its mangled name, CUPTI's checksum of
// its cubin, offset of the instruction, and a cell "reason=samples" for each stall reason; the last
// line is "# end". A sampled cubin with lines of the source (-lineinfo) is kept beside it, named by its
// checksum: the reader looks up lines, and what is waited for (`perfml.util.scoreboards`).

#include <cuda.h>
#include <cupti.h>
#include <cupti_pcsampling.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chip.h"
#include "cuda_driver.h"
#include "launches.h"
#include "record.h"

namespace {

using counters::failed;

constexpr size_t kPlaces = 1u << 14;  // instructions that a buffer holds

// Room for what CUPTI has counted.
struct Buffer {
  explicit Buffer(size_t reasons) : stalls(kPlaces * reasons), places(kPlaces) {
    for (size_t i = 0; i < kPlaces; ++i) {
      places[i].size = sizeof(CUpti_PCSamplingPCData);
      places[i].stallReason = &stalls[i * reasons];
    }
    data.size = sizeof(CUpti_PCSamplingData);
    data.collectNumPcs = kPlaces;
    data.pPcData = places.data();
  }
  std::vector<CUpti_PCSamplingStallReason> stalls;
  std::vector<CUpti_PCSamplingPCData> places;
  CUpti_PCSamplingData data = {};
};

struct Sampled {
  std::vector<std::string> reasons;
  std::unique_ptr<Buffer> last, current;
};

struct State {
  std::recursive_mutex lock;
  record::File file;
  std::string folder;
  std::map<CUcontext, Sampled> contexts;
  std::map<uint64_t, std::string> lined;  // cubins with lines of the source, by CUPTI's checksum
  size_t samples = 0, dropped = 0;
};

State& state() {
  static State* const only = new State;
  return *only;
}

void refuse(const std::string& why) { state().file.note("error " + why); }

bool name_reasons(CUcontext context, Sampled& sampled, std::vector<uint32_t>& numbers,
                  std::string& why) {
  size_t count = 0;
  CUpti_PCSamplingGetNumStallReasonsParams asked = {CUpti_PCSamplingGetNumStallReasonsParamsSize,
                                                    nullptr, context, &count};
  if (failed(cuptiPCSamplingGetNumStallReasons(&asked), "GetNumStallReasons", why)) return false;
  std::vector<std::vector<char>> names(count, std::vector<char>(CUPTI_STALL_REASON_STRING_SIZE));
  std::vector<char*> texts;
  for (std::vector<char>& name : names) texts.push_back(name.data());
  numbers.resize(count);
  CUpti_PCSamplingGetStallReasonsParams named = {CUpti_PCSamplingGetStallReasonsParamsSize,
                                                 nullptr, context, count, numbers.data(),
                                                 texts.data()};
  if (failed(cuptiPCSamplingGetStallReasons(&named), "GetStallReasons", why)) return false;
  for (size_t i = 0; i < count; ++i) {
    if (sampled.reasons.size() <= numbers[i]) sampled.reasons.resize(numbers[i] + 1);
    sampled.reasons[numbers[i]] = texts[i];
  }
  return true;
}

void context_begins(CUcontext context) {
  std::lock_guard<std::recursive_mutex> guard(state().lock);
  Sampled& sampled = state().contexts[context];
  std::string why;
  CUpti_PCSamplingEnableParams enabled = {CUpti_PCSamplingEnableParamsSize, nullptr, context};
  if (failed(cuptiPCSamplingEnable(&enabled), "PCSamplingEnable", why)) return refuse(why);
  std::vector<uint32_t> numbers;
  if (!name_reasons(context, sampled, numbers, why)) return refuse(why);
  sampled.last = std::make_unique<Buffer>(numbers.size());
  sampled.current = std::make_unique<Buffer>(numbers.size());
  std::vector<CUpti_PCSamplingConfigurationInfo> wanted(4);
  wanted[0].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_STALL_REASON;
  wanted[0].attributeData.stallReasonData = {numbers.size(), numbers.data()};
  wanted[1].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_PERIOD;
  wanted[1].attributeData.samplingPeriodData.samplingPeriod =
      static_cast<uint32_t>(record::number_from("PERFML_LINES_PERIOD", 9));
  wanted[2].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_COLLECTION_MODE;
  wanted[2].attributeData.collectionModeData.collectionMode =
      CUPTI_PC_SAMPLING_COLLECTION_MODE_CONTINUOUS;
  wanted[3].attributeType = CUPTI_PC_SAMPLING_CONFIGURATION_ATTR_TYPE_SAMPLING_DATA_BUFFER;
  wanted[3].attributeData.samplingDataBufferData.samplingDataBuffer = &sampled.last->data;
  CUpti_PCSamplingConfigurationInfoParams configured = {
      CUpti_PCSamplingConfigurationInfoParamsSize, nullptr, context, wanted.size(), wanted.data()};
  if (failed(cuptiPCSamplingSetConfigurationAttribute(&configured), "PCSamplingConfigure", why))
    refuse(why);
}

void module_loads(const CUpti_ModuleResourceData& module) {
  const std::string cubin(module.pCubin, module.cubinSize);
  if (cubin.find(".debug_line") == std::string::npos) return;
  CUpti_GetCubinCrcParams asked = {CUpti_GetCubinCrcParamsSize, cubin.size(), cubin.data(), 0};
  if (cuptiGetCubinCrc(&asked) != CUPTI_SUCCESS) return;
  std::lock_guard<std::recursive_mutex> guard(state().lock);
  state().lined.emplace(asked.cubinCrc, cubin);
}

// Writes the code of a sampled kernel beside the samples, once.
void keep_code(uint64_t checksum) {
  std::string& cubin = state().lined[checksum];
  if (cubin.empty()) return;
  std::ofstream(state().folder + "/" + std::to_string(checksum) + ".cubin", std::ios::binary) << cubin;
  cubin.clear();
}

void write(const Sampled& sampled, const CUpti_PCSamplingData& data) {
  state().samples += data.totalSamples;
  state().dropped += data.droppedSamples;
  for (size_t i = 0; i < data.totalNumPcs; ++i) {
    const CUpti_PCSamplingPCData& place = data.pPcData[i];
    keep_code(place.cubinCrc);
    std::string line = "P\t" + launches::demangled(place.functionName) + "\t" +
                       place.functionName + "\t" + std::to_string(place.cubinCrc) + "\t" +
                       std::to_string(place.pcOffset);
    for (size_t k = 0; k < place.stallReasonCount; ++k) {
      const CUpti_PCSamplingStallReason& stall = place.stallReason[k];
      if (stall.samples)
        line += "\t" + sampled.reasons.at(stall.pcSamplingStallReasonIndex) + "=" +
                std::to_string(stall.samples);
    }
    state().file.line(line);
  }
}

void context_ends(CUcontext context) {
  std::lock_guard<std::recursive_mutex> guard(state().lock);
  const auto known = state().contexts.find(context);
  if (known == state().contexts.end() || !known->second.current) return;
  Sampled& sampled = known->second;
  driver::synchronize(context);
  CUpti_PCSamplingGetDataParams asked = {CUpti_PCSamplingGetDataParamsSize, nullptr, context,
                                         &sampled.current->data};
  std::string why;
  do {
    if (failed(cuptiPCSamplingGetData(&asked), "PCSamplingGetData", why)) break;
    write(sampled, sampled.current->data);
  } while (sampled.current->data.remainingNumPcs > 0);
  CUpti_PCSamplingDisableParams disabled = {CUpti_PCSamplingDisableParamsSize, nullptr, context};
  if (!failed(cuptiPCSamplingDisable(&disabled), "PCSamplingDisable", why))
    write(sampled, sampled.last->data);
  if (!why.empty()) state().file.note("warning " + why);
  state().contexts.erase(known);
}

void finish() {
  std::lock_guard<std::recursive_mutex> guard(state().lock);
  while (!state().contexts.empty()) {
    const CUcontext context = state().contexts.begin()->first;
    context_ends(context);
    state().contexts.erase(context);
  }
  state().file.note("samples", state().samples);
  state().file.note("dropped", state().dropped);
  state().file.close();
}

void CUPTIAPI on_resource(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  if (!state().file.is_open()) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  if (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) context_begins(resource.context);
  if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) context_ends(resource.context);
  if (id == CUPTI_CBID_RESOURCE_MODULE_LOADED)
    module_loads(*static_cast<CUpti_ModuleResourceData*>(resource.resourceDescriptor));
}

}  // namespace

// Called by the CUDA driver when the program initialises it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    state().folder = record::text_from("PERFML_COUNTERS_DIR");
    if (!state().file.open(state().folder)) return;
    std::atexit(finish);
    counters::preload_metric_library();
    CUpti_SubscriberHandle subscriber = nullptr;
    std::string why;
    bool broken = failed(cuptiSubscribe(&subscriber, on_resource, nullptr), "Subscribe", why);
    for (CUpti_CallbackId id :
         {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
          CUPTI_CBID_RESOURCE_MODULE_LOADED})
      broken = broken || failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id),
                                "EnableCallback", why);
    if (broken) refuse(why);
  });
  return 1;
}
