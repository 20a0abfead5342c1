// Hardware counters of every kernel launch of a program that repeats itself, without Nsight Compute.
//
// The CUDA driver loads this library (CUDA_INJECTION64_PATH) and so does NVTX
// (NVTX_INJECTION64_PATH). The program's iterations, which are NVTX ranges called iter_0, iter_1,
// ... or pairs of cudaProfilerStart and cudaProfilerStop, take the place of replay: the first ones
// are timed by CUPTI's activity records, without counters; then counter pass k is taken in
// iteration k. Nothing is saved, restored or flushed, so the caches are as the program leaves them.
// An iteration whose launches differ from those of the pass before it is not used.
//
// With PERFML_COUNTERS_REPLAY=kernel CUPTI repeats each launch on the spot, which programs without
// iterations need, and programs of several parts that begin their iterations anew (`parts.h`).
//
// PERFML_COUNTERS_KERNELS names a file with kernels: then the launches from FIRST to END of those
// alone are repeated, and nothing else is touched.
//
// Loaded by NVTX alone, with PERFML_BARE_DIR, it times iterations without CUPTI (`bare.h`).
//
// With PERFML_COUNTERS_UNIT=program and no metrics everything is timed and nothing counted: what
// lies between cudaProfilerStart and cudaProfilerStop is marked, nothing is serialised or flushed.
//
// A process may also load the library itself (`collectors.profilers.in_process`): `perfml_begin` and
// `perfml_end` around what is to be measured, as often as it likes, and ranges of its own. One that
// was started with PERFML_ATTACH_DIR is measured in windows when it is asked to (`attach.h`).
//
// Each process writes $PERFML_COUNTERS_DIR/<pid>.tsv (`collectors.profilers.counter_record` reads
// it); its last line is "# end", so that a process that died is told apart from one that is done.

#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "activity.h"
#include "attach.h"
#include "bare.h"
#include "graph_nodes.h"
#include "launches.h"
#include "measurer.h"
#include "nvtx_ranges.h"
#include "parts.h"
#include "record.h"

namespace {

using launches::Launch;

// Follows the program from iteration to iteration: the first ones are timed, then counters are read.
class Follower {
 public:
  // Never destroyed: the driver still calls back while static objects are torn down.
  static std::atomic<Follower*>& current() {
    static std::atomic<Follower*> follower{new Follower};
    return follower;
  }
  static Follower& only() { return *current(); }

  bool begin(const std::string& folder) {
    if (!file_.open(folder)) return false;
    file_.note("perfml-counters 1");
    request_.read_metrics();
    timing_ = request_.timed > 0;
    return true;
  }

  record::File& file() { return file_; }
  bool timing() const { return timing_; }
  bool finished() const { return finished_; }

  bool wanted() {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    return file_.is_open() && (timing_ || measuring());
  }

  // --- where the program is ---------------------------------------------------------------------
  // A child made by fork, whose file is closed, may have got a lock that nobody opens any more.

  void range_pushed(const std::string& name, size_t depth) {
    if (!file_.is_open() || !nvtx::is_iteration(name)) return;
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (request_.unit == "region" || request_.unit == "program") return;
    if (request_.region_only && !in_region_) return;
    // the first region turns out to hold iterations, so it is none itself
    const bool only_a_frame = unit_kind_ == "region" && units_ == 0 && request_.unit.empty();
    if (unit_open_ && !only_a_frame) return;
    if (!in_region_) ++units_outside_;
    unit_kind_ = "nvtx";
    unit_depth_ = depth;
    parts_.iteration_begins(name);
    begin_unit(name, nvtx::stack().back().path);
  }

  void range_popping(size_t depth) {
    if (!file_.is_open() || !ends_unit(depth)) return;
    const auto nothing_launches = quiet();
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (ends_unit(depth)) end_unit();
  }

  // Where the iteration's thread is: what other threads launch meanwhile belongs there.
  void ranges_changed() {
    if (!file_.is_open()) return;
    std::lock_guard<std::recursive_mutex> guard(lock_);
    if (unit_open_ && unit_thread_ == std::this_thread::get_id()) follow_thread();
  }

  void region_begins() {
    if (!file_.is_open()) return;
    std::lock_guard<std::recursive_mutex> guard(lock_);
    in_region_ = region_seen_ = true;
    if (unit_open_ || unit_kind_ == "nvtx") return;
    if (request_.unit == "nvtx" || request_.unit == "program") return;
    // a first region may hold iterations, which shows while it is timed
    if (units_ == 0 && request_.unit.empty() && !timing_) return;
    unit_kind_ = "region";
    const std::string name = "iter_" + std::to_string(units_);
    begin_unit(name, name);
  }

  void region_ends() {
    if (!file_.is_open()) return;
    const auto nothing_launches = quiet();
    std::lock_guard<std::recursive_mutex> guard(lock_);
    in_region_ = false;
    if (unit_open_ && unit_kind_ == "region") end_unit();
  }

  void context_ends(CUcontext context) {
    if (!file_.is_open()) return;
    const auto nothing_launches = quiet();
    std::lock_guard<std::recursive_mutex> guard(lock_);
    measurer_.context_ends(context);
  }

  // --- launches ---------------------------------------------------------------------------------

  // While counters are read the lock of the context is kept until `launch_ends`, so that launches
  // of several threads are measured in the order in which they are noted. Another context's launch
  // may come in between: what runs on one GPU may wait for it.
  void launch_begins(CUpti_CallbackId id, const CUpti_CallbackData& call) {
    if (!file_.is_open()) return;
    Kept kept{&lock_of(call.context)};
    kept.lock->lock();
    std::lock_guard<std::recursive_mutex> guard(lock_);
    kept.noted = note_launch(id, call);
    if (measurer_.follows()) this_launch() = kept;
    else kept.lock->unlock();
  }

  void launch_ends(CUcontext context, bool refused) {
    const Kept kept = this_launch();
    if (!kept.lock) return;
    this_launch() = {};
    {
      std::lock_guard<std::recursive_mutex> guard(lock_);
      if (refused && kept.noted) measurer_.launch_failed(context);
      measurer_.launch_ends(context);
    }
    kept.lock->unlock();
  }

  // --- times ------------------------------------------------------------------------------------

  // A copy or a fill is asked for. It is timed as launches are, and is none.
  void memory_moves(uint32_t correlation) {
    if (!file_.is_open() || !timing_) return;
    std::lock_guard<std::recursive_mutex> guard(lock_);
    Launch place;
    place_in_ranges(place);
    note_time(correlation, place);
  }

  void kernel_ran(const activity::KernelRecord& kernel) {
    if (!kernel.end) {  // its times found no room; of a server it may run on when that is let go
      dropped_records_ += in_windows_ ? 0 : 1;
      return;
    }
    activity::Made made = made_by(kernel.correlationId);
    if (kernel.graphNodeId) graphs::nodes().place(kernel.graphNodeId, kernel.correlationId, made);
    file_.line("T\t" + activity::line(kernel, made));
  }

  void memory_moved(const activity::Moved& moved) {
    file_.line("T\t" + activity::line(moved, made_by(moved.correlation)));
  }

  void records_dropped(size_t count) { dropped_records_ += count; }

  void seen(size_t windows, double seconds) {
    in_windows_ = true;
    file_.note("windows " + std::to_string(windows) + " " + std::to_string(seconds));
  }

  // --- the end ----------------------------------------------------------------------------------

  void finish() {
    if (!file_.is_open() || finished_.exchange(true)) return;
    if (request_.unit == "program") {  // most records are written while the program goes on
      activity::disable();
      cuptiActivityFlushAll(0);
    }
    {
      const auto nothing_launches = quiet();
      std::lock_guard<std::recursive_mutex> guard(lock_);
      if (unit_open_) end_unit();
      end_timing();
      measurer_.finish();
      if (parts_.differ()) file_.note("parts 1");
    }
    tell();
    file_.close();
  }

 private:
  void tell() {
    file_.note("unit " + (unit_kind_.empty() ? "none" : unit_kind_));
    file_.note("region", region_seen_ ? 1 : 0);
    file_.note("units", units_);
    file_.note("outside", units_outside_);
    file_.note("launches", measurer_.known_launches());
    file_.note("all", all_launches_);
    file_.note("dropped", dropped_records_);
  }

  // What a thread keeps from a launch's beginning to its end.
  struct Kept {
    std::recursive_mutex* lock = nullptr;
    bool noted = false;  // the launch is one of an iteration
  };

  static Kept& this_launch() {
    thread_local Kept kept;
    return kept;
  }

  // Kernel replay ends one context's window where another one launches, so all share a lock.
  std::recursive_mutex& lock_of(CUcontext context) {
    std::lock_guard<std::mutex> guard(context_locks_lock_);
    return context_locks_[request_.kernel_replay ? nullptr : context];
  }

  // Keeps other threads' launches out of the measured context; taken before `lock_`.
  std::unique_lock<std::recursive_mutex> quiet() {
    CUcontext context = nullptr;
    {
      std::lock_guard<std::recursive_mutex> guard(lock_);
      context = measurer_.measured();
    }
    return std::unique_lock<std::recursive_mutex>(lock_of(context));
  }

  bool ends_unit(size_t depth) {
    std::lock_guard<std::recursive_mutex> guard(lock_);
    return unit_open_ && unit_kind_ == "nvtx" && depth == unit_depth_ &&
           unit_thread_ == std::this_thread::get_id();
  }

  bool measuring() const { return !timing_ && !request_.metrics.empty() && !measurer_.done(); }

  void begin_unit(const std::string& name, const std::string& path) {
    unit_open_ = true;
    unit_path_ = path;
    unit_thread_ = std::this_thread::get_id();
    unit_instance_ =
        nvtx::stack().empty() ? nvtx::new_instance() : nvtx::stack().back().instance;
    follow_thread();
    if (timing_ && !request_.parts && units_ >= request_.timed) end_timing();
    measurer_.unit_begins(name, measuring() && !beyond(request_.sets));
  }

  void follow_thread() {
    const nvtx::Range* range = nvtx::innermost();
    thread_instance_ = range ? range->instance : unit_instance_;
    thread_path_ = range ? range->path : "";
  }

  void end_unit() {
    unit_open_ = false;
    ++units_;
    if (unit_kind_ == "nvtx") parts_.iteration_ends(launches::signature(measurer_.launches()));
    const bool was_measuring = measuring();
    measurer_.unit_ends();
    // now, since children of Python's multiprocessing end by _exit, which tells nobody
    if (was_measuring && measurer_.done()) tell();
  }

  // Whether the open iteration is not among the first ones of its part.
  bool beyond(size_t wanted) const { return request_.parts && parts_.iterations() > wanted; }

  // Whether the call is one of the launches of an iteration.
  bool note_launch(CUpti_CallbackId id, const CUpti_CallbackData& call) {
    Launch launch;
    launch.context = measurer_.context_number(call.context);
    if (!launches::read(id, call, measurer_.device(launch.context), launch)) return false;
    // a process that is killed tells no count
    if (++all_launches_ == 1) file_.note("launched");
    if (request_.unit == "program" && !unit_open_ && measuring()) {
      unit_kind_ = "program";
      begin_unit("", "");
    }
    place_in_ranges(launch);
    if (timing_) note_time(call.correlationId, launch);
    if (!unit_open_) return false;
    if (launch.graph && measuring()) {
      file_.note("graph " + unit_path_);
      measurer_.give_up("the program replays CUDA graphs");
    }
    const bool counted = chosen(launch);
    measurer_.launch_begins(std::move(launch), counted);
    return true;
  }

  // Whether a launch is one of those that are asked for by kernel and number.
  bool chosen(const Launch& launch) {
    if (request_.kernels.empty()) return true;
    if (request_.region_only && !in_region_) return false;
    if (!request_.kernels.count(launches::demangled(launch.kernel))) return false;
    const size_t number = chosen_++;
    return number >= request_.first_launch && number < request_.end_launch;
  }

  void note_time(uint32_t correlation, const Launch& launch) {
    std::lock_guard<std::mutex> guard(times_lock_);
    // several threads may be in iterations of their own, of which one is the open unit
    const bool repeats = (unit_open_ || (unit_kind_ == "nvtx" && nvtx::in_iteration())) &&
                         !beyond(request_.timed);
    const bool marked = request_.unit == "program" ? in_region_.load() : repeats;
    timed_[correlation] = {++sequence_, launch.instance, marked, launch.path};
  }

  activity::Made made_by(uint32_t correlation) {
    std::lock_guard<std::mutex> guard(times_lock_);
    const auto entry = timed_.find(correlation);
    return entry != timed_.end() ? entry->second : activity::Made{};
  }

  void place_in_ranges(Launch& launch) const {
    const nvtx::Range* range = nvtx::innermost();
    const bool elsewhere = unit_open_ && unit_thread_ != std::this_thread::get_id();
    const bool own = range && range->own;
    // a backward pass that is named; a thread in an iteration of its own has its whole path
    const bool own_there = elsewhere && own && !nvtx::in_iteration();
    if (elsewhere && !own) {
      // launched by another thread, such as the one that runs a backward pass
      launch.instance = thread_instance_;
      launch.path = thread_path_;
    } else if (range) {
      launch.instance = range->instance;
      launch.path = range->path;
    } else if (unit_open_) {
      launch.instance = unit_instance_;
    }
    if (!unit_open_) return;
    if (launch.path.empty()) launch.path = unit_path_;
    else if (unit_kind_ == "region" || own_there)
      launch.path = unit_path_ + nvtx::kSeparator + launch.path;
  }

  void end_timing() {
    if (!timing_) return;
    activity::disable();  // of what is launched from now on; a server goes on launching
    measurer_.synchronize();
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    timing_ = false;
  }

  record::Request request_;
  record::File file_;
  counters::Measurer measurer_{request_, file_};
  Parts parts_;
  std::recursive_mutex lock_;
  std::mutex context_locks_lock_;
  std::unordered_map<CUcontext, std::recursive_mutex> context_locks_;

  bool unit_open_ = false, region_seen_ = false;
  std::atomic<bool> in_region_{false};
  std::string unit_kind_, unit_path_, thread_path_;
  std::thread::id unit_thread_;
  unsigned long long unit_instance_ = 0, thread_instance_ = 0;
  size_t unit_depth_ = 0, units_ = 0, units_outside_ = 0, all_launches_ = 0;
  size_t chosen_ = 0;  // launches of the kernels asked for, so far

  std::atomic<bool> timing_{false}, finished_{false};
  std::atomic<bool> in_windows_{false};
  std::atomic<size_t> dropped_records_{0};
  unsigned long long sequence_ = 0;
  std::mutex times_lock_;
  std::unordered_map<uint32_t, activity::Made> timed_;
};

// --- callbacks --------------------------------------------------------------------------------------

void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  Follower& follower = Follower::only();
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    const auto* resource = static_cast<const CUpti_ResourceData*>(data);
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) follower.context_ends(resource->context);
    else graphs::nodes().made(id, *static_cast<CUpti_GraphData*>(resource->resourceDescriptor));
    return;
  }
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  const bool enters = call.callbackSite == CUPTI_API_ENTER;
  if (activity::moves_memory(call.functionName)) {
    if (enters) follower.memory_moves(call.correlationId);
  } else if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) {
    if (!enters) follower.region_begins();
  } else if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) {
    if (enters) follower.region_ends();
  } else if (enters) {
    follower.launch_begins(id, call);
  } else {
    const auto* result = static_cast<const CUresult*>(call.functionReturnValue);
    follower.launch_ends(call.context, result && *result != CUDA_SUCCESS);
  }
}

bool watch(CUpti_SubscriberHandle subscriber, std::string& why) {
  for (CUpti_CallbackId id : launches::kDriverCalls) {
    if (counters::failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id),
                         "EnableCallback", why))
      return false;
  }
  if (counters::failed(activity::watch_memory(subscriber), "EnableCallback", why)) return false;
  for (CUpti_CallbackId id :
       {CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
        CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    if (counters::failed(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id),
                         "EnableCallback", why))
      return false;
  }
  return true;
}

void range_pushed(const std::string& name, size_t depth) {
  Follower::only().range_pushed(name, depth);
}
void range_popping(size_t depth) { Follower::only().range_popping(depth); }
void ranges_changed() { Follower::only().ranges_changed(); }
void kernel_ran(const activity::KernelRecord& kernel) { Follower::only().kernel_ran(kernel); }
void memory_moved(const activity::Moved& moved) { Follower::only().memory_moved(moved); }
void records_dropped(size_t count) { Follower::only().records_dropped(count); }
void finish() { Follower::only().finish(); }

CUpti_SubscriberHandle g_subscriber = nullptr;

void note_failure(const std::string& why) {
  if (!why.empty()) Follower::only().file().note("error " + why);
}

// Begins a record of its own in a folder, as the variables ask; nothing is followed yet.
bool open_record(const std::string& folder) {
  if (Follower::only().finished()) Follower::current() = new Follower;
  if (!Follower::only().begin(folder)) return false;
  activity::listener() = {kernel_ran, memory_moved, records_dropped};
  nvtx::listener() = {range_pushed, range_popping, ranges_changed};
  return true;
}

bool subscribe(std::string& why) {
  return g_subscriber ||
         !counters::failed(cuptiSubscribe(&g_subscriber, on_call, nullptr), "Subscribe", why);
}

bool trace(std::string& why) {
  return !counters::failed(
             cuptiActivityRegisterCallbacks(activity::buffer_wanted, activity::buffer_done),
             "ActivityRegisterCallbacks", why) &&
         !counters::failed(activity::enable(), "ActivityEnable", why);
}

// Begins a record, and follows all launches from now on.
bool begin(const std::string& folder) {
  if (!open_record(folder)) return false;
  std::string why;
  if (subscribe(why) && watch(g_subscriber, why) && Follower::only().timing()) trace(why);
  note_failure(why);
  return true;
}

// Other tools of the process may use CUPTI again.
void let_go() {
  if (g_subscriber) cuptiUnsubscribe(g_subscriber);
  g_subscriber = nullptr;
}

// Begins a record of a server; notes if another tool is subscribed.
bool approach(const std::string& folder) {
  if (!open_record(folder)) return false;
  std::string why;
  subscribe(why);
  let_go();
  note_failure(why);
  return true;
}

// Of a server: records what is launched while a window is open. Who sets ranges is called back then.
void window(bool open) {
  std::string why;
  if (open) {
    if (!nvtx::used() || (subscribe(why) && watch(g_subscriber, why))) trace(why);
    note_failure(why);
  } else {
    activity::disable();
    let_go();
    cuptiActivityFlushAll(0);
  }
}

void seen(size_t windows, double seconds) { Follower::only().seen(windows, seconds); }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Called by the CUDA driver when the program initialises it.
EXPORTED int InitializeInjection(void) {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string folder = record::text_from("PERFML_COUNTERS_DIR");
    if (!folder.empty() && begin(folder)) std::atexit(finish);
    const std::string asked = record::text_from("PERFML_ATTACH_DIR");
    if (!asked.empty()) attach::listen(asked, {approach, window, seen, finish});
  });
  return 1;
}

// Called by NVTX once in every binary that uses it.
EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  if (std::getenv("PERFML_BARE_DIR")) {  // with nothing of CUPTI: the driver loads no library then
    static std::once_flag once;
    std::call_once(once, bare::listen);
  }
  return nvtx::install(export_table);
}

// For programs that repeat their work as long as there is something to measure.
EXPORTED int perfml_counters_wanted(void) { return Follower::only().wanted() ? 1 : 0; }

// For a process that measures itself: 1 if a record was begun.
EXPORTED int perfml_begin(void) { return begin(record::text_from("PERFML_COUNTERS_DIR")) ? 1 : 0; }

// For a process that measures itself: times iterations without CUPTI, until it is called with 0.
EXPORTED void perfml_bare(int begins) {
  if (begins) bare::listen();
  else bare::close();
}

EXPORTED void perfml_end(void) {
  finish();
  let_go();
}

EXPORTED void perfml_push(const char* name) { nvtx::push_ascii(name); }
EXPORTED void perfml_pop(void) { nvtx::pop_default(); }
