// What the planted families use beside the ladders' CUDA. Threads run one after another until they
// wait, so an atomic is an ordinary update. A copy to shared memory is made when its group is waited
// for, no earlier, so a missing wait shows as a wrong result.
#include <bit>
#include <map>
#include <vector>

#define PLANTED_ON_CPU

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by)
{
    const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both << (by & 31) >> 32);
}
static unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static void atomicMax(unsigned* at, unsigned value) { *at = max(*at, value); }
static void atomicAdd(int* at, int value) { *at += value; }
static void __threadfence() {}
static void __syncwarp() { __syncthreads(); }

using half = _Float16;
static half __float2half_rn(float value) { return static_cast<half>(value); }
static unsigned short __half_as_ushort(half value) { return std::bit_cast<unsigned short>(value); }

static unsigned thread_now() { return static_cast<unsigned>(current - fibers); }

static float offered[1024];
static float __shfl_xor_sync(unsigned, float value, int mask)
{
    offered[thread_now()] = value;
    __syncwarp();
    const float other = offered[thread_now() ^ mask];
    __syncwarp();
    return other;
}

static float load_l2(const float* from) { return *from; }
static int load_l2(const int* from) { return *from; }
static float rsqrt_unit(float x) { return 1.0f / std::sqrt(x); }

struct Copy {
    float4* to;
    const float4* from;
};
static std::vector<std::vector<Copy>> groups[1024];
static std::vector<Copy> open_group[1024];
static void copy_async(float4* to, const float4* from)
{
    open_group[thread_now()].push_back({to, from});
}
static void copies_commit()
{
    groups[thread_now()].push_back(open_group[thread_now()]);
    open_group[thread_now()].clear();
}
template <int Pending>
static void copies_wait()
{
    auto& waiting = groups[thread_now()];
    while (waiting.size() > Pending) {
        for (const Copy& copy : waiting.front()) *copy.to = *copy.from;
        waiting.erase(waiting.begin());
    }
}

// Copies of a tile, by the barrier that they signal; made when the barrier is waited for.
struct Bulk {
    unsigned char* to;
    const void* from;
    unsigned bytes;
};
struct Arrival {
    unsigned parity, expected;
    std::vector<Bulk> copies;
};
static std::map<const unsigned long long*, Arrival> arrivals;
static void barrier_init(unsigned long long* barrier) { arrivals[barrier] = {}; }
static void barriers_publish() {}
static void barrier_expect(unsigned long long* barrier, unsigned bytes)
{
    arrivals[barrier].expected += bytes;
}
static void bulk_copy(void* to, const void* from, unsigned bytes, unsigned long long* barrier)
{
    arrivals[barrier].copies.push_back({static_cast<unsigned char*>(to), from, bytes});
}
static void barrier_wait(unsigned long long* barrier, unsigned parity)
{
    Arrival& arrival = arrivals[barrier];
    if (arrival.parity != parity) return;
    unsigned come = 0;
    for (const Bulk& copy : arrival.copies) come += copy.bytes;
    if (come != arrival.expected) std::abort();  // nobody would ever wake
    for (const Bulk& copy : arrival.copies) std::memcpy(copy.to, copy.from, copy.bytes);
    arrival = {parity ^ 1, 0, {}};
}

// D += A B with the fragments of mma.m16n8k16 as the PTX ISA lays them out: a lane has rows
// lane / 4 and lane / 4 + 8, and pairs along the inner extent from 2 (lane % 4) on.
struct Fragments {
    unsigned left[4], right[2];
};
static Fragments given[1024];
static float element(unsigned pair, int which)
{
    return static_cast<float>(std::bit_cast<half>(static_cast<unsigned short>(pair >> 16 * which)));
}
static void multiply(float (&d)[4], const uint4& a, unsigned b0, unsigned b1)
{
    given[thread_now()] = {{a.x, a.y, a.z, a.w}, {b0, b1}};
    __syncwarp();
    const unsigned warp = thread_now() / 32 * 32, lane = thread_now() % 32;
    for (int i = 0; i < 4; ++i) {
        const unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const Fragments& left = given[warp + row * 4 + k % 8 / 2];
            const Fragments& right = given[warp + column * 4 + k % 8 / 2];
            d[i] += element(left.left[i / 2 + k / 8 * 2], k % 2) * element(right.right[k / 8], k % 2);
        }
    }
    __syncwarp();
}
