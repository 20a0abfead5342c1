// The conditions under which a launch is run again, and how long it takes under each.
//
// Each condition takes away a part of one resource of the GPU, or uses it up from elsewhere, and has
// a control that differs in nothing else. Times are of batches between two events of one stream, in
// an order that is drawn anew in every round. Batches of short launches are CUDA graphs: the host
// launches one in some 4 us, a graph in one or two.
//
// A launch has to take as long as the program's own did, or it is not measured: in a batch, or with
// what it writes put back before each (a counter of tiles, a hash table), or with L2 emptied, too.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conditions.h"
#include "experiment_driver.h"
#include "memory_image.h"
#include "mutant_check.h"
#include "mutants.h"
#include "partitions.h"
#include "traffic_ptx.h"

namespace experiments {

using Clock = std::chrono::steady_clock;

class Laboratory {
 public:
  // Makes streams, traffic and events in the current context.
  bool open(std::string& why) {
    const Driver& all = driver();
    if (!all.complete()) {
      why = "this driver lacks functions that experiments need";
      return false;
    }
    CUdevice device = 0;
    if (failed(all.device(&device), "device", why)) return false;
    multiprocessors_ = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    l2_bytes_ = static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
    shared_of_multiprocessor_ = static_cast<unsigned>(
        attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
    shared_of_block_ = static_cast<unsigned>(
        attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    reserved_shared_ = static_cast<unsigned>(
        attribute(device, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
    if (failed(all.stream(&all_, CU_STREAM_NON_BLOCKING), "stream", why)) return false;
    if (failed(all.event(&from_, CU_EVENT_DEFAULT), "event", why)) return false;
    if (failed(all.event(&to_, CU_EVENT_DEFAULT), "event", why)) return false;
    CUmodule module = nullptr;
    if (failed(all.load(&module, kPtx), "traffic kernel", why)) return false;
    if (failed(all.function(&traffic_, module, "perfml_traffic"), "traffic kernel", why))
      return false;
    if (failed(all.function(&empty_, module, "perfml_empty"), "empty kernel", why)) return false;
    CUfunction compare = nullptr;
    if (failed(all.function(&compare, module, "perfml_compare"), "comparing kernel", why) ||
        !comparison_.open(compare))
      return false;
    return make_partitions(device, why) && make_buffers(why);
  }

  // Before the program resets its device, which frees the rest.
  void close() {
    for (Partition* part : {&most_, &half_}) part->close();
  }

  unsigned multiprocessors() const { return static_cast<unsigned>(multiprocessors_); }
  size_t l2_bytes() const { return l2_bytes_; }
  Image& image() { return image_; }
  CUstream stream() const { return all_; }

  // How long a kernel that does nothing takes in a batch, microseconds.
  double empty_us(std::string& why) {
    short_ = true;
    replay_ = Replay::warm;
    const double us = floor_us(why);
    short_ = false;
    return us;
  }

  double patience = 20;  // seconds, until a launch is said not to end

  // Whether a launch did not end: it waits for what the experiment has taken away.
  bool hangs() const { return hangs_; }

  // The condition that did not end, or after which the GPU does nothing any more; empty if none.
  const std::string& fatal() const { return fatal_; }

  // Runs a kernel of known limit under every condition.
  Examination calibrate(Flow flow, int rounds, std::string& why) {
    // its own flag, which nobody sets
    Traffic traffic(*this, flow, 8 * multiprocessors(), flow == Flow::dram ? 1 : 16,
                    stop_ + sizeof(int));
    return examine(traffic.subject, rounds, kUnlimited, why);
  }

  // Runs a launch under every condition that applies to it, within a time limit: with fewer
  // rounds, then without the last conditions where it takes long. With mutants these are its
  // conditions, turn by turn, until one decides or the time is up.
  Examination examine(const Subject& subject, int rounds, double seconds, std::string& why,
                      const std::vector<Mutant>& mutants = {}, const Own& own = {}) {
    const Driver& all = driver();
    CUfunction function = own_function(subject.function);
    Kept kept;
    if (!kept.of(function, why)) return {};
    Examination made;
    const CUlaunchConfig& config = subject.config;
    const int threads = static_cast<int>(config.blockDimX * config.blockDimY * config.blockDimZ);
    if (failed(all.blocks(&made.blocks, function, threads, config.sharedMemBytes), "occupancy",
               why))
      return {};
    patience_ = patience;
    const auto begun = Clock::now();
    const double first = probe(subject, why);
    if (first < 0) return {};
    made.batch = std::clamp(static_cast<int>(std::ceil(kBatchUs / std::max(first, 0.5))), 1, 64);
    short_ = first < kShortUs;
    if (!choose_replay(subject, made, own, why)) return {};
    patience_ = patience + 1e-6 * 100 * first * made.batch;
    // as long as the probe, which put memory back and ran it twice, and the rest of the batch
    const double probed = std::chrono::duration<double>(Clock::now() - begun).count();
    const double once = std::max(probed, 2e-6 * first) + 1e-6 * first * (made.batch - 1);
    LoadedMutants loaded(function, config, kept.most_shared, kept.carveout, all_);
    std::vector<Outcome> outcomes;
    const int last = mutants.empty() ? 0 : mutants.back().turn;
    bool decided = false;
    for (int turn = 0; turn <= last && !decided; ++turn) {
      const double spent = std::chrono::duration<double>(Clock::now() - begun).count();
      if (turn > 0 && spent >= seconds) break;
      std::vector<Condition> chosen =
          mutants.empty() ? conditions(subject, function, threads, made.blocks, kept)
                          : loaded.conditions(mutants, turn);
      made.refused = loaded.refused;
      const auto fits = [&](int times) { return once * times * chosen.size() <= seconds; };
      int times = rounds;
      while (times > kFewestRounds && !fits(times)) --times;
      made.shortened |= times < rounds;
      while (mutants.empty() && chosen.size() > kFewestConditions && !fits(times)) chosen.pop_back();
      if (!fits(times) && turn > 0) break;
      if (!fits(times)) {
        why = "it takes " + std::to_string(std::lround(1e-3 * first)) +
              " ms a launch with its memory put back: too long for the time limit";
        return {};
      }
      if (!measure(subject, function, chosen, times, made.batch, kept, outcomes, why)) {
        loaded.given_up = hangs_;
        return {};
      }
      if (mutants.empty()) continue;
      check(subject, outcomes, mutants, turn, loaded, why);
      if (!fatal_.empty() || hangs_) return {};
      decided = decides(outcomes, mutants, turn);
    }
    for (Outcome& outcome : outcomes) {
      if (!outcome.fails) made.outcomes.push_back(std::move(outcome));
    }
    return made;
  }

 private:
  static constexpr double kClean = 0.03;   // `perfml.experiments.repairs.CLEAN`
  static constexpr double kEventUs = 0.5;  // resolution of two events
  static constexpr double kShortUs = 20;   // launches below it are timed in graphs
  static constexpr double kAlike = 0.1;    // a repeated launch may differ from the program's so much
  static constexpr double kSaves = 0.97;   // a mutant that takes less time is compared
  static constexpr double kBatchUs = 100;    // a batch is at least as long: events tell 0.5 us
  static constexpr int kFewestRounds = 3;    // the median of fewer is not robust
  static constexpr size_t kFewestConditions = 7;  // fewer tell no limit, in any order
  static constexpr double kUnlimited = 1e9;
  static constexpr size_t kOverDram = size_t{256} << 20;  // five times the largest L2
  static constexpr size_t kOverL2 = size_t{8} << 20;
  static constexpr int kManyTurns = 1 << 24;  // a minute, if nobody stops it

  // A launch of a kernel that uses memory up, turn after turn.
  struct Traffic {
    // `flag`: a word in the device's memory that ends it when it is set
    Traffic(Laboratory& laboratory, Flow flow, unsigned blocks, int most_turns, CUdeviceptr flag)
        : count((flow == Flow::dram ? kOverDram : kOverL2) / 16), turns(most_turns),
          atomics(flow == Flow::atomics), stop(flag) {
      given[0] = &laboratory.written_;
      given[1] = &laboratory.read_;
      given[3] = &stop;
      subject.function = laboratory.traffic_;
      subject.config.gridDimX = blocks;
      subject.config.blockDimX = 512;
      subject.config.gridDimY = subject.config.gridDimZ = 1;
      subject.config.blockDimY = subject.config.blockDimZ = 1;
      subject.parameters = given;
    }
    Traffic(const Traffic&) = delete;
    Traffic& operator=(const Traffic&) = delete;
    unsigned long long count;
    int turns, atomics;
    CUdeviceptr stop;
    void* given[6] = {nullptr, nullptr, &count, nullptr, &turns, &atomics};
    Subject subject;
  };

  // What the program has set for a kernel, set again afterwards.
  struct Kept {
    int carveout = -1, most_shared = 0, shared = 0;
    bool of(CUfunction function, std::string& why) {
      const Driver& all = driver();
      return !failed(all.get(&carveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                             function), "carveout", why) &&
             !failed(all.get(&most_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             function), "shared memory", why) &&
             !failed(all.get(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function),
                     "shared memory", why);
    }
  };

  // Times conditions, in an order that is drawn anew in every round; false if the launch itself fails,
  // or the GPU does nothing any more. What was timed in an earlier turn gets further rounds.
  bool measure(const Subject& subject, CUfunction function, const std::vector<Condition>& chosen,
               int rounds, int batch, const Kept& kept, std::vector<Outcome>& outcomes,
               std::string& why) {
    std::vector<size_t> order;
    for (const Condition& condition : chosen) {
      const Outcome* known = named(outcomes, condition.name);
      order.push_back(known ? static_cast<size_t>(known - outcomes.data()) : outcomes.size());
      if (!known) outcomes.push_back({condition, {}, false});
    }
    for (int round = 0; round < rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random_);
      for (size_t place : order) {
        Outcome& outcome = outcomes[place];
        if (outcome.fails) continue;
        const double us = run(subject, function, outcome.condition, batch, kept, why);
        // a cluster may be too large for a part of the GPU: that condition alone is left out
        outcome.fails = us < 0;
        if (hangs_ || (outcome.fails && driver().wait_for_all() != CUDA_SUCCESS))
          fatal_ = outcome.condition.name;
        if (!fatal_.empty() || (outcome.fails && place == 0)) return false;
        outcome.us.push_back(us);
      }
    }
    return true;
  }

  static Outcome* named(std::vector<Outcome>& outcomes, const std::string& name) {
    for (Outcome& each : outcomes) {
      if (each.condition.name == name) return &each;
    }
    return nullptr;
  }

  static double median(std::vector<double> us) {
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }

  // Whether a mutant of a turn saves as much as decides on the launch, beside a clean control.
  static bool decides(std::vector<Outcome>& outcomes, const std::vector<Mutant>& mutants, int turn) {
    for (const Mutant& mutant : mutants) {
      const Outcome* outcome = mutant.turn == turn ? named(outcomes, mutant.name) : nullptr;
      if (!outcome || outcome->fails || outcome->same_path == 0) continue;
      const Outcome* control = named(outcomes, outcome->condition.control);
      if (control->fails) continue;
      const double us = median(control->us);
      const bool clean = std::abs(us / median(outcomes.front().us) - 1) <= kClean;
      if (clean && median(outcome->us) <= mutant.decides * us) return true;
    }
    return false;
  }

  static int attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    driver().attribute(&value, which, device);
    return value;
  }

  bool make_partitions(CUdevice device, std::string& why) {
    if (!driver().has_green()) return true;
    const unsigned count = multiprocessors();
    return part(device, count * 3 / 4, most_, why) && part(device, count / 2, half_, why);
  }

  bool make_buffers(std::string& why) {
    const Driver& all = driver();
    const size_t size = std::max(kOverDram, 2 * l2_bytes_);
    return !failed(all.allocate(&read_, size), "traffic buffer", why) &&
           !failed(all.allocate(&written_, size), "traffic buffer", why) &&
           !failed(all.fill(read_, 0, size, all_), "traffic buffer", why) &&
           !failed(all.allocate(&stop_, 2 * sizeof(int)), "stop flag", why) &&
           !failed(all.fill(stop_, 0, 2 * sizeof(int), all_), "stop flag", why) &&
           !failed(all.wait(all_), "traffic buffer", why) && set_stop(0, why);
  }

  // Traffic reads the flag in the device's memory: over the bus it would disturb every launch.
  bool set_stop(unsigned char value, std::string& why) {
    return !failed(driver().fill(stop_, value, sizeof(int), all_), "stop flag", why) &&
           !failed(driver().wait(all_), "stop flag", why);
  }

  // Those that tell most first: what is outside the multiprocessor, then L1 and warps. A control comes
  // before its condition.
  std::vector<Condition> conditions(const Subject& subject, CUfunction function, int threads,
                                    int blocks, const Kept& kept) const {
    std::vector<Condition> chosen = {{"all", "all", all_}};
    const auto add = [&](const char* name, const char* control, CUstream stream) -> Condition& {
      return chosen.emplace_back(Condition{name, control, stream});
    };
    const std::pair<const char*, const Partition&> parts[] = {{"sm_most", most_}, {"sm_half", half_}};
    for (const auto& [name, part] : parts) {
      if (part.stream && part.multiprocessors < multiprocessors())
        add(name, "all", part.stream).amount =
            static_cast<double>(part.multiprocessors) / static_cast<double>(multiprocessors());
    }
    if (most_.stream && most_.others) {
      add("dram_traffic", "sm_most", most_.stream).traffic = Flow::dram;
      add("l2_traffic", "sm_most", most_.stream).traffic = Flow::l2;
      add("atomic_traffic", "sm_most", most_.stream).traffic = Flow::atomics;
    }
    // as much L1 as leaves the blocks their shared memory, and as little as there can be
    const unsigned used = subject.config.sharedMemBytes + static_cast<unsigned>(kept.shared);
    const unsigned needed = static_cast<unsigned>(blocks) * (used + reserved_shared_);
    const unsigned least = std::min(100u, 1 + 100 * needed / shared_of_multiprocessor_);
    if (least < 60) add("l1_large", "l1_large", all_).carveout = static_cast<int>(least);
    add("l1_small", least < 60 ? "l1_large" : "all", all_).carveout = 100;
    Condition fewer{"warps_half", "l1_small", all_};
    fewer.carveout = 100;
    if (blocks >= 2 && fill_shared(subject, function, threads, blocks / 2, kept, fewer, blocks))
      chosen.push_back(fewer);
    return chosen;
  }

  // Finds how the launch takes as long as in the program; false, and why, if it does not.
  bool choose_replay(const Subject& subject, Examination& made, const Own& own, std::string& why) {
    replay_ = Replay::warm;
    regions_.clear();
    if (own.median < 0) return true;
    unsigned long long words = 0;
    if (!image_.put_back(all_, why) || batch(subject, all_, 1, why) < 0 ||
        !image_.changed(comparison_, all_, regions_, words, why))
      return false;
    Condition plain{"all", "all", all_};
    std::string times;
    for (Replay replay : {Replay::warm, Replay::restored, Replay::cold}) {
      replay_ = replay;
      if (!image_.put_back(all_, why)) return false;
      const double us = timed(subject, plain, made.batch, why);
      if (us < 0) return false;
      for (double alone : {own.median, own.first}) {
        const double room = std::max(kAlike * alone, floor_us(why));
        if (us < (1 - kAlike) * alone - kEventUs || us > alone + room) continue;
        made.replay = replay;
        made.own_us = alone;
        return true;
      }
      times += (times.empty() ? "" : ", ") + std::to_string(us) + " us " + name_of(replay);
    }
    why = "not measured: its launch takes " + std::to_string(own.median) +
          " us in the program, and repeated " + times;
    return false;
  }

  // What a launch takes beside its kernel where it is timed so.
  double floor_us(std::string& why) {
    double& known = replay_ == Replay::warm ? (short_ ? graph_floor_ : batch_floor_) : single_floor_;
    if (known < 0) {
      Subject subject;
      subject.function = empty_;
      subject.config.gridDimX = subject.config.gridDimY = subject.config.gridDimZ = 1;
      subject.config.blockDimX = 32;
      subject.config.blockDimY = subject.config.blockDimZ = 1;
      const int size = replay_ == Replay::warm ? 32 : 1;
      known = median_of(5, [&] { return batch(subject, all_, size, why); });
    }
    return std::max(known, 0.0);
  }

  template <typename Time>
  static double median_of(int count, Time time) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) times.push_back(time());
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Compares the mutants of a turn that save time with their controls: their paths, and what they write.
  void check(const Subject& subject, std::vector<Outcome>& outcomes,
             const std::vector<Mutant>& mutants, int turn, LoadedMutants& loaded,
             std::string& why) {
    const auto timed = [&](const std::string& name) -> Outcome* {
      Outcome* known = named(outcomes, name);
      return known && !known->fails ? known : nullptr;
    };
    MutantCheck checked(image_, comparison_, all_,
                        [&](const Condition& condition, std::string& reason) {
      Subject once = subject;
      return mutated(once, condition, reason) && batch(once, all_, 1, reason) >= 0;
    });
    LoadedMutants::Counted unchanged;
    for (const Mutant& mutant : mutants) {
      Outcome* outcome = mutant.turn == turn ? timed(mutant.name) : nullptr;
      const Outcome* control = outcome ? timed(outcome->condition.control) : nullptr;
      if (!control || control->condition.name == "original" ||
          median(outcome->us) > kSaves * median(control->us))
        continue;
      outcome->changed = checked.changed(control->condition, outcome->condition, why);
      if (!hangs_) {
        const LoadedMutants::Counted counted = loaded.counted(mutant);
        if (!mutant.switched && !unchanged.condition.instead) unchanged = loaded.counted(mutants.front());
        outcome->same_path = checked.same_path(mutant.switched ? counted : unchanged, counted, why);
      }
      loaded.given_up = checked.given_up = hangs_;
      if (hangs_ || driver().wait_for_all() != CUDA_SUCCESS) {
        fatal_ = mutant.name;
        return;
      }
    }
  }

  // Finds the dynamic shared memory with which `wanted` blocks fit on a multiprocessor.
  bool fill_shared(const Subject& subject, CUfunction function, int threads, int wanted,
                   const Kept& kept, Condition& condition, int blocks) const {
    const unsigned given = subject.config.sharedMemBytes + static_cast<unsigned>(kept.shared);
    const unsigned share =
        shared_of_multiprocessor_ / static_cast<unsigned>(wanted) - reserved_shared_;
    const unsigned block = std::min(share, shared_of_block_) / 128 * 128;
    if (block <= given) return false;
    const unsigned dynamic = block - static_cast<unsigned>(kept.shared);
    const Driver& all = driver();
    if (all.set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                static_cast<int>(dynamic)) != CUDA_SUCCESS)
      return false;
    int got = 0;
    const CUresult result = all.blocks(&got, function, threads, dynamic);
    all.set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kept.most_shared);
    if (result != CUDA_SUCCESS || got < 1 || got >= blocks) return false;
    condition.more_shared = dynamic - subject.config.sharedMemBytes;
    condition.amount = static_cast<double>(got) / blocks;
    return true;
  }

  // How long the launch takes as it is, after one that warms up; negative if it fails.
  double probe(const Subject& subject, std::string& why) {
    if (!image_.put_back(all_, why) || batch(subject, all_, 1, why) < 0) return -1;
    return batch(subject, all_, 1, why);
  }

  // Puts a mutant in the place of the program's kernel, where the condition has one.
  bool mutated(Subject& subject, const Condition& condition, std::string& why) {
    if (condition.instead) subject.function = condition.instead;
    return reshape(subject.config, condition.split) &&
           !(condition.toggle &&
             failed(driver().fill(condition.toggle, condition.on ? 0xff : 0, 4, all_), "switch", why));
  }

  double run(const Subject& subject, CUfunction function, const Condition& condition, int size,
             const Kept& kept, std::string& why) {
    const Driver& all = driver();
    Subject changed = subject;
    if (condition.more_shared > 0) {
      changed.config.sharedMemBytes += condition.more_shared;
      all.set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
              static_cast<int>(changed.config.sharedMemBytes));
    }
    if (condition.carveout != -2)
      all.set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, condition.carveout);
    if (!mutated(changed, condition, why)) return -1;
    double us = -1;
    if (image_.put_back(all_, why)) us = timed(changed, condition, size, why);
    if (condition.carveout != -2)
      all.set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kept.carveout);
    if (condition.more_shared > 0)
      all.set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kept.most_shared);
    return us;
  }

  double timed(const Subject& subject, const Condition& condition, int size, std::string& why) {
    if (batch(subject, condition.stream, 1, why) < 0) return -1;  // warms the caches up
    if (condition.traffic == Flow::none) return some(subject, condition.stream, size, why);
    if (!start_traffic(condition.traffic, why)) return -1;
    double us = batch(subject, condition.stream, 1, why);  // until the traffic flows
    if (us >= 0) us = some(subject, condition.stream, size, why);
    return stop_traffic(why) ? us : -1;
  }

  // Times some launches: a batch, or one at a time with what lies between them.
  double some(const Subject& subject, CUstream stream, int size, std::string& why) {
    if (replay_ == Replay::warm) return batch(subject, stream, size, why);
    std::array<double, 3> times{};
    for (double& us : times) {
      if (replay_ == Replay::cold &&
          failed(driver().fill(written_, 0, std::max(kOverDram, 2 * l2_bytes_), all_), "cold cache",
                 why))
        return -1;
      if (!restore(why)) return -1;
      if (failed(driver().wait(all_), "earlier work", why)) return -1;
      us = batch(subject, stream, 1, why);
      if (us < 0) return -1;
    }
    std::sort(times.begin(), times.end());
    return times[1];
  }

  // Puts back what the launch writes, and nothing else, so that caches stay.
  bool restore(std::string& why) {
    for (const Region& region : regions_) {
      if (failed(driver().copy(region.address, region.copy, region.size, all_), "results", why))
        return false;
    }
    return true;
  }

  bool start_traffic(Flow flow, std::string& why) {
    if (!set_stop(0, why)) return false;
    Traffic traffic(*this, flow, 4 * (multiprocessors() - most_.multiprocessors), kManyTurns, stop_);
    CUlaunchConfig config = traffic.subject.config;
    config.hStream = most_.others;
    return !failed(driver().launch(&config, traffic.subject.function, traffic.given, nullptr),
                   "traffic", why);
  }

  bool stop_traffic(std::string& why) {
    return set_stop(1, why) && !failed(driver().wait(most_.others), "traffic", why);
  }

  // Runs launches behind each other; microseconds of one, negative if a call fails.
  double batch(const Subject& subject, CUstream stream, int size, std::string& why) {
    const Driver& all = driver();
    CUgraphExec graph = short_ && size > 1 ? graph_of(subject, stream, size) : nullptr;
    const bool begun = !failed(all.record(from_, stream), "event", why) &&
                       (graph ? !failed(all.run_graph(graph, stream), "graph", why)
                              : launched(subject, stream, size, why));
    float ms = 0;
    const bool done = begun && !failed(all.record(to_, stream), "event", why) && ended(why) &&
                      !failed(all.elapsed(&ms, from_, to_), "event", why);
    if (graph && !hangs_) all.free_executable(graph);
    return done ? 1e3 * static_cast<double>(ms) / size : -1;
  }

  bool launched(const Subject& subject, CUstream stream, int size, std::string& why) {
    CUlaunchConfig config = subject.config;
    config.hStream = stream;
    for (int i = 0; i < size; ++i) {
      if (failed(driver().launch(&config, subject.function, subject.parameters, subject.extra),
                 "launch", why))
        return false;
    }
    return true;
  }

  // The launches as a graph that was launched once; null where the driver makes none of them.
  CUgraphExec graph_of(const Subject& subject, CUstream stream, int size) {
    const Driver& all = driver();
    std::string ignored;
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    if (!all.has_graphs() ||
        all.begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
      return nullptr;
    const bool whole = launched(subject, stream, size, ignored);
    if (all.end_capture(stream, &graph) != CUDA_SUCCESS || !graph) return nullptr;
    if (whole && all.instantiate(&made, graph, 0) != CUDA_SUCCESS) made = nullptr;
    all.free_graph(graph);
    if (made && all.run_graph(made, stream) != CUDA_SUCCESS) {
      all.free_executable(made);
      return nullptr;
    }
    return made;
  }

  // Waits for the end of a batch; false if it fails or does not come.
  bool ended(std::string& why) {
    const auto begun = Clock::now();
    CUresult result = driver().reached(to_);
    while (result == CUDA_ERROR_NOT_READY) {
      if (std::chrono::duration<double>(Clock::now() - begun).count() > patience_) {
        hangs_ = true;
        why = "it does not end";
        return false;
      }
      result = driver().reached(to_);
    }
    return !failed(result, "launch", why);
  }

  int multiprocessors_ = 0;
  size_t l2_bytes_ = 0;
  unsigned shared_of_multiprocessor_ = 0, shared_of_block_ = 0, reserved_shared_ = 0;
  CUstream all_ = nullptr;
  Partition most_, half_;
  CUevent from_ = nullptr, to_ = nullptr;
  CUfunction traffic_ = nullptr, empty_ = nullptr;
  CUdeviceptr read_ = 0, written_ = 0, stop_ = 0;
  Image image_;
  Comparison comparison_;
  std::vector<Region> regions_;  // what the launch writes
  Replay replay_ = Replay::warm;
  bool short_ = false;
  double graph_floor_ = -1, batch_floor_ = -1, single_floor_ = -1;
  std::mt19937 random_{1};
  double patience_ = patience;
  bool hangs_ = false;
  std::string fatal_;
};

}  // namespace experiments
