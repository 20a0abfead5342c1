// The code that a program gives to the driver, kept where mutants can be made of it.
//
// Of a fat binary (cuda.h's fatbinary of nvcc) only the entries with PTX are kept, and machine code
// that stands alone, since the compiler of Triton keeps its PTX beside the same bytes. Libraries of
// NVIDIA are left alone: their licence does not want them changed.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace code {

constexpr uint32_t kWrapper = 0x466243b1, kFatBinary = 0xba55ed50;
constexpr uint16_t kPtx = 1;
constexpr size_t kMost = size_t{64} << 20;  // of one image

template <typename Number>
Number at(const char* place) {
  Number value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

inline bool of_vendor(const void* image) {
  Dl_info found{};
  if (!dladdr(image, &found) || !found.dli_fname) return false;
  const std::string path = found.dli_fname;
  for (const char* name : {"libcublas", "libcudnn", "libcufft", "libcusparse", "libcusolver",
                           "libcurand", "libnccl", "libnpp", "libnvjpeg", "libcutensor", "libnvinfer"}) {
    if (path.find(name) != std::string::npos) return true;
  }
  return false;
}

// The entries with PTX behind a header of their own; empty if there are none.
inline std::string ptx_of(const char* binary) {
  const size_t head = at<uint16_t>(binary + 6), size = at<uint64_t>(binary + 8);
  std::string entries;
  for (size_t place = head; place + 16 <= head + size;) {
    const char* entry = binary + place;
    const size_t whole = at<uint32_t>(entry + 4) + at<uint64_t>(entry + 8);
    if (at<uint16_t>(entry) == kPtx && entries.size() + whole < kMost) entries.append(entry, whole);
    if (whole == 0) break;
    place += whole;
  }
  if (entries.empty()) return "";
  std::string made(binary, head);
  const uint64_t length = entries.size();
  std::memcpy(&made[8], &length, sizeof length);
  return made + entries;
}

inline std::string image_of(const char* image) {
  if (!image) return "";
  if (at<uint32_t>(image) == kWrapper) image = at<const char*>(image + 8);
  if (at<uint32_t>(image) == kFatBinary) return ptx_of(image);
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) return std::string(image, strnlen(image, kMost));
  const auto header = at<Elf64_Ehdr>(image);
  const size_t sections = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  const size_t segments = header.e_phoff + size_t{header.e_phnum} * header.e_phentsize;
  const size_t size = std::max(sections, segments);
  return size < kMost ? std::string(image, size) : "";
}

// Keeps what a call loads in a folder; returns a line for the record that says where.
inline std::string keep(CUpti_CallbackId id, const void* given, const std::string& folder) {
  static std::atomic<int> count{0};
  const void* image = nullptr;
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuModuleLoad:
      return std::string("code ") + static_cast<const cuModuleLoad_params*>(given)->fname;
    case CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadFromFile:
      return std::string("code ") + static_cast<const cuLibraryLoadFromFile_params*>(given)->fileName;
    case CUPTI_DRIVER_TRACE_CBID_cuModuleLoadData:
      image = static_cast<const cuModuleLoadData_params*>(given)->image;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuModuleLoadDataEx:
      image = static_cast<const cuModuleLoadDataEx_params*>(given)->image;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuModuleLoadFatBinary:
      image = static_cast<const cuModuleLoadFatBinary_params*>(given)->fatCubin;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLibraryLoadData:
      image = static_cast<const cuLibraryLoadData_params*>(given)->code;
      break;
    default: return "code none";
  }
  if (of_vendor(image)) return "code vendor";
  const std::string bytes = image_of(static_cast<const char*>(image));
  if (bytes.empty()) return "code none";
  const std::string path = folder + "/code_" + std::to_string(count++);
  std::ofstream(path, std::ios::binary) << bytes;
  return "code " + path;
}

}  // namespace code
