// Hopper's instructions: wgmma, the bulk tensor copy, mbarrier. sm_90a only.
//
// From the PTX ISA: "Asynchronous warpgroup level matrix instructions" (fragments as in mma.m16n8k16,
// four warps of 16 rows each; "Matrix Descriptor Format"; "Strides": leading and stride dimension byte
// offsets), "cp.async.bulk.tensor", "mbarrier", "setmaxnreg".
#pragma once

#ifndef ATTENTION_ON_CPU  // tests/cuda_on_cpu.h has these functions for a host compiler

namespace {

using Descriptor = unsigned long long;

// d += left right (d = left right where `add` is 0): 64 x N sums, 16 products each. Lane l of warp w
// holds in d[4 c + i] row 16 w + l / 4 + 8 (i / 2), column 8 c + 2 (l % 4) + i % 2.
template <int N>
struct Product;

#define SUMS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4((i) + 4), SUMS_4((i) + 8), SUMS_4((i) + 12)
#define SUMS_32(i) SUMS_16(i), SUMS_16((i) + 16)

template <>
struct Product<64> {
  // Both operands in shared memory, both with neighbours along the summed dimension.
  static __device__ __forceinline__ void of_shared(float (&d)[32], Descriptor left,
                                                   Descriptor right, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
        : SUMS_32(0)
        : "l"(left), "l"(right), "r"(add));
  }
  // The left operand in registers; the right one is transposed: neighbours along its columns.
  static __device__ __forceinline__ void of_registers(float (&d)[32],
                                                      const unsigned* left,
                                                      Descriptor right, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : SUMS_32(0)
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add));
  }
};

template <>
struct Product<128> {
  static __device__ __forceinline__ void of_shared(float (&d)[64], Descriptor left,
                                                   Descriptor right, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : SUMS_32(0), SUMS_32(32)
        : "l"(left), "l"(right), "r"(add));
  }
  static __device__ __forceinline__ void of_registers(float (&d)[64],
                                                      const unsigned* left,
                                                      Descriptor right, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"
        : SUMS_32(0), SUMS_32(32)
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(add));
  }
};

template <>
struct Product<192> {
  static __device__ __forceinline__ void of_shared(float (&d)[96], Descriptor left,
                                                   Descriptor right, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "
        "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
        "}, %96, %97, p, 1, 1, 0, 0;\n}\n"
        : SUMS_32(0), SUMS_32(32), SUMS_32(64)
        : "l"(left), "l"(right), "r"(add));
  }
};

#undef SUMS_4
#undef SUMS_16
#undef SUMS_32

// Before the first product after registers or shared memory were written by other instructions.
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

template <int Registers>
__device__ __forceinline__ void registers_raise() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
__device__ __forceinline__ void registers_lower() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine; a block barrier has to follow.
__device__ __forceinline__ void barriers_publish() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and `bytes` of copies to wait for.
__device__ __forceinline__ void barrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity is over; on a fresh barrier, parity 1 is.
__device__ __forceinline__ void barrier_wait(unsigned barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Named barriers of the block: `threads` counts those that wait and those that only arrive.
__device__ __forceinline__ void turn_wait(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void turn_pass(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// A tensor map in global memory that the host wrote: to be read through the copy engine's own path.
__device__ __forceinline__ void map_acquire(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

// The box at (x, y, z) of the mapped tensor to shared memory; its bytes count down `barrier`.
__device__ __forceinline__ void copy_box(unsigned to, const void* map, int x, int y, int z,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

}  // namespace

#endif

namespace {

// Descriptor of an operand in shared memory whose rows are 128 bytes, eight of them an atom of
// 1024 bytes with the 128-byte swizzle (16-byte chunk xor row mod 8; the copy engine writes it so).
// Bits 0-13 start, 16-29 leading and 32-45 stride byte offset, each / 16; bits 62-63: 1 = 128 bytes.
//
// Neighbours along the summed dimension (Q, K): stride offset = from 8 rows to the next 8, 1024; the
// leading offset is not used; 16 elements further along are 32 bytes further, inside the atom.
// Neighbours along the columns (V): stride offset = from 8 rows (of the sum) to the next 8, 1024;
// leading offset = from 64 columns to the next 64; 16 further along the sum are 2048 bytes further.
__device__ __forceinline__ Descriptor describe(unsigned address, unsigned leading) {
  return static_cast<Descriptor>((address & 0x3ffff) >> 4) |
         static_cast<Descriptor>(leading >> 4) << 16 | static_cast<Descriptor>(1024 >> 4) << 32 |
         static_cast<Descriptor>(1) << 62;
}

}  // namespace
