// The sources of the workloads conv, qkv and planted as a library for the CPU: launch(name, grid,
// block, arguments), as the CUDA driver takes them.
//
// -DSOURCE="fused.cu" -DKERNELS="KERNEL(fused)" and the macros of the source;
// -DFUNCTIONS names a header with more of CUDA. Threads of a block
// are fibers that run one after another to the next barrier, so a missing barrier shows as a wrong
// result. WMMA fragments hold the whole matrix in every lane; alignment and pitch are checked.
#include "fibers.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct Extent {
    unsigned x, y, z;
};
static Extent threadIdx, blockIdx, blockDim, gridDim;

struct Fiber {
    Context context;
    Extent index;
    bool done;
};
constexpr size_t STACK = 32 * 1024;
static Fiber fibers[1024];
static char* stacks;
static Context scheduler;
static Fiber* current;
static void (*entry)();

static void __syncthreads() { hand_over(current->context, scheduler); }

// A fiber runs a thread of one block after another.
static void enter()
{
    for (;;) {
        entry();
        current->done = true;
        hand_over(current->context, scheduler);
    }
}

static void run_block()
{
    const unsigned threads = blockDim.x * blockDim.y;
    for (unsigned i = 0; i < threads; ++i) {
        fibers[i].index = {i % blockDim.x, i / blockDim.x, 0};
        fibers[i].done = false;
        if (!fibers[i].context.begun)
            prepare(fibers[i].context, stacks + i * STACK, STACK, enter);
    }
    for (bool left = true; left;) {
        left = false;
        for (unsigned i = 0; i < threads; ++i) {
            if (fibers[i].done) continue;
            left = true;
            current = &fibers[i];
            threadIdx = current->index;
            hand_over(scheduler, current->context);
        }
    }
}

#if defined(WMMA)
using half = _Float16;
static half __float2half(float value) { return static_cast<half>(value); }
namespace nvcuda::wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
namespace precision {
struct tf32 {};
}
enum Layout { mem_row_major };
static float __float_to_tf32(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(&value, &bits, 4);
    return value;
}
template <class Use, int M, int N, int K, class T, class L = void>
struct fragment {
    static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
    static constexpr int columns = std::is_same_v<Use, matrix_a> ? K : N;
    float at[rows][columns];
};
template <class F>
void fill_fragment(F& to, float value)
{
    for (auto& row : to.at)
        for (float& x : row) x = value;
}
template <class T>
void require(const T* pointer, unsigned pitch)
{
    const bool good = reinterpret_cast<uintptr_t>(pointer) % 32 == 0 && pitch * sizeof(T) % 16 == 0;
    if (!good) std::abort();
}
template <class F, class T>
void load_matrix_sync(F& to, const T* from, unsigned pitch)
{
    require(from, pitch);
    for (int i = 0; i < F::rows; ++i)
        for (int j = 0; j < F::columns; ++j) to.at[i][j] = static_cast<float>(from[i * pitch + j]);
}
template <class D, class A, class B>
void mma_sync(D& d, const A& a, const B& b, const D& c)
{
    for (int i = 0; i < D::rows; ++i) {
        for (int j = 0; j < D::columns; ++j) {
            float sum = c.at[i][j];
            for (int k = 0; k < A::columns; ++k) sum += a.at[i][k] * b.at[k][j];
            d.at[i][j] = sum;
        }
    }
}
template <class F>
void store_matrix_sync(float* to, const F& from, unsigned pitch, Layout)
{
    require(to, pitch);
    for (int i = 0; i < F::rows; ++i)
        for (int j = 0; j < F::columns; ++j) to[i * pitch + j] = from.at[i][j];
}
}  // namespace nvcuda::wmma
#endif

#if defined(FUNCTIONS)
#include FUNCTIONS
#endif

#include SOURCE

template <class... Types, size_t... I>
static void call(void (*kernel)(Types...), void** arguments, std::index_sequence<I...>)
{
    static void (*function)(Types...);
    static void** given;
    function = kernel;
    given = arguments;
    entry = [] { function(*static_cast<std::decay_t<Types>*>(given[I])...); };
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block();
}
template <class... Types>
static void call(void (*kernel)(Types...), void** arguments)
{
    call(kernel, arguments, std::index_sequence_for<Types...>());
}

extern "C" int launch(const char* name, const unsigned* grid, const unsigned* block, void** arguments)
{
    if (block[0] * block[1] * block[2] > 1024 || block[2] != 1) return 1;
    if (stacks == nullptr) stacks = static_cast<char*>(std::malloc(1024 * STACK));
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
#define KERNEL(function)                      \
    if (std::strcmp(name, #function) == 0) {  \
        call(function, arguments);            \
        return 0;                             \
    }
    KERNELS
    return 2;
}
