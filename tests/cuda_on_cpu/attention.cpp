// Runs one of perfml's attention kernels on the CPU: attention BATCH N KERNEL SEED <
// q k v (raw) > o (raw).
//
// -DSOURCE="wgmma.cu" and the macros of the source; -DHALF=1 -DKERNEL=... -DQUERY_ROWS=... for fp16. The
// fp32 source has all versions of the ladder, so there the name of the kernel chooses.
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
  chance = std::atoi(given[4]);
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
  const std::string name = given[3];
  if (name == "separate") {
    const int rows = batch * n, width = n / 2;
    std::vector<float> s(static_cast<size_t>(rows) * width, NAN), largest(rows, NAN), sums(largest);
    auto run = [&](size_t work, auto kernel) {
      launch(static_cast<unsigned>((work + 255) / 256), 1, 256, arena, sizeof arena, kernel);
    };
    for (int first = 0; first < n; first += width) {
      run(s.size(),
          [&] { separate_scores(q.data(), k.data(), s.data(), rows, n, first, width, scale); });
      run(rows, [&] { separate_row_max(s.data(), largest.data(), rows, width); });
      run(s.size(), [&] { separate_exp(s.data(), largest.data(), rows, width); });
      run(rows, [&] { separate_row_sum(s.data(), sums.data(), rows, width); });
      run(elements, [&] {
        separate_update(s.data(), v.data(), largest.data(), sums.data(), o.data(), m.data(),
                        l.data(), rows, n, first, width);
      });
    }
  }
  auto run = [&](const char* kernel_name, auto kernel, unsigned threads, unsigned tiles) {
    if (name != kernel_name) return;
    using Q = std::conditional_t<
        std::is_invocable_v<decltype(kernel), float*, float*, float*, float*, float*, float*, int,
                            float>,
        float, float4>;
    launch(batch, tiles, threads, arena, sizeof arena, [&] {
      kernel(reinterpret_cast<Q*>(q.data()), reinterpret_cast<Q*>(k.data()),
             reinterpret_cast<Q*>(v.data()), o.data(), m.data(), l.data(), n, scale);
    });
  };
  run("fused_tiles", fused_tiles, 32, 1);
  run("shared_48k", shared_48k, 128, 1);
  run("split_q", split_q, 128, n / 128);
  run("vector_loads", vector_loads, 128, n / 128);
  run("restructured", restructured, 128, n / 128);
  run("coalesced", coalesced, 128, n / 128);
  run("lm_registers", lm_registers, 128, n / 128);
  run("no_conflicts", no_conflicts, 128, n / 128);
  run("q_registers", q_registers, 128, n / 128);
  run("o_registers", o_registers, 128, n / 128);
#endif
  return std::fwrite(o.data(), sizeof(Element), elements, stdout) == elements ? 0 : 2;
}
