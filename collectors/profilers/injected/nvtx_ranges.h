// The NVTX push/pop ranges that are open on a thread, and who wants to know of them.
//
// NVTX hands every binary's function table to InitializeInjectionNvtx2 once; the functions put
// there keep a stack a thread, so that a launch can be named after the ranges around it.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cctype>
#include <cstring>
#include <cwchar>
#include <string>
#include <utility>
#include <vector>

namespace nvtx {

constexpr char kSeparator = '\x1f';  // between the names of nested ranges

struct Range {
  const void* domain;
  bool own;          // the program's, not a library's
  bool iterates;
  std::string path;  // names from the outermost range to this one; of the program's own their own
  unsigned long long instance;
};

// Called on the thread that pushes or pops, with the depth of the range (0: outermost).
struct Listener {
  void (*pushed)(const std::string& name, size_t depth) = nullptr;
  void (*popping)(size_t depth) = nullptr;
  void (*changed)() = nullptr;  // after either
};

inline Listener& listener() {
  static Listener only;
  return only;
}

inline std::vector<Range>& stack() {
  // static objects that are torn down after their thread's may still launch: they get a new stack
  thread_local std::vector<Range>* ranges = nullptr;
  struct AtEnd {
    ~AtEnd() {
      delete ranges;
      ranges = nullptr;
    }
  };
  if (!ranges) {
    ranges = new std::vector<Range>;
    thread_local AtEnd at_end;
    (void)at_end;
  }
  return *ranges;
}

// Whether the program has opened a range: without any, nobody has to know where it launches what.
inline std::atomic<bool>& used() {
  static std::atomic<bool> only{false};
  return only;
}

inline unsigned long long new_instance() {
  static std::atomic<unsigned long long> last{0};
  return ++last;
}

inline std::string plain(const char* text) {
  std::string name = text ? text : "";
  for (char& letter : name) {
    if (static_cast<unsigned char>(letter) < 0x20) letter = ' ';
  }
  return name;
}

inline std::string plain(const wchar_t* text) {
  if (!text) return "";
  std::string bytes(std::wcslen(text) * MB_CUR_MAX + 1, '\0');
  const size_t used = std::wcstombs(&bytes[0], text, bytes.size());
  return used == static_cast<size_t>(-1) ? std::string("?") : plain(bytes.c_str());
}

// A string that a program registered once is named by its handle from then on.
inline std::string registered(nvtxStringHandle_t handle) {
  const auto* text = reinterpret_cast<const std::string*>(handle);
  return text ? *text : std::string("?");
}

inline std::string message(const nvtxEventAttributes_t* event) {
  if (!event) return "?";
  switch (event->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII: return plain(event->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE: return plain(event->message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED: return registered(event->message.registered);
    default: return "?";
  }
}

// A name like iter_3, iteration-3 or "step 3" counts repeats (perfml.util.ranges.ITERATION).
inline bool is_iteration(const std::string& name) {
  size_t first = name.find_first_not_of(' ');
  size_t last = name.find_last_not_of(' ');
  if (first == std::string::npos) return false;
  std::string lower;
  for (size_t i = first; i <= last; ++i)
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  for (const char* word : {"iteration", "iter", "step"}) {
    const size_t length = std::strlen(word);
    if (lower.compare(0, length, word) != 0) continue;
    size_t digits = length;
    if (digits < lower.size() && std::strchr("_- ", lower[digits])) ++digits;
    const size_t count = lower.size() - digits;
    return count >= 1 && count <= 15 &&
           lower.find_first_not_of("0123456789", digits) == std::string::npos;
  }
  return false;
}

// Domains in which libraries mark their own work: it is no layer of the program that calls them.
// The same as perfml.util.ranges.LIBRARIES. Other domains are a program's, or XLA's, whose ranges
// tell the operations of a JAX program.
inline bool of_library(const void* domain) {
  if (!domain) return false;
  static const char* const libraries[] = {"CCCL",  "NCCL",  "NVSHMEM",  "cuBLAS",
                                          "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE"};
  for (const char* each : libraries) {
    if (*static_cast<const std::string*>(domain) == each) return true;
  }
  return false;
}

// The range that names a launch of this thread: the innermost one of the program's own; where there
// is none, a library's; null outside all.
inline const Range* innermost() {
  const std::vector<Range>& ranges = stack();
  for (size_t i = ranges.size(); i-- > 0;) {
    if (ranges[i].own) return &ranges[i];
  }
  return ranges.empty() ? nullptr : &ranges.back();
}

// Whether this thread is in an iteration of its own, whatever others do.
inline bool in_iteration() {
  for (const Range& range : stack()) {
    if (range.iterates) return true;
  }
  return false;
}

inline int push(const void* domain, const std::string& name) {
  used() = true;
  Range range{domain, !of_library(domain), is_iteration(name), name, new_instance()};
  const Range* around = innermost();
  if (around && (around->own || !range.own)) range.path = around->path + kSeparator + name;
  stack().push_back(std::move(range));
  const size_t depth = stack().size() - 1;
  if (listener().pushed) listener().pushed(name, depth);
  if (listener().changed) listener().changed();
  return static_cast<int>(depth);
}

inline int pop(const void* domain) {
  std::vector<Range>& ranges = stack();
  for (size_t i = ranges.size(); i-- > 0;) {
    if (ranges[i].domain == domain) {
      if (listener().popping) listener().popping(i);
      ranges.erase(ranges.begin() + static_cast<long>(i));
      if (listener().changed) listener().changed();
      return static_cast<int>(i);
    }
  }
  return -1;
}

inline int NVTX_API push_ascii(const char* text) { return push(nullptr, plain(text)); }
inline int NVTX_API push_wide(const wchar_t* text) { return push(nullptr, plain(text)); }
inline int NVTX_API push_event(const nvtxEventAttributes_t* event) {
  return push(nullptr, message(event));
}
inline int NVTX_API pop_default() { return pop(nullptr); }
inline int NVTX_API domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  return push(domain, message(event));
}
inline int NVTX_API domain_pop(nvtxDomainHandle_t domain) { return pop(domain); }
inline nvtxStringHandle_t NVTX_API register_ascii(nvtxDomainHandle_t, const char* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(plain(text)));
}
inline nvtxStringHandle_t NVTX_API register_wide(nvtxDomainHandle_t, const wchar_t* text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(plain(text)));
}
inline nvtxDomainHandle_t NVTX_API create_ascii(const char* text) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(plain(text)));
}
inline nvtxDomainHandle_t NVTX_API create_wide(const wchar_t* text) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(plain(text)));
}

template <typename Function>
void hook(NvtxFunctionTable table, unsigned size, unsigned id, Function function) {
  if (id < size && table[id]) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

inline int install(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  if (!callbacks) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) {
    hook(table, size, NVTX_CBID_CORE_RangePushA, push_ascii);
    hook(table, size, NVTX_CBID_CORE_RangePushW, push_wide);
    hook(table, size, NVTX_CBID_CORE_RangePushEx, push_event);
    hook(table, size, NVTX_CBID_CORE_RangePop, pop_default);
  }
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    hook(table, size, NVTX_CBID_CORE2_DomainRangePushEx, domain_push);
    hook(table, size, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
    hook(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, register_ascii);
    hook(table, size, NVTX_CBID_CORE2_DomainRegisterStringW, register_wide);
    hook(table, size, NVTX_CBID_CORE2_DomainCreateA, create_ascii);
    hook(table, size, NVTX_CBID_CORE2_DomainCreateW, create_wide);
  }
  return 1;
}

}  // namespace nvtx
