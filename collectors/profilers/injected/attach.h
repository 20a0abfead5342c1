// Measures a process that runs already, and was started with the library loaded, while it is asked to.
//
// $PERFML_ATTACH_DIR/<pid>.asked names the folder for the record and the seconds to measure, in two
// lines; it is removed when the record is whole. Until then the library has one thread, which looks
// for that file four times a second, and is subscribed to nothing.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace attach {

inline void listen(const std::string& folder, bool (*begin)(const std::string&), void (*finish)(),
                   void (*let_go)()) {
  const std::string asked = folder + "/" + std::to_string(getpid()) + ".asked";
  std::ofstream(folder + "/" + std::to_string(getpid()) + ".ready") << getpid() << "\n";
  std::thread([=] {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(250))) {
      std::ifstream request(asked);
      std::string into;
      double seconds = 0;
      if (!std::getline(request, into) || !(request >> seconds)) continue;
      setenv("PERFML_COUNTERS_UNIT", "program", 1);
      setenv("PERFML_COUNTERS_TIMED", "1", 1);
      if (begin(into)) {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        finish();
        let_go();
      }
      std::remove(asked.c_str());
    }
  }).detach();
}

}  // namespace attach
