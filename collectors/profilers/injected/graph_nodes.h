// The ranges in which the nodes of CUDA graphs were made: a replay launches all of them at once, from
// wherever it is called, and its kernels say only which node they were.
#pragma once

#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "activity.h"
#include "nvtx_ranges.h"

namespace graphs {

class Nodes {
 public:
  // A node was captured or added on this thread, or made for a graph that is instantiated.
  void made(CUpti_CallbackId id, const CUpti_GraphData& graph) {
    uint64_t node = 0, original = 0;
    if (cuptiGetGraphNodeId(graph.node, &node) != CUPTI_SUCCESS) return;
    std::lock_guard<std::mutex> guard(lock_);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
      if (cuptiGetGraphNodeId(graph.originalNode, &original) != CUPTI_SUCCESS) return;
      const auto known = made_.find(original);
      if (known != made_.end()) made_[node] = known->second;
    } else if (const nvtx::Range* range = nvtx::innermost()) {
      made_[node] = {range->instance, range->path};
    }
  }

  // Names a kernel of a replay by the ranges of its node, inside those of the replay.
  void place(uint64_t node, uint32_t replay, activity::Made& kernel) {
    std::lock_guard<std::mutex> guard(lock_);
    const auto known = made_.find(node);
    if (known == made_.end()) return;
    kernel.path = inside(kernel.path, known->second.path);
    unsigned long long& instance = instances_[{replay, known->second.instance}];
    if (!instance) instance = nvtx::new_instance();
    kernel.instance = instance;
  }

 private:
  struct Origin {
    unsigned long long instance = 0;
    std::string path;
  };

  static std::vector<std::string> parts(const std::string& path) {
    std::vector<std::string> names;
    for (size_t from = 0; from < path.size();) {
      const size_t to = path.find(nvtx::kSeparator, from);
      names.push_back(path.substr(from, to - from));
      from = to == std::string::npos ? path.size() : to + 1;
    }
    return names;
  }

  // The iteration that captured is not the one that replays. What was captured in an iteration has
  // all its ranges; what was captured before lies in those that are open at the replay.
  static std::string inside(const std::string& replay, const std::string& capture) {
    const auto is_iteration = [](const std::string& name) { return nvtx::is_iteration(name); };
    std::vector<std::string> names = parts(replay), captured = parts(capture);
    const auto iteration = std::find_if(captured.rbegin(), captured.rend(), is_iteration);
    if (iteration != captured.rend()) {
      captured.erase(captured.begin(), iteration.base());
      names.erase(std::find_if(names.rbegin(), names.rend(), is_iteration).base(), names.end());
    }
    names.insert(names.end(), captured.begin(), captured.end());
    std::string path;
    for (const std::string& name : names) path += nvtx::kSeparator + name;
    return path.empty() ? path : path.substr(1);
  }

  std::mutex lock_;
  std::unordered_map<uint64_t, Origin> made_;
  std::map<std::pair<uint32_t, unsigned long long>, unsigned long long> instances_;
};

inline Nodes& nodes() {
  static Nodes* const only = new Nodes;
  return *only;
}

}  // namespace graphs
