// Runs one of perfml's attention kernels on the CPU: attention BATCH N < q k v (raw) > o (raw).
//
// -DSOURCE="wgmma.cu" -DKERNEL=... and the macros of the source. HALF=1: operands are fp16.
#include "cuda_on_cpu.h"

#include SOURCE

#if HALF
alignas(1024) unsigned char arena[256 * 1024];
using Element = Half;
#else
namespace {
alignas(1024) float4 arena[4 * 1024];
}
using Element = float;
#endif

int main(int, char** given) {
  const int batch = std::atoi(given[1]), n = std::atoi(given[2]);
  const size_t elements = static_cast<size_t>(batch) * n * HEAD_DIM;
  std::vector<Element> q(elements), k(elements), v(elements), o(elements);
  for (auto* tensor : {&q, &k, &v}) {
    if (std::fread(tensor->data(), sizeof(Element), elements, stdin) != elements) return 2;
  }
  std::memset(o.data(), 0xff, elements * sizeof(Element));
  arena_start = reinterpret_cast<unsigned char*>(arena);
  const float scale = 1.0f / std::sqrt(static_cast<float>(HEAD_DIM));
#if HALF
  const float factor = scale * 1.4426950408889634f;
#if MAPS
  unsigned char maps[3 * 128];
  const TensorMap made[] = {{q.data(), HEAD_DIM, n, batch, 64},
                            {k.data(), HEAD_DIM, n, batch, KV_ROWS},
                            {v.data(), HEAD_DIM, n, batch, KV_ROWS}};
  for (int i = 0; i < 3; ++i) std::memcpy(maps + 128 * i, &made[i], sizeof made[i]);
  launch((n + QUERY_ROWS - 1) / QUERY_ROWS, batch, kThreads, arena, sizeof arena,
         [&] { KERNEL(maps, o.data(), n, factor); });
#else
  launch((n + QUERY_ROWS - 1) / QUERY_ROWS, batch, kThreads, arena, sizeof arena,
         [&] { KERNEL(q.data(), k.data(), v.data(), o.data(), n, factor); });
#endif
#else
  std::vector<float> m(static_cast<size_t>(batch) * n, NAN), l(m);
#if SEPARATE
  const int rows = batch * n, width = n / 2;
  std::vector<float> s(static_cast<size_t>(rows) * width, NAN), tile_max(rows, NAN), tile_sum(tile_max);
  auto run = [&](size_t work, auto kernel) {
    launch(static_cast<unsigned>((work + 255) / 256), 1, 256, arena, sizeof arena, kernel);
  };
  for (int first = 0; first < n; first += width) {
    run(s.size(), [&] { separate_scores(q.data(), k.data(), s.data(), rows, n, first, width, scale); });
    run(rows, [&] { separate_row_max(s.data(), tile_max.data(), rows, width); });
    run(s.size(), [&] { separate_exp(s.data(), tile_max.data(), rows, width); });
    run(rows, [&] { separate_row_sum(s.data(), tile_sum.data(), rows, width); });
    run(elements, [&] {
      separate_update(s.data(), v.data(), tile_max.data(), tile_sum.data(), o.data(), m.data(),
                      l.data(), rows, n, first, width);
    });
  }
#else
  using Q = OPERAND;
  launch(batch, n / QUERY_ROWS, THREADS, arena, sizeof arena, [&] {
    KERNEL(reinterpret_cast<const Q*>(q.data()), reinterpret_cast<const Q*>(k.data()),
           reinterpret_cast<const Q*>(v.data()), o.data(), m.data(), l.data(), n, scale);
  });
#endif
#endif
  return std::fwrite(o.data(), sizeof(Element), elements, stdout) == elements ? 0 : 2;
}
