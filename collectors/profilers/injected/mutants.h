// Kernels in place of the program's: the same PTX without one of its habits.
//
// PERFML_EXPERIMENTS_MUTANTS names a file with a line a mutant: kernel (mangled), name, file of PTX,
// file of the same that counts how often each basic block is executed, "1" if it carries a switch,
// parts of a block (`Condition::split`), its turn, the part of its control's time that decides on the
// launch, and names of variables, between tabs. Turns come one after the other until one decides. The
// driver compiles the PTX; variables take the values of the program's own. A mutant with a switch is
// its own control.
#pragma once

#include <cuda.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "conditions.h"
#include "experiment_driver.h"

namespace experiments {

struct Mutant {
  std::string kernel, name, file, counted;
  bool switched = false;
  int split = 1;
  int turn = 0;        // of a kernel's mutants they come in this order
  double decides = 0;  // where it takes no more of its control's time, later turns are left out
  std::vector<std::string> variables;
};

inline std::map<std::string, std::vector<Mutant>> read_mutants(const std::string& path) {
  std::map<std::string, std::vector<Mutant>> known;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Mutant mutant;
    std::string switched, split, turn, decides;
    std::getline(fields, mutant.kernel, '\t');
    std::getline(fields, mutant.name, '\t');
    std::getline(fields, mutant.file, '\t');
    std::getline(fields, mutant.counted, '\t');
    std::getline(fields, switched, '\t');
    mutant.switched = switched == "1";
    std::getline(fields, split, '\t');
    mutant.split = std::atoi(split.c_str());
    std::getline(fields, turn, '\t');
    std::getline(fields, decides, '\t');
    mutant.turn = std::atoi(turn.c_str());
    mutant.decides = std::atof(decides.c_str());
    for (std::string name; std::getline(fields, name, '\t');) mutant.variables.push_back(name);
    known[mutant.kernel].push_back(mutant);
  }
  return known;
}

// The modules of a kernel's mutants, for as long as it lives.
class LoadedMutants {
 public:
  LoadedMutants(CUfunction original, const CUlaunchConfig& config, int most_shared, int carveout,
                CUstream stream)
      : original_(original), config_(config), most_shared_(most_shared), carveout_(carveout),
        stream_(stream), always_{{"original", "original", stream}} {}
  ~LoadedMutants() {
    if (given_up) return;
    for (CUmodule module : modules_) driver().unload(module);
  }
  LoadedMutants(const LoadedMutants&) = delete;
  LoadedMutants& operator=(const LoadedMutants&) = delete;

  std::vector<std::string> refused;  // what the driver does not take, and why
  bool given_up = false;             // a kernel does not end: the driver would wait for it

  // The program's kernel first; the first mutant, which is unchanged, is compared with it, and the
  // others with that one or with themselves, the switch being off. Both are in every turn.
  std::vector<Condition> conditions(const std::vector<Mutant>& mutants, int turn) {
    std::vector<Condition> made = always_;
    for (const Mutant& mutant : mutants) {
      if (mutant.turn != turn) continue;
      Condition condition{mutant.name, always_.back().name, stream_};
      condition.split = mutant.split;
      CUlaunchConfig config = config_;
      std::string why;
      if (!reshape(config, mutant.split)) continue;
      if (!load(mutant, condition, why)) {
        refused.push_back(mutant.name + ": " + why);
        continue;
      }
      if (condition.toggle) {
        made.push_back(condition);
        made.back().name = condition.control = mutant.name + ".off";
        condition.on = true;
      }
      made.push_back(condition);
      if (&mutant == &mutants.front()) always_.push_back(condition);
    }
    return made;
  }

  // The mutant that counts its blocks; no function where it cannot be had.
  struct Counted {
    Condition condition;
    CUdeviceptr counts = 0;
    size_t bytes = 0;
  };
  Counted counted(const Mutant& mutant) {
    Counted made;
    std::string why;
    CUmodule module = nullptr;
    made.condition.split = mutant.split;
    if (mutant.counted.empty() ||
        !load(mutant, mutant.counted, module, made.condition.instead, made.condition.toggle, why) ||
        driver().variable(&made.counts, &made.bytes, module, "perfml_blocks") != CUDA_SUCCESS)
      return {};
    return made;
  }

 private:
  bool load(const Mutant& mutant, Condition& condition, std::string& why) {
    CUmodule module = nullptr;
    return load(mutant, mutant.file, module, condition.instead, condition.toggle, why);
  }

  bool load(const Mutant& mutant, const std::string& path, CUmodule& module, CUfunction& function,
            CUdeviceptr& toggle, std::string& why) {
    const Driver& all = driver();
    std::ifstream file(path);
    const std::string ptx((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!all.variable || !all.unload ||
        failed(all.load(&module, ptx.c_str()), "compiling it", why))
      return false;
    modules_.push_back(module);
    if (failed(all.function(&function, module, mutant.kernel.c_str()), "kernel", why)) return false;
    if (most_shared_ > 0)
      all.set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most_shared_);
    all.set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout_);
    CUmodule own = nullptr;
    if (all.module_of && all.module_of(&own, original_) == CUDA_SUCCESS) {
      for (const std::string& name : mutant.variables) copy_variable(own, module, name);
    }
    size_t size = 0;
    return !mutant.switched ||
           !failed(all.variable(&toggle, &size, module, "perfml_switch"), "switch", why);
  }

  void copy_variable(CUmodule from, CUmodule to, const std::string& name) {
    CUdeviceptr here = 0, there = 0;
    size_t size = 0, room = 0;
    std::string ignored;
    if (driver().variable(&here, &size, from, name.c_str()) == CUDA_SUCCESS &&
        driver().variable(&there, &room, to, name.c_str()) == CUDA_SUCCESS && size == room)
      failed(driver().copy(there, here, size, stream_), "variable", ignored);
  }

  CUfunction original_;
  CUlaunchConfig config_;
  int most_shared_, carveout_;
  CUstream stream_;
  std::vector<Condition> always_;
  std::vector<CUmodule> modules_;
};

}  // namespace experiments
