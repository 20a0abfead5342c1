// Attention in fp16 with fp32 sums on Hopper: wgmma, tensor maps, one copying warp, CONSUMERS
// warpgroups of 64 rows of Q each.
//
// The producer keeps STAGES tiles of K and of V ahead. A consumer issues Q K^T of the next tile and
// P V of the last one, and computes the next tile's exponentials while P V is under way; PINGPONG lets
// the warpgroups take turns in issuing, so that the products of one run during the exponentials of the
// others. P stays in registers: the layout of the sums is that of a left operand.
//
// -DHEAD_DIM=64|128 -DKV_ROWS=64|128|192 -DCONSUMERS=2|3 -DSTAGES=2..4 -DMIN_BLOCKS=1|2
// -DREGISTERS=.. -DPRODUCER_REGISTERS=.. (setmaxnreg)
// -DPINGPONG=0|1 -DCAUSAL=0|1 -DPOLY=0..8 -DLAZY=0|8

#include "tensor.cuh"
#include "hopper.cuh"

namespace {

constexpr int kGroup = 128;
constexpr int kConsumers = CONSUMERS * kGroup;  // the producer's threads come after them
constexpr int kThreads = kConsumers + kGroup;
constexpr int kSlabs = HEAD_DIM / 64;  // of 64 columns: 128 bytes, the width of the swizzle
constexpr int kQSlab = 64 * 128;
constexpr int kSlab = KV_ROWS * 128;
constexpr int kTileBytes = kSlabs * kSlab;
constexpr int kColumns = KV_ROWS / 8;
constexpr int kReleases = CONSUMERS * 4;  // one lane of each consumer warp

struct Shared {
  unsigned q, k, v, q_full, k_full, v_full, k_empty, v_empty;
};

__device__ __forceinline__ Shared layout(unsigned start) {
  Shared at;
  at.q = (start + 1023) & ~1023u;  // an atom of the swizzle starts at a multiple of 1024
  at.k = at.q + CONSUMERS * kSlabs * kQSlab;
  at.v = at.k + STAGES * kTileBytes;
  at.q_full = at.v + STAGES * kTileBytes;
  at.k_full = at.q_full + 8;
  at.v_full = at.k_full + 8 * STAGES;
  at.k_empty = at.v_full + 8 * STAGES;
  at.v_empty = at.k_empty + 8 * STAGES;
  return at;
}

// Where the tile with this number lies, and the parity of its round.
__device__ __forceinline__ int stage(int tile) { return tile % STAGES; }
__device__ __forceinline__ int round_of(int tile) { return tile / STAGES % 2; }

__device__ __forceinline__ void fetch(unsigned to, unsigned full, unsigned empty, const void* map,
                                      int tile, int problem) {
  barrier_wait(empty + 8 * stage(tile), round_of(tile) ^ 1);
  const unsigned barrier = full + 8 * stage(tile);
  barrier_expect(barrier, kTileBytes);
#pragma unroll
  for (int slab = 0; slab < kSlabs; ++slab) {
    copy_box(to + stage(tile) * kTileBytes + slab * kSlab, map, 64 * slab, tile * KV_ROWS, problem,
             barrier);
  }
}

__device__ __forceinline__ void produce(const Shared& at, const unsigned char* maps, int first_row,
                                        int problem, int tiles) {
  const unsigned char *q_map = maps, *k_map = maps + 128, *v_map = maps + 256;
  map_acquire(q_map);
  map_acquire(k_map);
  map_acquire(v_map);
  barrier_expect(at.q_full, CONSUMERS * kSlabs * kQSlab);
#pragma unroll
  for (int group = 0; group < CONSUMERS; ++group) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      copy_box(at.q + (group * kSlabs + slab) * kQSlab, q_map, 64 * slab, first_row + 64 * group,
               problem, at.q_full);
    }
  }
  fetch(at.k, at.k_full, at.k_empty, k_map, 0, problem);
  for (int tile = 1; tile < tiles; ++tile) {
    fetch(at.k, at.k_full, at.k_empty, k_map, tile, problem);
    fetch(at.v, at.v_full, at.v_empty, v_map, tile - 1, problem);
  }
  fetch(at.v, at.v_full, at.v_empty, v_map, tiles - 1, problem);
}

__device__ __forceinline__ void multiply_keys(float (&scores)[KV_ROWS / 2], unsigned q, unsigned k) {
#pragma unroll
  for (int step = 0; step < HEAD_DIM / 16; ++step) {
    const int slab = step / 4, inside = step % 4 * 32;
    Product<KV_ROWS>::of_shared(scores, describe(q + slab * kQSlab + inside, 16),
                                describe(k + slab * kSlab + inside, 16), step > 0);
  }
}

__device__ __forceinline__ void multiply_values(float (&out)[HEAD_DIM / 2],
                                                const unsigned (&weights)[KV_ROWS / 4],
                                                unsigned v) {
#pragma unroll
  for (int step = 0; step < KV_ROWS / 16; ++step) {
    Product<HEAD_DIM>::of_registers(out, weights + 4 * step, describe(v + 2048 * step, kSlab), 1);
  }
}

// A lane's two rows: g and g + 8 of its warp's 16.
struct Rows {
  float max[2], sum[2], shrink[2];
};

__device__ __forceinline__ void mask_scores(float (&scores)[KV_ROWS / 2], int first_column, int row,
                                            int n) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < KV_ROWS / 2; ++i) {
    const int at = first_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (at >= n || (CAUSAL && at > row + i / 2 % 2 * 8)) scores[i] = minus_infinity();
  }
}

__device__ __forceinline__ void exponentials(float (&scores)[KV_ROWS / 2], Rows& rows,
                                             float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = scores[2 * half];
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      largest = fmaxf(largest, scores[4 * column + 2 * half]);
      largest = fmaxf(largest, scores[4 * column + 2 * half + 1]);
    }
    largest = raised<LAZY>(rows.max[half], quad_max(largest), factor);
    rows.shrink[half] = exp2_unit((rows.max[half] - largest) * factor);
    rows.max[half] = largest;
    const float offset = largest * factor;
    float sum = 0.0f;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
#pragma unroll
      for (int i = 4 * column + 2 * half; i < 4 * column + 2 * half + 2; ++i) {
        scores[i] = exp2_mixed<POLY>(fmaf(scores[i], factor, -offset), column);
        sum += scores[i];
      }
    }
    rows.sum[half] = rows.sum[half] * rows.shrink[half] + sum;
  }
}

// Sums 4 c .. 4 c + 3 are rows g, g + 8 of columns 8 c ..: two neighbouring c make a left operand.
__device__ __forceinline__ void pack_weights(unsigned (&weights)[KV_ROWS / 4],
                                             const float (&scores)[KV_ROWS / 2]) {
#pragma unroll
  for (int i = 0; i < KV_ROWS / 4; ++i) weights[i] = pack(scores[2 * i], scores[2 * i + 1]);
}

__device__ __forceinline__ void release(unsigned empty, int tile) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage(tile));
}

__device__ __forceinline__ void consume(const Shared& at, Half* o, int group, int first_row,
                                        int tiles, int n, float factor) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int row = first_row + 64 * group + 16 * warp + lane / 4;
  const unsigned q = at.q + group * kSlabs * kQSlab;
  const int own_turn = 1 + group, next_turn = 1 + (group + 1) % CONSUMERS;
  float scores[KV_ROWS / 2];
  float out[HEAD_DIM / 2];
  unsigned weights[KV_ROWS / 4];
  Rows rows = {{minus_infinity(), minus_infinity()}, {0.0f, 0.0f}, {1.0f, 1.0f}};
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 2; ++i) out[i] = 0.0f;
  auto masked = [&](int tile) {
    return (tile + 1) * KV_ROWS > n ||
           (CAUSAL && (tile + 1) * KV_ROWS - 1 > first_row + 64 * group + 16 * warp);
  };

  barrier_wait(at.q_full, 0);
  barrier_wait(at.k_full, 0);
  if (PINGPONG && tiles > 1 && group == CONSUMERS - 1) turn_pass(1, 2 * kGroup);
  products_fence();
  multiply_keys(scores, q, at.k);
  products_commit();
  products_wait<0>();
  release(at.k_empty, 0);
  if (masked(0)) mask_scores(scores, 0, row, n);
  exponentials(scores, rows, factor);
  pack_weights(weights, scores);

  for (int tile = 1; tile < tiles; ++tile) {
    barrier_wait(at.k_full + 8 * stage(tile), round_of(tile));
    barrier_wait(at.v_full + 8 * stage(tile - 1), round_of(tile - 1));
    if (PINGPONG) turn_wait(own_turn, 2 * kGroup);
    products_fence();
    multiply_keys(scores, q, at.k + stage(tile) * kTileBytes);
    products_commit();
    multiply_values(out, weights, at.v + stage(tile - 1) * kTileBytes);
    products_commit();
    if (PINGPONG && (group < CONSUMERS - 1 || tile < tiles - 1)) turn_pass(next_turn, 2 * kGroup);
    products_wait<1>();
    release(at.k_empty, tile);
    if (masked(tile)) mask_scores(scores, tile * KV_ROWS, row, n);
    exponentials(scores, rows, factor);
    products_wait<0>();
    release(at.v_empty, tile - 1);
    if (must_rescale<LAZY>(rows.shrink[0], rows.shrink[1])) {
#pragma unroll
      for (int i = 0; i < HEAD_DIM / 2; ++i) out[i] *= rows.shrink[i / 2 % 2];
    }
    pack_weights(weights, scores);
  }
  barrier_wait(at.v_full + 8 * stage(tiles - 1), round_of(tiles - 1));
  products_fence();
  multiply_values(out, weights, at.v + stage(tiles - 1) * kTileBytes);
  products_commit();
  products_wait<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float inverse = 1.0f / quad_sum(rows.sum[half]);
    if (row + 8 * half < n) {
      Half* to = o + static_cast<size_t>(row + 8 * half) * HEAD_DIM + lane % 4 * 2;
#pragma unroll
      for (int chunk = 0; chunk < HEAD_DIM / 8; ++chunk) {
        *reinterpret_cast<unsigned*>(to + 8 * chunk) =
            pack(out[4 * chunk + 2 * half] * inverse, out[4 * chunk + 2 * half + 1] * inverse);
      }
    }
  }
}

}  // namespace

// maps: three tensor maps of 128 bytes (Q, K, V: dimensions HEAD_DIM, n, batch; boxes 64 x 64 x 1 for Q,
// 64 x KV_ROWS x 1 for K and V; 128-byte swizzle; zeros outside). o: [batch][n][HEAD_DIM] halves. Grid
// (tiles of Q, batch); `factor` is scale * log2(e).
extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
attention_wgmma(const unsigned char* maps, Half* o, int n, float factor) {
  extern __shared__ __align__(1024) unsigned char arena[];
  const Shared at = layout(shared_address(arena));
  const int tile_of_q = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = tile_of_q * 64 * CONSUMERS;
  const int problem = blockIdx.y;
  const int end = CAUSAL ? min(n, first_row + 64 * CONSUMERS) : n;
  const int tiles = (end + KV_ROWS - 1) / KV_ROWS;
  if (threadIdx.x == 0) {
    barrier_init(at.q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(at.k_full + 8 * i, 1);
      barrier_init(at.v_full + 8 * i, 1);
      barrier_init(at.k_empty + 8 * i, kReleases);
      barrier_init(at.v_empty + 8 * i, kReleases);
    }
    barriers_publish();
  }
  __syncthreads();
  const int group = threadIdx.x / kGroup;
  if (group == CONSUMERS) {
    registers_lower<PRODUCER_REGISTERS>();
    if (threadIdx.x == kConsumers) produce(at, maps, first_row, problem, tiles);
  } else {
    registers_raise<REGISTERS>();
    consume(at, o + static_cast<size_t>(problem) * n * HEAD_DIM, group, first_row, tiles, n, factor);
  }
}
