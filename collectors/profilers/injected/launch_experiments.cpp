// Asks each kernel launch of a program what limits it: the launch is run again with less of one
// resource of the GPU. No counters are read, and no permission is needed.
//
// The CUDA driver loads this library (CUDA_INJECTION64_PATH) and so does NVTX
// (NVTX_INJECTION64_PATH). Experiments happen when the program asks for a launch, before it runs.
// What they write is put back, so the program goes on with the memory that it had. Of a program with
// iterations (NVTX ranges like iter_3) the launches of the second one are examined, the first having
// warmed up; of another program each different launch, once. PERFML_EXPERIMENTS_UNIT=nvtx says that
// there are iterations, so that what comes before them is left alone.
//
// While a launch is examined other threads wait where they would launch, copy or allocate. A launch
// that does not end under an experiment (it waits for blocks that fewer multiprocessors do not hold,
// or for another process) ends the process, after its name was written down: the collector runs the
// program again with PERFML_EXPERIMENTS_LEAVE, a file of kernels to leave alone.
//
// PERFML_EXPERIMENTS_RANGES is a file with a line a range; launches in none of them are left alone, if
// there are any.
//
// PERFML_EXPERIMENTS_TIMES is a file with a line a launch of the program alone: the time of the first,
// the median and the seconds of experiments on it, then path, kernel, grid and block, between tabs. A
// launch whose repetition takes another time than that is not measured, one without seconds is left.
//
// PERFML_EXPERIMENTS_VARIABLES is a file with a line a kernel (mangled) and the variables of its module
// in global memory, between tabs: they are put back, too.
//
// With PERFML_EXPERIMENTS_MUTANTS (mutants.h) a launch is run again as its kernel's mutants instead.
// Code that the program loads is kept beside the record where it is PTX (program_code.h).
//
// Each process writes $PERFML_EXPERIMENTS_DIR/<pid>.tsv (`collectors.profilers.experiments` reads
// it); its last line is "# end".

#include <cuda.h>
#include <cupti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "laboratory.h"
#include "launches.h"
#include "memory_image.h"
#include "mutants.h"
#include "nvtx_ranges.h"
#include "program_code.h"
#include "record.h"
#include "request.h"

namespace {

using experiments::Examination;
using experiments::Flow;
using experiments::Laboratory;
using experiments::Outcome;
using experiments::Request;
using experiments::Subject;
using launches::Launch;
using experiments::Clock;

constexpr int kHung = 86;             // exit status, beside the name in the record

thread_local bool g_experimenting = false;  // our own launches come by here, too

// The name of the first iteration in a path of ranges; empty where there is none.
std::string iteration_in(const std::string& path) {
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, nvtx::kSeparator);) {
    if (nvtx::is_iteration(name)) return name;
  }
  return "";
}

class Examiner {
 public:
  static Examiner& only() {
    // never destroyed: the driver still calls back while static objects are torn down
    static Examiner* const examiner = new Examiner;
    return *examiner;
  }

  bool begin(const std::string& folder) {
    if (!file_.open(folder)) return false;
    folder_ = folder;
    mutants_ = experiments::read_mutants(request_.mutants);
    file_.note("perfml-experiments 1");
    laboratory_.patience = static_cast<double>(record::number_from("PERFML_EXPERIMENTS_PATIENCE", 20));
    return true;
  }

  record::File& file() { return file_; }
  experiments::Allocations& allocations() { return allocations_; }

  // Keeps what the program loads, for who makes mutants of it.
  void code_comes(CUpti_CallbackId id, const void* given) {
    if (request_.mutants.empty()) file_.note(code::keep(id, given, folder_));
  }

  // Other threads do nothing on the GPU while a launch is examined.
  void wait() { std::lock_guard<std::mutex> guard(lock_); }

  // A graph that is being captured does not stand for what experiments do.
  void capture(bool begins) {
    if (begins || captures_ > 0) captures_ += begins ? 1 : -1;
  }

  void launch_begins(CUpti_CallbackId id, const CUpti_CallbackData& call) {
    std::lock_guard<std::mutex> guard(lock_);
    if (!file_.is_open() || given_up_) return;
    Launch launch;
    if (!launches::read(id, call, 0, launch)) return;
    ++seen_;
    if (!due(launch) || (!request_.mutants.empty() && !mutants_.count(launch.kernel))) return;
    std::string why;
    if (captures_ > 0) {
      skip(launch, "a graph is being captured meanwhile");
      return;
    }
    if (request_.leave.count(launch.kernel)) {
      skip(launch, "it waits for blocks or processes that an experiment stops");
      return;
    }
    Subject subject;
    if (!experiments::subject_of(id, call, subject, why)) {
      skip(launch, why);
      return;
    }
    if (spent_ >= request_.seconds || request_.own_of(path_, launch).seconds <= 0) {
      ++left_;
      return;
    }
    const auto begun = Clock::now();
    g_experimenting = true;
    examine(call.context, launch, subject);
    g_experimenting = false;
    spent_ += std::chrono::duration<double>(Clock::now() - begun).count();
  }

  // The program resets its device: nothing of ours may keep it, and there are no more experiments.
  void close() {
    std::lock_guard<std::mutex> guard(lock_);
    given_up_ = true;
    if (!context_) return;
    g_experimenting = true;
    laboratory_.close();
    g_experimenting = false;
  }

  void finish() {
    std::lock_guard<std::mutex> guard(lock_);
    if (!file_.is_open()) return;
    file_.note("launches", seen_);
    file_.note("left", left_);
    file_.note("shortened", shortened_);
    file_.close();
  }

 private:
  // Whether a launch is to be examined; see above for which are.
  bool due(const Launch& launch) {
    const nvtx::Range* range = nvtx::innermost();
    path_ = range ? range->path : "";
    const bool planned = request_.holds(path_);
    const std::string iteration = iteration_in(path_);
    if (!iteration.empty()) {
      if (iteration != iteration_) ++iterations_;
      iteration_ = iteration;
      return planned && iterations_ == 2;
    }
    // before and between iterations: not what repeats
    if (!planned || iterations_ > 0 || request_.unit == "nvtx") return false;
    std::ostringstream key;
    key << launch.kernel << launches::shape(launch.grid) << launches::shape(launch.block)
        << launch.dynamic_shared << path_;
    return known_.insert(key.str()).second;
  }

  // Runs the experiments on a launch, with the program's memory put back after each.
  void examine(CUcontext context, const Launch& launch, const Subject& subject) {
    std::string why;
    if (!open(context, why)) {
      skip(launch, why);
      return;
    }
    std::map<CUdeviceptr, size_t> memory = allocations_.now(context);
    allocations_.add_host(experiments::words_of(subject), memory);
    experiments::add_variables(subject.function, request_.variables[launch.kernel], memory);
    if (experiments::failed(experiments::driver().wait_for_all(), "earlier work", why) ||
        !laboratory_.image().take(memory, laboratory_.stream(), why)) {
      skip(launch, why);
      return;
    }
    const experiments::Own own = request_.own_of(path_, launch);
    const double seconds = std::min(own.seconds, request_.seconds - spent_);
    const auto mutants = mutants_.find(launch.kernel);
    const Examination made = laboratory_.examine(
        subject, request_.rounds, seconds, why,
        mutants == mutants_.end() ? std::vector<experiments::Mutant>{} : mutants->second, own);
    if (!laboratory_.fatal().empty() || laboratory_.hangs()) end_process(launch);
    std::string lost;
    if (!laboratory_.image().put_back(laboratory_.stream(), lost)) {
      file_.note("error " + lost);  // the program's memory is not what it was
      given_up_ = true;
    }
    if (made.outcomes.empty()) {
      skip(launch, why);
      return;
    }
    shortened_ += made.shortened;
    write(launch, made);
  }

  // Nothing but the end of its process ends a kernel, or heals a context.
  [[noreturn]] void end_process(const Launch& launch) {
    file_.note("hung " + launch.kernel + ' ' + laboratory_.fatal());
    _exit(kHung);
  }

  bool open(CUcontext context, std::string& why) {
    if (context_ == context) return true;
    if (context_) {
      why = "another context than the first";
      return false;
    }
    if (!laboratory_.open(why)) {
      given_up_ = true;
      file_.note("error " + why);
      return false;
    }
    context_ = context;
    std::ostringstream line;
    line << "D\t" << laboratory_.multiprocessors() << '\t' << laboratory_.l2_bytes() << '\t'
         << laboratory_.empty_us(why);
    file_.line(line.str());
    const std::pair<const char*, Flow> known[] = {
        {"C\tdram", Flow::dram}, {"C\tl2", Flow::l2}, {"C\tatomics", Flow::atomics}};
    for (const auto& [name, flow] : known) {
      if (!request_.mutants.empty()) break;
      const Examination made = laboratory_.calibrate(flow, request_.rounds, why);
      for (const Outcome& outcome : made.outcomes) write(name, outcome);
    }
    return true;
  }

  void write(const std::string& subject, const Outcome& outcome) {
    std::ostringstream text;
    text << subject << '\t' << outcome.condition.name << '\t' << outcome.condition.control << '\t'
         << outcome.condition.amount << '\t';
    for (size_t i = 0; i < outcome.us.size(); ++i) text << (i ? "," : "") << outcome.us[i];
    file_.line(text.str());
  }

  void write(const Launch& launch, const Examination& made) {
    std::ostringstream text;
    text << "K\t" << examined_ << '\t' << launches::shape(launch.grid) << '\t'
         << launches::shape(launch.block) << '\t' << launch.dynamic_shared << '\t' << made.blocks
         << '\t' << made.batch << '\t' << path_ << '\t' << launches::demangled(launch.kernel) << '\t'
         << launch.kernel << '\t' << experiments::name_of(made.replay) << '\t' << made.own_us;
    file_.line(text.str());
    for (const Outcome& outcome : made.outcomes) write("E\t" + std::to_string(examined_), outcome);
    for (const Outcome& outcome : made.outcomes) {
      if (outcome.same_path < 0 && outcome.changed < 0) continue;
      std::ostringstream row;
      row << "M\t" << examined_ << '\t' << outcome.condition.name << '\t' << outcome.same_path << '\t'
          << outcome.changed;
      file_.line(row.str());
    }
    for (const std::string& refused : made.refused)
      file_.line("S\t" + path_ + '\t' + launches::demangled(launch.kernel) + '\t' + refused);
    file_.note("examined", ++examined_);  // and is written out, should the program be stopped
  }

  void skip(const Launch& launch, const std::string& why) {
    file_.line("S\t" + path_ + '\t' + launches::described(launch) + '\t' + why);
  }

  Request request_;
  record::File file_;
  std::string folder_;
  std::map<std::string, std::vector<experiments::Mutant>> mutants_;
  experiments::Allocations allocations_;
  Laboratory laboratory_;
  std::mutex lock_;
  CUcontext context_ = nullptr;
  std::set<std::string> known_;
  std::string path_, iteration_;
  std::atomic<int> captures_{0};
  size_t seen_ = 0, examined_ = 0, left_ = 0, shortened_ = 0, iterations_ = 0;
  double spent_ = 0;
  bool given_up_ = false;
};

enum class Kind { other, launch, memory, code, capture_begins, capture_ends, reset };

// What a driver call is to the experiments, by its name.
Kind kind_of(CUpti_CallbackId id) {
  for (CUpti_CallbackId each : launches::kDriverCalls) {
    if (each == id) return Kind::launch;
  }
  const char* text = nullptr;
  if (cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &text) != CUPTI_SUCCESS || !text)
    return Kind::other;
  const std::string name = text;
  const auto begins = [&name](const char* with) { return name.rfind(with, 0) == 0; };
  if (begins("cuStreamBeginCapture")) return Kind::capture_begins;
  if (begins("cuStreamEndCapture")) return Kind::capture_ends;
  if (begins("cuDevicePrimaryCtxReset")) return Kind::reset;
  if (begins("cuModuleLoad") || begins("cuLibraryLoad")) return Kind::code;
  for (const char* with : {"cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "cuMemMap",
                           "cuMemUnmap", "cuMemHost", "cuModuleUnload", "cuLibraryUnload"}) {
    if (begins(with)) return Kind::memory;
  }
  return Kind::other;
}

const std::vector<Kind>& kinds() {
  static const auto* const known = [] {
    auto* all = new std::vector<Kind>(CUPTI_DRIVER_TRACE_CBID_SIZE, Kind::other);
    for (CUpti_CallbackId id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) (*all)[id] = kind_of(id);
    return all;
  }();
  return *known;
}

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId id, const void* data) {
  if (g_experimenting || id >= kinds().size()) return;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  Examiner& examiner = Examiner::only();
  const bool enters = call.callbackSite == CUPTI_API_ENTER;
  switch (kinds()[id]) {
    case Kind::launch:
      if (enters) examiner.launch_begins(id, call);
      return;
    case Kind::memory:
      if (enters) examiner.wait();
      examiner.allocations().heard(id, call);
      return;
    case Kind::code:
      if (enters) examiner.code_comes(id, call.functionParams);
      return;
    case Kind::capture_begins:
      if (!enters && *static_cast<const CUresult*>(call.functionReturnValue) == CUDA_SUCCESS)
        examiner.capture(true);
      return;
    case Kind::capture_ends:
      if (!enters) examiner.capture(false);
      return;
    case Kind::reset:
      if (enters) examiner.close();
      return;
    case Kind::other: return;
  }
}

void finish() { Examiner::only().finish(); }

bool watch(CUpti_SubscriberHandle subscriber) {
  for (CUpti_CallbackId id = 1; id < kinds().size(); ++id) {
    if (kinds()[id] != Kind::other &&
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id) != CUPTI_SUCCESS)
      return false;
  }
  return true;
}

}  // namespace

// Called by the CUDA driver when the program initialises it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string folder = record::text_from("PERFML_EXPERIMENTS_DIR");
    if (folder.empty() || !Examiner::only().begin(folder)) return;
    std::atexit(finish);
    CUpti_SubscriberHandle subscriber = nullptr;
    if (cuptiSubscribe(&subscriber, on_call, nullptr) != CUPTI_SUCCESS || !watch(subscriber))
      Examiner::only().file().note("error another tool is attached to this program");
  });
  return 1;
}

// Called by NVTX once in every binary that uses it.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  return nvtx::install(export_table);
}
