// What is asked of a launch: under which conditions it runs, and what came of it.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace experiments {

// A launch as the program asked for it; the arrays stay the caller's.
struct Subject {
  CUfunction function = nullptr;
  CUlaunchConfig config{};
  void** parameters = nullptr;
  void** extra = nullptr;
};

// What the other multiprocessors do meanwhile.
enum class Flow { none, dram, l2, atomics };

struct Condition {
  std::string name;
  std::string control;        // the condition that it is compared with
  CUstream stream = nullptr;
  double amount = 1;          // of the resource, relative to the control
  unsigned more_shared = 0;   // dynamic shared memory beyond what the launch asks for, bytes
  int carveout = -2;          // share of shared memory in L1, per cent; -2: as the program has it
  Flow traffic = Flow::none;
  CUfunction instead = nullptr;  // runs in place of the program's kernel
  CUdeviceptr toggle = 0;        // its switch, and whether it is on
  bool on = false;
  int split = 1;                 // parts of each block; negative: blocks that become one
};

// Gives a launch blocks of another size, and as many threads; false where that cannot be. Warps stay
// in smaller blocks; in a larger one the blocks that become one lie behind each other along z.
inline bool reshape(CUlaunchConfig& config, int split) {
  const unsigned blocks = static_cast<unsigned>(split < 0 ? -split : split);
  if (blocks == 1) return true;
  if (config.numAttrs > 0 || config.sharedMemBytes > 0) return false;
  if (split > 0) {
    if (config.blockDimX % (32 * blocks)) return false;
    config.blockDimX /= blocks;
    config.gridDimX *= blocks;
    return true;
  }
  const unsigned threads = config.blockDimX * config.blockDimY * blocks;
  if (config.blockDimZ != 1 || threads > 1024 || config.gridDimX % blocks) return false;
  config.blockDimZ = blocks;
  config.gridDimX /= blocks;
  return true;
}

struct Outcome {
  Condition condition;
  std::vector<double> us;  // of a launch, a number a round
  bool fails = false;      // this launch cannot be made so
  int same_path = -1;      // of a mutant: 1 where it executes each block as often; -1: not known
  double changed = -1;     // part of the words written that it changes; -1: not known
};

// How long the program's own launches take, microseconds; negative where that is not known.
struct Own {
  double first = -1, median = -1;
  double seconds = 5;  // of experiments on one of them, by its part of the clock
};

// What lies between two launches that are timed: nothing, what the launch writes is put back, or L2
// is emptied besides.
enum class Replay { warm, restored, cold };

inline const char* name_of(Replay replay) {
  return replay == Replay::warm ? "warm" : replay == Replay::restored ? "restored" : "cold";
}

// What the experiments on a launch gave; no outcome if they failed.
struct Examination {
  std::vector<Outcome> outcomes;
  int batch = 0, blocks = 0;
  Replay replay = Replay::warm;
  double own_us = -1;  // of the program's own launch
  bool shortened = false;  // its time limit left rounds or conditions out
  std::vector<std::string> refused;  // mutants that the driver does not compile, and why
};

}  // namespace experiments
