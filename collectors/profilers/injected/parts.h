// The parts of a program that repeats one piece of work before it goes on to the next.
//
// Such a program begins its iterations anew: iter_0, iter_1, iter_0, iter_1, ... So does one that
// counts the steps of each epoch, but there the work is the same. A part is other work if none of
// its iterations launches what an iteration of an earlier part did; a first iteration that prepares
// something does not make the difference.
#pragma once

#include <cstddef>
#include <set>
#include <string>

class Parts {
 public:
  void iteration_begins(const std::string& name) {
    if (names_.insert(name).second) return;
    close_part();
    names_ = {name};
  }

  // `launches`: a number that stands for what the iteration launched.
  void iteration_ends(size_t launches) { works_.insert(launches); }

  // How many iterations the part has had, with the one that is open.
  size_t iterations() const { return names_.size(); }

  // Whether the parts so far, the last one too, are other work.
  bool differ() {
    close_part();
    return differ_;
  }

 private:
  void close_part() {
    bool known = earlier_.empty() || works_.empty();
    for (size_t work : works_) known = !earlier_.insert(work).second || known;
    differ_ = differ_ || !known;
    works_.clear();
  }

  std::set<std::string> names_;
  std::set<size_t> works_, earlier_;
  bool differ_ = false;
};
