// Takes the counter passes: which metrics, which context and which launches are measured now.
//
// A session is one context, one group of metrics, and as many launches as its memory holds (a
// window). Replay by iterations takes one pass of one session in each iteration, so more contexts
// and more windows take more iterations; two open sessions on a GPU keep each other's counters busy.
// Rows of an iteration are written when all of it has been measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chip.h"
#include "counter_session.h"
#include "instrumented.h"
#include "launches.h"
#include "record.h"

namespace counters {

using launches::Launch;
using Clock = std::chrono::steady_clock;

constexpr size_t kSpareRanges = 8;
constexpr size_t kRangesOfUnknownWork = 512;
constexpr int kMostRestarts = 3;  // after these the iterations are taken to differ for good

inline double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Context {
  CUcontext handle = nullptr;
  CUdevice device = 0;
  std::unique_ptr<Session> session;
};

class Measurer {
 public:
  Measurer(const record::Request& request, record::File& file) : request_(request), file_(file) {}

  bool done() const { return done_; }
  // The context whose counters are being read, or none.
  CUcontext measured() const { return running_ ? contexts_[running_context_].handle : nullptr; }
  // Whether counters are read of the launches that are made now.
  bool follows() const { return measured_ && !done_; }
  size_t known_launches() const { return expected_.empty() ? request_.launches : expected_.size(); }
  const std::vector<Launch>& launches() const { return launches_; }

  unsigned context_number(CUcontext handle) {
    for (size_t i = 0; i < contexts_.size(); ++i) {
      if (contexts_[i].handle == handle) return static_cast<unsigned>(i);
    }
    Context context;
    context.handle = handle;
    driver::Current current(handle);
    if (driver::functions().device) driver::functions().device(&context.device);
    contexts_.push_back(std::move(context));
    return static_cast<unsigned>(contexts_.size() - 1);
  }

  CUdevice device(unsigned context) const { return contexts_[context].device; }

  // Waits for what runs on a context's GPU; kernels of another GPU may wait for launches to come.
  void synchronize(unsigned number) {
    for (Context& context : contexts_) {
      if (context.handle && context.device == contexts_[number].device)
        driver::synchronize(context.handle);
    }
  }
  void synchronize() {
    for (Context& context : contexts_) {
      if (context.handle) driver::synchronize(context.handle);
    }
  }

  // Measures no more; the program runs on as if nothing were.
  void give_up(const std::string& why) {
    file_.note("error " + why);
    done_ = true;
    running_ = false;
    close_sessions();
  }

  // --- the work --------------------------------------------------------------------------------

  // `measured`: counters are to be read of this unit.
  void unit_begins(const std::string& name, bool measured) {
    unit_ = name;
    launches_.clear();
    seen_in_context_ = 0;
    measured_ = false;
    if (!measured || done_) return;
    if (request_.kernel_replay) {
      measured_ = true;
      return;
    }
    if (CUcontext current = driver::current_context()) context_number(current);
    // an iteration whose launches nobody knows yet is counted only
    if (expected_.empty() && (request_.launches == 0 || contexts_.size() != 1)) return;
    measured_ = prepare(context_of_turn());
    if (measured_ && window_first_ == 0) start_window(context_of_turn());
  }

  // `chosen`: it is one of the launches that are asked for.
  void launch_begins(Launch launch, bool chosen) {
    if (measured_ && !done_ && chosen) {
      if (request_.kernel_replay) replay_launch(launch.context);
      else count_launch(launch.context);
    }
    launches_.push_back(std::move(launch));
  }

  void launch_ends(CUcontext context) {
    if (!running_ || context != measured()) return;
    if (!request_.kernels.empty()) {  // the launches between two chosen ones run as they are
      end_window();
      if (++windows_ >= request_.end_launch - request_.first_launch) enough();
      return;
    }
    const bool full = places_.size() >= contexts_[running_context_].session->reserved();
    // the last window is open to the end, so that an iteration with more launches is noticed
    if (full && (request_.kernel_replay || window_first_ + places_.size() < launches_expected()))
      end_window();
  }

  // The driver refused the launch that was noted last in this context.
  void launch_failed(CUcontext handle) {
    const unsigned context = context_number(handle);
    const std::vector<size_t> made = launches::places_of(launches_, context);
    if (!follows() || made.empty()) return;
    launches_.erase(launches_.begin() + static_cast<long>(made.back()));
    if (!request_.kernel_replay && context == context_of_turn()) --seen_in_context_;
    if (running_ && context == running_context_ && !places_.empty()) places_.pop_back();
  }

  void unit_ends() {
    if (running_) end_window();
    if (!measured_) {
      expect(launches_);
    } else if (!done_) {
      if (request_.kernel_replay) replayed_unit_ends();
      else iteration_ends();
    }
    measured_ = false;
  }

  void context_ends(CUcontext handle) {
    for (size_t number = 0; number < contexts_.size(); ++number) {
      Context& context = contexts_[number];
      if (context.handle != handle) continue;
      if (running_ && running_context_ == number) end_window();
      std::string why;
      if (context.session) context.session->close(why);
      context.session.reset();
      context.handle = nullptr;
    }
  }

  void finish() {
    if (passes_done_ > 0)
      file_.note("unfinished group " + std::to_string(group_number_) + ": " +
                 std::to_string(passes_done_) + " of " + std::to_string(group_.passes()) +
                 " passes");
    close_sessions();
  }

 private:
  // --- launches --------------------------------------------------------------------------------

  void count_launch(unsigned context) {
    if (context != context_of_turn()) return;
    if (!running_ && window_first_ > 0 && seen_in_context_ == window_first_) start_window(context);
    if (running_) places_.push_back(seen_in_context_);
    ++seen_in_context_;
  }

  void replay_launch(unsigned context) {
    if (running_ && running_context_ != context) end_window();
    if (!running_ && !done_ && prepare(context)) start_window(context);
    if (running_) places_.push_back(launches_.size());
  }

  // From now on an iteration is taken to launch this.
  void expect(const std::vector<Launch>& launches) {
    expected_ = launches;
    expected_of_.clear();
    for (const Launch& launch : expected_) {
      auto known = std::find_if(expected_of_.begin(), expected_of_.end(),
                                [&](const auto& each) { return each.first == launch.context; });
      if (known == expected_of_.end()) known = expected_of_.insert(known, {launch.context, 0});
      ++known->second;
    }
  }

  unsigned context_of_turn() const { return expected_of_.empty() ? 0 : expected_of_[turn_].first; }

  size_t launches_expected() const {
    return expected_of_.empty() ? request_.launches : expected_of_[turn_].second;
  }

  // --- windows: launches between one Start and Stop ----------------------------------------------

  void start_window(unsigned context) {
    const auto asked = Clock::now();
    std::string why;
    synchronize(context);
    if (!contexts_[context].session->start(why)) return give_up(why);
    places_.clear();
    running_ = true;
    running_context_ = context;
    started_ = Clock::now();
    start_seconds_ = seconds(asked, started_);
  }

  void end_window() {
    Session& session = *contexts_[running_context_].session;
    synchronize(running_context_);
    const auto worked = Clock::now();
    std::string why;
    running_ = false;
    if (!session.stop(complete_, why)) return give_up(why);
    char spent[96];
    std::snprintf(spent, sizeof spent, "pass %zu %zu %.6f %.6f %.6f", places_.size(), passes_done_,
                  start_seconds_, seconds(started_, worked), seconds(worked, Clock::now()));
    file_.note(spent);
    if (!request_.kernel_replay) return;
    if (!places_.empty() && !read_window(launches_)) return;
    write_rows();
    if (!session.again(why)) give_up(why);
  }

  // --- sessions ----------------------------------------------------------------------------------

  // Makes a context ready for the first or the next pass; false if that failed.
  bool prepare(unsigned number) {
    Context& context = contexts_[number];
    std::string why;
    if (chip_.name.empty()) {
      if (!find_chip(context.handle, context.device, chip_, why)) return refuse(why);
      describe(context.device, chip_, file_);
    }
    if (groups_.empty() && !divide()) return false;
    if (!group_ready_ && !open_group()) return false;
    if (context.session) return true;
    close_sessions();  // a session of another context keeps the counters busy
    context.session = std::make_unique<Session>(context.handle);
    const auto replay = request_.kernel_replay ? CUPTI_KernelReplay : CUPTI_UserReplay;
    if (!context.session->open(group_, ranges_wanted(), request_.memory, replay, why))
      return refuse(why);
    file_.note("reserved " + std::to_string(context.session->reserved()) + " ranges " +
               std::to_string(context.session->image_size()) + " bytes");
    if (!request_.kernel_replay) file_.note("expects", launches_expected());
    return true;
  }

  void enough() {
    if (done_) return;
    file_.note("done group", group_number_);
    close_sessions();
    done_ = true;
  }

  size_t ranges_wanted() const {
    if (!request_.kernels.empty()) return kSpareRanges;
    if (!request_.kernel_replay) return launches_expected() + kSpareRanges;
    return known_launches() ? known_launches() + kSpareRanges : kRangesOfUnknownWork;
  }

  bool divide() {
    std::vector<std::string> missing;
    std::string why;
    if (!partition(chip_.name, chip_.availability, request_.metrics, request_.most_passes, groups_,
                   missing, why))
      return refuse(why);
    if (Instrumented::wanted(request_)) part_instrumented();
    for (const std::string& name : missing) file_.note("missing " + name);
    file_.note("groups", groups_.size());
    group_number_ = request_.first_group;
    if (group_number_ < groups_.size()) return true;
    done_ = true;
    return false;
  }

  // The hardware's counters stay in the order that was found to take the fewest passes.
  void part_instrumented() {
    std::vector<std::string> hardware, in_code;
    Instrumented::part(groups_.front(), hardware, in_code);
    if (in_code.empty() || hardware.empty()) return;
    groups_ = {hardware, in_code};
    instrumented_.run_apart();
    file_.note("apart", groups_.size() - 1);
  }

  bool open_group() {
    std::string why;
    if (!group_.open(chip_.name, chip_.availability, groups_[group_number_], why))
      return refuse(why);
    instrumented_.group_opens(groups_[group_number_]);
    std::string names;
    for (const std::string& name : groups_[group_number_]) names += "\t" + name;
    file_.note("group " + std::to_string(group_number_) + " passes " +
               std::to_string(group_.passes()));
    file_.line("M\t" + std::to_string(group_number_) + names);
    group_ready_ = true;
    return true;
  }

  bool refuse(const std::string& why) {
    give_up(why);
    return false;
  }

  void close_sessions() {
    std::string why;
    for (Context& context : contexts_) {
      if (context.session && !context.session->close(why)) file_.note("warning " + why);
      context.session.reset();
    }
  }

  // --- after a unit -------------------------------------------------------------------------------

  void iteration_ends() {
    const bool first = passes_done_ == 0 && turn_ == 0 && window_first_ == 0;
    const bool known = !first || sets_done_ > 0 || group_number_ > 0;
    if (known) launches_ = launches::in_order_of(first_launches_, launches_);
    if (first) {
      // instrumented code that runs once has to be that of the measured launches
      if (instrumented_.apart() && group_number_ > 0 && instrumented_.same_work()) {
        first_launches_ = instrumented_.launches();
        if (!same_launches()) return restart();
      }
      first_launches_ = launches_;
      first_unit_ = unit_;
      expect(launches_);
    } else if (!same_launches()) {
      return restart();
    }
    ++passes_done_;
    if (!complete_) return;
    if (!read_window(first_launches_)) return;
    passes_done_ = 0;
    restarts_ = 0;
    next_window();
  }

  void next_window() {
    const unsigned context = context_of_turn();
    std::string why;
    window_first_ += places_.size();
    const bool last_window = window_first_ >= launches_expected();
    if (last_window) {
      window_first_ = 0;
      ++turn_;
    }
    if (turn_ >= std::max<size_t>(1, expected_of_.size())) {
      turn_ = 0;
      write_rows();
      if (instrumented_.apart() && group_number_ == 0)
        instrumented_.measured(first_launches_, sets_done_ == 0);
      if (++sets_done_ >= sets_wanted()) return next_group();
    }
    if (context_of_turn() != context) return;  // the next one opens its own
    if (!contexts_[context].session->again(why)) give_up(why);
  }

  size_t sets_wanted() const {
    return instrumented_.apart() && group_number_ > 0 && instrumented_.same_work() ? 1
                                                                                   : request_.sets;
  }

  void next_group() {
    if (sets_wanted() < request_.sets) file_.note("once", group_number_);
    sets_done_ = 0;
    close_sessions();
    group_ready_ = false;
    file_.note("done group", group_number_);
    done_ = ++group_number_ >= groups_.size();
  }

  void replayed_unit_ends() {
    if (++sets_done_ < request_.sets || unit_.empty() || request_.parts) return;
    enough();
  }

  bool same_launches() {
    const size_t count = std::max(first_launches_.size(), launches_.size());
    for (size_t i = 0; i < count; ++i) {
      const bool here = i < launches_.size(), there = i < first_launches_.size();
      if (here && there && launches_[i].same(first_launches_[i])) continue;
      file_.line("D\t" + first_unit_ + "\t" + unit_ + "\t" + std::to_string(i) + "\t" +
                 (there ? described(first_launches_[i]) : std::string("nothing")) + "\t" +
                 (here ? described(launches_[i]) : std::string("nothing")));
      return false;
    }
    return true;
  }

  // The passes so far do not belong together: begin again, with what the last iteration launched.
  void restart() {
    passes_done_ = turn_ = window_first_ = 0;
    rows_.clear();
    instrumented_.forget();
    expect(launches_);
    close_sessions();
    if (++restarts_ > kMostRestarts) give_up("the iterations launch different kernels");
  }

  // --- values -------------------------------------------------------------------------------------

  // Keeps the values of the window's launches; false if they are not all there.
  bool read_window(const std::vector<Launch>& launches) {
    Session& session = *contexts_[running_context_].session;
    std::vector<double> values;
    size_t ranges = 0, dropped = 0;
    std::string why;
    if (!session.read(values, ranges, dropped, why)) return refuse(why);
    if (ranges != places_.size() || dropped) {
      file_.note("lost " + std::to_string(places_.size()) + " launches, " + std::to_string(ranges) +
                 " ranges of " + std::to_string(session.reserved()) + " reserved, " +
                 std::to_string(dropped) + " dropped");
      // CUPTI is silent about ranges that found no room: measure again with room for all
      if (places_.size() <= session.reserved() || request_.kernel_replay)
        return refuse("launches and measured ranges do not correspond");
      restart();
      return false;
    }
    const size_t width = groups_[group_number_].size();
    std::vector<size_t> of_context;
    if (!request_.kernel_replay) of_context = launches::places_of(launches, running_context_);
    for (size_t range = 0; range < ranges; ++range) {
      const size_t place = request_.kernel_replay ? places_[range] : of_context[places_[range]];
      keep_row(launches[place], place, &values[range * width], width);
      instrumented_.keep(place, &values[range * width], width);
    }
    return true;
  }

  void keep_row(const Launch& launch, size_t place, const double* values, size_t width) {
    char text[512];
    std::snprintf(text, sizeof text, "R\t%zu\t%zu\t%zu\t%u\t%u\t%s\t%s\t%d\t%d\t%u\t%d\t%llu\t",
                  group_number_, sets_done_, place, launch.context, launch.stream,
                  launches::shape(launch.grid).c_str(), launches::shape(launch.block).c_str(),
                  launch.resources.registers, launch.resources.static_shared,
                  launch.dynamic_shared, launch.resources.blocks_per_multiprocessor,
                  launch.instance);
    std::string row = text + launch.path + "\t" + launches::demangled(launch.kernel);
    for (size_t i = 0; i < width; ++i) {
      char number[40];
      std::snprintf(number, sizeof number, "\t%.10g", values[i]);
      row += number;
    }
    rows_.push_back(std::move(row));
  }

  void write_rows() {
    for (const std::string& row : rows_) file_.line(row);
    rows_.clear();
  }

  const record::Request& request_;
  record::File& file_;
  std::vector<Context> contexts_;
  Chip chip_;

  std::vector<std::vector<std::string>> groups_;
  Group group_;
  bool group_ready_ = false;
  size_t group_number_ = 0, sets_done_ = 0, turn_ = 0, window_first_ = 0, passes_done_ = 0;
  int restarts_ = 0;
  bool done_ = false, measured_ = false, running_ = false, complete_ = false;

  std::string unit_, first_unit_;
  std::vector<Launch> launches_, first_launches_, expected_;
  std::vector<std::pair<unsigned, size_t>> expected_of_;  // contexts, and how many launches of each
  Instrumented instrumented_;
  size_t seen_in_context_ = 0, windows_ = 0;
  unsigned running_context_ = 0;
  // of the window's launches: among those of their context, or in the unit under kernel replay
  std::vector<size_t> places_;
  std::vector<std::string> rows_;
  Clock::time_point started_;
  double start_seconds_ = 0;
};

}  // namespace counters
