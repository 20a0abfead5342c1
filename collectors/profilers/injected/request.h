// What a run of the experiments is asked for, and which launches can be run again.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "conditions.h"
#include "launches.h"
#include "nvtx_ranges.h"
#include "record.h"

namespace experiments {

struct Request {
  double seconds = static_cast<double>(record::number_from("PERFML_EXPERIMENTS_SECONDS", 60));
  std::string unit = record::text_from("PERFML_EXPERIMENTS_UNIT");
  int rounds = static_cast<int>(record::number_from("PERFML_EXPERIMENTS_ROUNDS", 7));
  std::set<std::string> leave;  // kernels, as the compiler mangled them
  std::string mutants = record::text_from("PERFML_EXPERIMENTS_MUTANTS");
  std::set<std::string> ranges;  // whose launches are examined; all where it is empty
  std::map<std::string, Own> own;  // by path, kernel, grid and block, between tabs
  std::map<std::string, std::vector<std::string>> variables;  // of a kernel's module, in global memory

  Request() {
    std::ifstream names(record::text_from("PERFML_EXPERIMENTS_LEAVE"));
    for (std::string name; std::getline(names, name);) leave.insert(name);
    std::ifstream lines(record::text_from("PERFML_EXPERIMENTS_RANGES"));
    for (std::string name; std::getline(lines, name);) ranges.insert(name);
    std::ifstream modules(record::text_from("PERFML_EXPERIMENTS_VARIABLES"));
    for (std::string line; std::getline(modules, line);) {
      std::istringstream fields(line);
      std::string kernel;
      std::getline(fields, kernel, '\t');
      for (std::string name; std::getline(fields, name, '\t');) variables[kernel].push_back(name);
    }
    std::ifstream times(record::text_from("PERFML_EXPERIMENTS_TIMES"));
    for (std::string line; std::getline(times, line);) {
      std::istringstream fields(line);
      Own measured;
      fields >> measured.first >> measured.median >> measured.seconds;
      std::string launch;
      if (std::getline(fields.ignore(), launch)) own[launch] = measured;
    }
  }

  // How long a launch takes in the program alone; without a number where that was not measured.
  Own own_of(const std::string& path, const launches::Launch& launch) const {
    std::string key;
    std::istringstream names(path);
    for (std::string name; std::getline(names, name, nvtx::kSeparator);) {
      if (nvtx::is_iteration(name)) continue;
      key += (key.empty() ? "" : std::string(1, nvtx::kSeparator)) + name;
    }
    key += '\t' + launches::demangled(launch.kernel) + '\t' + launches::shape(launch.grid) + '\t' +
           launches::shape(launch.block);
    const auto found = own.find(key);
    return found == own.end() ? Own{} : found->second;
  }

  // Whether launches in a path of ranges are examined.
  bool holds(const std::string& path) const {
    std::istringstream names(path);
    for (std::string name; std::getline(names, name, nvtx::kSeparator);) {
      if (ranges.count(name)) return true;
    }
    return ranges.empty();
  }
};

// Leaves out what ties a launch to others; false if it cannot run on fewer multiprocessors.
inline bool alone(Subject& subject, std::string& why) {
  static thread_local std::vector<CUlaunchAttribute> kept;
  kept.clear();
  for (unsigned i = 0; i < subject.config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = subject.config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value.cooperative) {
      why = "cooperative launch: its blocks wait for each other";
      return false;
    }
    const bool ties = attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
                      attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
                      attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
                      attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    if (!ties) kept.push_back(attribute);
  }
  subject.config.attrs = kept.data();
  subject.config.numAttrs = static_cast<unsigned>(kept.size());
  return true;
}

// Reads the call; false, and why, if the launch cannot be run under other conditions.
inline bool subject_of(CUpti_CallbackId id, const CUpti_CallbackData& call, Subject& subject,
                       std::string& why) {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz: {
      const auto* given = static_cast<const cuLaunchKernel_params*>(call.functionParams);
      CUlaunchConfig& config = subject.config;
      config.gridDimX = given->gridDimX;
      config.gridDimY = given->gridDimY;
      config.gridDimZ = given->gridDimZ;
      config.blockDimX = given->blockDimX;
      config.blockDimY = given->blockDimY;
      config.blockDimZ = given->blockDimZ;
      config.sharedMemBytes = given->sharedMemBytes;
      subject.function = given->f;
      subject.parameters = given->kernelParams;
      subject.extra = given->extra;
      return true;
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz: {
      const auto* given = static_cast<const cuLaunchKernelEx_params*>(call.functionParams);
      subject.config = *given->config;
      subject.function = given->f;
      subject.parameters = given->kernelParams;
      subject.extra = given->extra;
      return alone(subject, why);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      why = "cooperative launch: its blocks wait for each other";
      return false;
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz: why = "CUDA graph"; return false;
    default: why = "old launch call"; return false;
  }
}

}  // namespace experiments
