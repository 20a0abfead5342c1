// As a user of cuBLAS meets it. The library is opened at run time (STRANGERS_CUBLAS may name it); without
// it these cases are not there.
#include "harness.h"
#ifndef ON_CPU
#include <dlfcn.h>
using std::vector;

namespace {
using Handle = void*;
struct Library {
  Handle handle = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*math_mode)(Handle, int) = nullptr;
  int (*sgemm)(Handle, int, int, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int) = nullptr;
  int (*gemm_ex)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int, int) = nullptr;
  bool there = false;
  Library() {
    const char* given = getenv("STRANGERS_CUBLAS"); void* so = given && *given ? dlopen(given, RTLD_NOW) : nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) if (!so) so = dlopen(name, RTLD_NOW);
    if (!so) return;
    create = (decltype(create))dlsym(so, "cublasCreate_v2"); math_mode = (decltype(math_mode))dlsym(so, "cublasSetMathMode");
    sgemm = (decltype(sgemm))dlsym(so, "cublasSgemm_v2"); gemm_ex = (decltype(gemm_ex))dlsym(so, "cublasGemmEx");
    there = create && math_mode && sgemm && gemm_ex;
  }
  void ready() { if (!handle) must(create(&handle)); }
  static void must(int status) { if (status) { fprintf(stderr, "cuBLAS status %d\n", status); exit(2); } }
};
Library& library() { static Library one; return one; }
const int MATH_DEFAULT = 0, MATH_TF32 = 3, REAL_16 = 2, COMPUTE_32 = 68, ALGORITHM_DEFAULT = -1;

void single(int n, const float* a, const float* b, float* c, int mode) {  // row-major c = a b
  const float one = 1, zero = 0;
  Library::must(library().math_mode(library().handle, mode));
  Library::must(library().sgemm(library().handle, 0, 0, n, n, n, &one, b, n, a, n, &zero, c, n));
}
__global__ void tile_gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
  __shared__ float as[16][16], bs[16][16];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y; float sum = 0;
  for (int k = 0; k < n; k += 16) {
    as[y][x] = a[(size_t)row * n + k + x]; bs[y][x] = b[(size_t)(k + y) * n + column];
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += as[y][j] * bs[j][x];
    __syncthreads();
  }
  c[(size_t)row * n + column] = sum;
}
template <class F> Case square(int n, F launch) {
  library().ready();
  auto a = random_floats((size_t)n * n), b = random_floats((size_t)n * n, -1, 1, 2); auto da = on_device(a), db = on_device(b), dc = empty<float>(a.size());
  return {[=](int side) { launch(side, n, da->data, db->data, dc->data); }, [=] { dc->clear(); },
          [=](int) { auto h = dc->host(); return sampled(h.size(), 300, [&](Largest& l, size_t i) { double sum = 0; for (int k = 0; k < n; ++k) sum += (double)a[i / n * n + k] * b[(size_t)k * n + i % n]; l.add(h[i], sum); }); }};
}
Case make_sgemm_precision() { return square(2048, [](int side, int n, const float* a, const float* b, float* c) { single(n, a, b, c, side ? MATH_TF32 : MATH_DEFAULT); }); }
Case make_sgemm_hand() { return square(1536, [](int side, int n, const float* a, const float* b, float* c) { if (side == 0) LAUNCH(tile_gemm, dim3(n / 16, n / 16), dim3(16, 16), 0, a, b, c, n); else single(n, a, b, c, MATH_DEFAULT); }); }
Case make_hgemm_pitch() {
  library().ready();
  const int n = 4096, k = 2048; auto raw_a = random_floats((size_t)n * k), raw_b = random_floats((size_t)n * k, -1, 1, 2);
  auto stored = [=](const vector<float>& raw, int pitch) { vector<__half> h((size_t)n * pitch); for (int r = 0; r < n; ++r) for (int c = 0; c < k; ++c) h[(size_t)r * pitch + c] = __float2half(raw[(size_t)r * k + c]); return h; };
  auto a0 = on_device(stored(raw_a, k + 1)), b0 = on_device(stored(raw_b, k + 1)), a1 = on_device(stored(raw_a, k + 8)), b1 = on_device(stored(raw_b, k + 8)), c = empty<__half>((size_t)n * n);
  return {[=](int side) { const float one = 1, zero = 0; const int pitch = side ? k + 8 : k + 1;  // column-major c = a^T b, both k deep
            Library::must(library().math_mode(library().handle, MATH_DEFAULT));
            Library::must(library().gemm_ex(library().handle, 1, 0, n, n, k, &one, side ? a1->data : a0->data, REAL_16, pitch, side ? b1->data : b0->data, REAL_16, pitch, &zero, c->data, REAL_16, n, COMPUTE_32, ALGORITHM_DEFAULT)); },
          [=] { c->clear(); },
          [=](int) { auto h = c->host(); return sampled(h.size(), 300, [&](Largest& l, size_t i) { double sum = 0; const size_t row = i % n, column = i / n; for (int j = 0; j < k; ++j) sum += (double)__half2float(__float2half(raw_a[row * k + j])) * __half2float(__float2half(raw_b[column * k + j])); l.add(__half2float(h[i]), sum); }); }};
}
const bool registered = [] {
  if (library().there) { entries().push_back({"sgemm_precision", make_sgemm_precision}); entries().push_back({"sgemm_hand", make_sgemm_hand}); entries().push_back({"hgemm_pitch", make_hgemm_pitch}); }
  return true;
}();
}  // namespace
#endif
