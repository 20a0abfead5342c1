// Instructions that CUDA C++ has no function for, and exp2. No header of the toolkit is needed.
//
// Layouts and meanings: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" (mma.m16n8k16,
// ldmatrix) and "Data Movement and Conversion Instructions: Asynchronous copy" (cp.async).
#pragma once

#ifndef THROUGH_L1
#define THROUGH_L1 0
#endif

#ifndef ATTENTION_ON_CPU  // tests/cuda_on_cpu.h has these functions for a host compiler

namespace {

using Half = unsigned short;  // raw bits: values are converted in registers only

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 16 bytes from global to shared memory, past the registers; zeros where `inside` is false. `cg` keeps
// them in L2 only, `ca` (-DTHROUGH_L1=1) in L1 too.
__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
#if THROUGH_L1
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
#endif
}

__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;"); }

template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Four 8 x 8 matrices of halves; lane 8 i + r gives the address of row r of matrix i.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// d += a b: a 16 x 16 by rows, b 16 x 8 by columns, d 16 x 8 in fp32.
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two halves in a register, `low` in the lower 16 bits.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace

#endif

namespace {

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// 2^x for x <= 0 on the FMA units, to 7.5e-5: the special-function unit gives 16 results a clock
// and multiprocessor and is the narrowest place of attention at head dimension 64.
__device__ __forceinline__ float exp2_fma(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = fmaxf(x, -125.0f);
  const float shifted = x + magic;
  const float part = x - (shifted - magic);  // -0.5 to 0.5
  float y = fmaf(part, 0.0551715530f, 0.2426113635f);
  y = fmaf(part, y, 0.6932610273f);
  y = fmaf(part, y, 0.9999280572f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// 2^x for column `column` of a tile: of every eight columns, `Poly` on the FMA units.
template <int Poly>
__device__ __forceinline__ float exp2_mixed(float x, int column) {
  return column % 8 < Poly ? exp2_fma(x) : exp2_unit(x);
}

// The number subtracted from a row's scores: its largest one so far, or one less than `Lazy` powers of
// two below it. Softmax does not change with it; 2^8 and sums of it are far from a half's largest
// value; and the output has to be rescaled once or twice in a row of thousands instead of often.
template <int Lazy>
__device__ __forceinline__ float raised(float before, float largest, float factor) {
  return (largest - before) * factor > Lazy ? largest : before;
}

// Whether any lane's output has to be rescaled; always where maxima are followed at once.
template <int Lazy>
__device__ __forceinline__ bool must_rescale(float shrink_upper, float shrink_lower) {
  const bool own = shrink_upper != 1.0f || shrink_lower != 1.0f;
  return Lazy == 0 || __any_sync(0xffffffffu, own);
}

// Largest or summed value of the four lanes that share a row of a fragment.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// `Rows` rows of K or V from row `first` on, by `Threads` threads: neighbours take neighbouring chunks
// of 16 bytes, and each thread's later chunks are a constant apart. `to` is where chunk `chunk` of row
// `row` goes; zeros where the tensor has ended.
template <int Rows, int Chunks, int Threads, int PitchBytes>
__device__ __forceinline__ void copy_rows(unsigned to, const unsigned short* from, int first, int row,
                                          int chunk, int n) {
  constexpr int step = Threads / Chunks;
  static_assert(Threads % Chunks == 0 && step % 8 == 0 && Rows % step == 0);
  const unsigned short* source = from + (static_cast<size_t>(first + row) * Chunks + chunk) * 8;
  const bool whole = first + Rows <= n;
#pragma unroll
  for (int i = 0; i < Rows; i += step) {
    copy_async(to + i * PitchBytes, source + i * Chunks * 8, whole || first + row + i < n);
  }
}

}  // namespace
