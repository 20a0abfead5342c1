// Enough of CUDA for perfml's attention kernels to run on a CPU, one block after another.
//
// Every thread of a block is a fiber, and a fiber runs until it waits. What is asynchronous on the
// GPU is done as late as its rules allow: cp.async when its group is waited for, wgmma when its group
// is waited for, a bulk copy some rounds after its issue. Shared memory starts as NaN. So a missing
// wait or barrier shows as a wrong result. Layouts follow the PTX ISA, not the kernels.
#pragma once

#include "fibers.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#define ATTENTION_ON_CPU
#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct Extent {
  unsigned x, y, z;
};
inline Extent threadIdx, blockIdx, blockDim, gridDim;

using std::exp;
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int min(int a, int b) { return a < b ? a : b; }
template <class To, class From>
To bits_of(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
inline float __int_as_float(unsigned x) { return bits_of<float>(x); }
inline int __float_as_int(float x) { return bits_of<int>(x); }

using Half = unsigned short;
inline float wide(Half x) { return static_cast<float>(bits_of<_Float16>(x)); }
inline Half narrow(float x) { return bits_of<Half>(static_cast<_Float16>(x)); }

// --- fibers

struct Copy {
  unsigned char* to;
  const void* from;
  bool inside;
};

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  std::vector<std::vector<Copy>> copies;  // committed groups; the last one is open
};

inline std::vector<Fiber> fibers;
inline Context scheduler;
inline unsigned now;  // the fiber that runs
inline std::function<void()> body;
inline long idle;  // fibers that only waited, in a row: a deadlock when it grows
inline std::vector<std::pair<int, std::function<void()>>> later;  // bulk copies under way

inline void yield() {
  if (++idle > 4000000) {
    std::fprintf(stderr, "deadlock: fiber %u of %zu waits\n", now, fibers.size());
    std::exit(3);
  }
  hand_over(fibers[now].context, scheduler);
}

// Chance: how long copies take and how long a thread dawdles after a signal. Seeded by the caller.
inline unsigned chance = 1;
inline unsigned draw(unsigned below) {
  chance = chance * 1664525u + 1013904223u;
  return (chance >> 8) % below;
}
inline void dawdle() {
  for (unsigned i = draw(3) ? 0 : draw(60); i > 0; --i) yield();
}

// Wait for the `size` fibers from `first` on; the last one to come runs `action` for all.
struct Meeting {
  unsigned come = 0, round = 0;
};
inline std::map<std::pair<int, unsigned>, Meeting> meetings;

template <class Action>
void meet(int kind, unsigned first, unsigned size, Action action) {
  Meeting& meeting = meetings[{kind, first}];
  const unsigned round = meeting.round;
  if (++meeting.come == size) {
    action();
    meeting.come = 0;
    ++meeting.round;
    idle = 0;
    return;
  }
  while (meeting.round == round) yield();
}

inline unsigned lane_of(unsigned thread) { return thread % 32; }
inline void __syncthreads() { meet(0, 0, fibers.size(), [] {}); }
inline void __syncwarp() { meet(1, now / 32 * 32, 32, [] {}); }

inline float exchanged[4096];
inline float __shfl_xor_sync(unsigned, float value, int mask) {
  const unsigned mine = now, first = now / 32 * 32;
  exchanged[mine] = value;
  meet(2, first, 32, [] {});
  const float other = exchanged[first + (lane_of(mine) ^ mask)];
  meet(3, first, 32, [] {});
  return other;
}

inline bool __any_sync(unsigned, bool own) {
  const unsigned first = now / 32 * 32;
  exchanged[now] = own;
  meet(2, first, 32, [] {});
  bool any = false;
  for (unsigned i = 0; i < 32; ++i) any = any || exchanged[first + i] != 0.0f;
  meet(3, first, 32, [] {});
  return any;
}

inline void enter() {
  body();
  fibers[now].done = true;
  idle = 0;
  hand_over(fibers[now].context, scheduler);
}

inline void run_block(unsigned threads, std::function<void()> kernel) {
  body = std::move(kernel);
  fibers = std::vector<Fiber>(threads);
  meetings.clear();
  later.clear();
  idle = 0;
  for (Fiber& fiber : fibers) {
    constexpr size_t bytes = 64 * 1024;
    fiber.stack.reset(new char[bytes]);
    fiber.copies.emplace_back();
    prepare(fiber.context, fiber.stack.get(), bytes, enter);
  }
  for (bool left = true; left;) {
    left = false;
    for (now = 0; now < fibers.size(); ++now) {
      if (fibers[now].done) continue;
      left = true;
      threadIdx = {now, 0, 0};
      hand_over(scheduler, fibers[now].context);
    }
    for (size_t i = 0; i < later.size();) {
      if (--later[i].first > 0) {
        ++i;
        continue;
      }
      later[i].second();
      later.erase(later.begin() + i);
      idle = 0;
    }
  }
}

template <class Kernel>
void launch(unsigned grid_x, unsigned grid_y, unsigned threads, void* shared, size_t shared_bytes,
            Kernel kernel) {
  gridDim = {grid_x, grid_y, 1};
  blockDim = {threads, 1, 1};
  for (unsigned y = 0; y < grid_y; ++y) {
    for (unsigned x = 0; x < grid_x; ++x) {
      blockIdx = {x, y, 0};
      std::memset(shared, 0xff, shared_bytes);
      run_block(threads, kernel);
    }
  }
}

// --- tensor.cuh: shared addresses are offsets from the arena's start

inline unsigned char* arena_start;
inline unsigned char* at_shared(unsigned address) { return arena_start + address; }
inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - arena_start);
}

inline void copy_async(unsigned to, const void* from, bool inside) {
  fibers[now].copies.back().push_back({at_shared(to), from, inside});
}
inline void copies_commit() { fibers[now].copies.emplace_back(); }
template <int Pending>
void copies_wait() {
  auto& groups = fibers[now].copies;
  while (groups.size() - 1 > Pending) {
    for (const Copy& copy : groups.front()) {
      if (copy.inside) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups.erase(groups.begin());
  }
}

inline unsigned addresses[4096];
template <bool Transposed>
void read_matrices(unsigned (&r)[4], unsigned address) {
  const unsigned first = now / 32 * 32, lane = lane_of(now);
  addresses[now] = address;
  meet(4, first, 32, [] {});
  for (unsigned i = 0; i < 4; ++i) {
    Half pair[2];
    for (unsigned j = 0; j < 2; ++j) {
      const unsigned row = Transposed ? lane % 4 * 2 + j : lane / 4;
      const unsigned column = Transposed ? lane / 4 : lane % 4 * 2 + j;
      std::memcpy(&pair[j], at_shared(addresses[first + 8 * i + row]) + 2 * column, 2);
    }
    r[i] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
  }
  meet(5, first, 32, [] {});
}
inline void load_matrices(unsigned (&r)[4], unsigned address) { read_matrices<false>(r, address); }
inline void load_matrices_transposed(unsigned (&r)[4], unsigned address) {
  read_matrices<true>(r, address);
}

inline float low(unsigned pair) { return wide(static_cast<Half>(pair & 0xffff)); }
inline float high(unsigned pair) { return wide(static_cast<Half>(pair >> 16)); }
inline float part(unsigned pair, int which) { return which ? high(pair) : low(pair); }
inline unsigned pack(float low, float high) {
  return narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
}
inline float exp2_unit(float x) { return std::exp2(x); }

// Fragments of mma.m16n8k16, element by element as the PTX ISA numbers them.
inline float left_at[128][16][16];    // per warp
inline float right_at[128][16][8];
inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned first = now / 32 * 32, lane = lane_of(now), warp = now / 32;
  const unsigned group = lane / 4, within = lane % 4;
  for (int i = 0; i < 8; ++i) {
    const unsigned row = (i % 4) < 2 ? group : group + 8;
    const unsigned column = within * 2 + i % 2 + (i >= 4 ? 8 : 0);
    left_at[warp][row][column] = part(a[i / 2], i % 2);
  }
  for (int i = 0; i < 4; ++i) {
    right_at[warp][within * 2 + i % 2 + (i >= 2 ? 8 : 0)][group] = part(i < 2 ? b0 : b1, i % 2);
  }
  meet(6, first, 32, [] {});
  for (int i = 0; i < 4; ++i) {
    const unsigned row = i < 2 ? group : group + 8, column = within * 2 + i % 2;
    for (int k = 0; k < 16; ++k) d[i] += left_at[warp][row][k] * right_at[warp][k][column];
  }
  meet(7, first, 32, [] {});
}

// --- nvcuda::wmma, with the layout of two mma.m16n8k16

using half = Half;
namespace nvcuda::wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  alignas(16) T x[16];
};
template <class Fragment, class T>
void fill_fragment(Fragment& to, T value) {
  for (auto& x : to.x) x = value;
}
inline void place_of(int i, int& row, int& column) {
  const int lane = lane_of(now);
  row = lane / 4 + i / 2 % 2 * 8;
  column = lane % 4 * 2 + i % 2 + i / 4 * 8;
}
template <class Layout>
void load_matrix_sync(fragment<matrix_a, 16, 16, 16, half, Layout>& to, const half* from, int pitch) {
  meet(8, now / 32 * 32, 32, [] {});
  for (int i = 0; i < 8; ++i) {
    int row, column;
    place_of(i, row, column);
    to.x[i] = from[row * pitch + column];
  }
}
// x[0..3]: the first eight columns; pairs along the rows (k), as b0 and b1 of mma.
inline void right_place(int i, int& k, int& column) {
  const int lane = lane_of(now);
  k = lane % 4 * 2 + i % 2 + i / 2 % 2 * 8;
  column = lane / 4 + i / 4 * 8;
}
template <class Layout>
void load_matrix_sync(fragment<matrix_b, 16, 16, 16, half, Layout>& to, const half* from, int pitch) {
  meet(8, now / 32 * 32, 32, [] {});
  for (int i = 0; i < 8; ++i) {
    int k, column;
    right_place(i, k, column);
    to.x[i] = std::is_same_v<Layout, row_major> ? from[k * pitch + column] : from[column * pitch + k];
  }
}
template <class A, class B>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
              const fragment<matrix_a, 16, 16, 16, half, A>& a,
              const fragment<matrix_b, 16, 16, 16, half, B>& b,
              const fragment<accumulator, 16, 16, 16, float>&) {
  unsigned left[4];
  std::memcpy(left, a.x, 16);
  for (int block = 0; block < 2; ++block) {
    unsigned right[2];
    std::memcpy(right, b.x + 4 * block, 8);
    multiply(reinterpret_cast<float(&)[4]>(d.x[4 * block]), left, right[0], right[1]);
  }
}
}  // namespace nvcuda::wmma

// --- hopper.cuh

using Descriptor = unsigned long long;

struct Work {
  int columns, add;
  bool shared_left;
  Descriptor left, right;
  float* d[128];
  const unsigned* registers[128];
};
struct Queue {
  std::vector<std::vector<Work>> groups{1};
};
inline std::map<unsigned, Queue> queues;  // by the warpgroup's first thread

inline Half swizzled(unsigned address) {
  Half value;
  std::memcpy(&value, at_shared(address ^ (address >> 7 & 7) << 4), 2);
  return value;
}
inline unsigned field(Descriptor d, int from) { return static_cast<unsigned>(d >> from & 0x3fff) << 4; }
// Neighbours along the sum: row, k. Canonical layout of the 128-byte swizzle.
inline float along_sum(Descriptor d, unsigned row, unsigned k) {
  return wide(swizzled(field(d, 0) + row / 8 * field(d, 32) + row % 8 * 128 + 2 * k));
}
// Neighbours along the columns: column, k.
inline float along_columns(Descriptor d, unsigned column, unsigned k) {
  return wide(swizzled(field(d, 0) + column / 64 * field(d, 16) + k / 8 * field(d, 32) + k % 8 * 128 +
                       column % 64 * 2));
}
inline void execute(const Work& work) {
  float left[64][16];
  for (unsigned row = 0; row < 64; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      if (work.shared_left) {
        left[row][k] = along_sum(work.left, row, k);
      } else {
        const unsigned thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
        const unsigned element = row % 16 / 8 + k / 8 * 2;
        left[row][k] = part(work.registers[thread][element], k % 2);
      }
    }
  }
  for (int column = 0; column < work.columns; ++column) {
    float right[16];
    for (unsigned k = 0; k < 16; ++k) {
      right[k] = work.shared_left ? along_sum(work.right, column, k)
                                  : along_columns(work.right, column, k);
    }
    for (unsigned row = 0; row < 64; ++row) {
      float sum = 0.0f;
      for (unsigned k = 0; k < 16; ++k) sum += left[row][k] * right[k];
      const unsigned thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
      float& d = work.d[thread][column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
      d = work.add ? d + sum : sum;
    }
  }
}
inline Work gathered[32];
inline void issue(int columns, float* d, bool shared_left, Descriptor left, const unsigned* registers,
                  Descriptor right, int add) {
  const unsigned first = now / 128 * 128;
  Work& work = gathered[first / 128];
  work.d[now - first] = d;
  work.registers[now - first] = registers;
  meet(9, first, 128, [&] {
    if ((left >> 62 != 1 && shared_left) || right >> 62 != 1) std::exit(4);
    work.columns = columns;
    work.add = add;
    work.shared_left = shared_left;
    work.left = left;
    work.right = right;
    queues[first].groups.back().push_back(work);
  });
}
template <int N>
struct Product {
  static void of_shared(float (&d)[N / 2], Descriptor left, Descriptor right, int add) {
    issue(N, d, true, left, nullptr, right, add);
  }
  static void of_registers(float (&d)[N / 2], const unsigned* left, Descriptor right, int add) {
    issue(N, d, false, 0, left, right, add);
  }
};
inline void products_fence() {}
inline void products_commit() {
  const unsigned first = now / 128 * 128;
  meet(10, first, 128, [=] { queues[first].groups.emplace_back(); });
}
template <int Pending>
void products_wait() {
  const unsigned first = now / 128 * 128;
  meet(11, first, 128, [=] {
    auto& groups = queues[first].groups;
    while (groups.size() - 1 > Pending) {
      for (const Work& work : groups.front()) execute(work);
      groups.erase(groups.begin());
    }
  });
}
template <int Registers>
void registers_raise() {}
template <int Registers>
void registers_lower() {}

struct Phase {
  int arrivals, pending, bytes, parity;
};
inline std::map<unsigned, Phase> phases;
inline void phase_check(Phase& phase) {
  idle = 0;
  if (phase.pending == 0 && phase.bytes == 0) {
    phase.pending = phase.arrivals;
    phase.parity ^= 1;
  }
}
inline void barrier_init(unsigned barrier, int arrivals) {
  phases[barrier] = {arrivals, arrivals, 0, 0};
}
inline void barriers_publish() {}
inline void barrier_arrive(unsigned barrier) {
  --phases.at(barrier).pending;
  phase_check(phases.at(barrier));
  dawdle();
}
inline void barrier_expect(unsigned barrier, int bytes) {
  phases.at(barrier).bytes += bytes;
  barrier_arrive(barrier);
}
inline void barrier_wait(unsigned barrier, int parity) {
  while (phases.at(barrier).parity == parity) yield();
}

struct Turn {
  int come = 0, round = 0;
};
inline std::map<int, Turn> turns;
inline int turn_come(int id, int threads) {
  Turn& turn = turns[id];
  const int round = turn.round;
  if (++turn.come == threads) {
    turn.come = 0;
    ++turn.round;
    idle = 0;
  }
  return round;
}
inline void turn_pass(int id, int threads) { turn_come(id, threads); }
inline void turn_wait(int id, int threads) {
  const int round = turn_come(id, threads);
  while (turns[id].round == round) yield();
}

struct TensorMap {
  const Half* base;
  int columns, rows, problems, box_rows;
};
inline void map_acquire(const void*) {}
inline void copy_box(unsigned to, const void* map, int x, int y, int z, unsigned barrier) {
  TensorMap tensor;
  std::memcpy(&tensor, map, sizeof tensor);
  later.emplace_back(draw(3) ? 1 : draw(150), [=] {
    for (int row = 0; row < tensor.box_rows; ++row) {
      for (int column = 0; column < 64; ++column) {
        const bool inside = y + row < tensor.rows && x + column < tensor.columns;
        const size_t at = (static_cast<size_t>(z) * tensor.rows + y + row) * tensor.columns + x + column;
        const Half value = inside ? tensor.base[at] : 0;
        const unsigned address = to + row * 128 + column * 2;
        std::memcpy(at_shared(address ^ (address >> 7 & 7) << 4), &value, 2);
      }
    }
    phases.at(barrier).bytes -= tensor.box_rows * 128;
    phase_check(phases.at(barrier));
  });
}
