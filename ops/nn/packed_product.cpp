// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/packed_product.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/parts/panel_product.h"
#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"
#endif

namespace troupe {
namespace {

/// Laying out costs about as much as half a product of 32 rows, and gains little where there are few rows.
constexpr int64_t kFewestRows = 8, kFewestTimes = 4;
/// Rows of a panel's product at a time, whose sums the first-level cache holds, and those worth a thread.
constexpr int64_t kMostRowsOfPanel = 64, kRowsOfThread = 16;
constexpr int64_t kMultiplicationsOfThread = 1 << 17;

/// Some rows of c, from `a` and a panel whose columns are in `c` of rows of `n`.
void multiply_some(const float* a, int64_t rows, int64_t k, const float* panel, int64_t columns, bool add, float* c,
                   int64_t n) {
  const int64_t width = panel_columns();
  float sums[kMostRowsOfPanel * kMostPanelColumns];
  multiply_panel(a, rows, k, panel, columns, false, sums);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < columns; ++j) c[row * n + j] = sums[row * width + j] + (add ? c[row * n + j] : 0);
}

Result<PackedProduct> product_by_panels(const KernelContext& context, const float* b, bool tb, bool add, int64_t m,
                                        int64_t n, int64_t k) {
  TROUPE_ASSIGN(const Tensor panels, in_panels(context, b, tb, k, n));
  return PackedProduct([=, threads = context.threads()](const float* a, float* c) {
    const int64_t width = panel_columns();
    const int64_t blocks =
        std::max((m + kMostRowsOfPanel - 1) / kMostRowsOfPanel, std::min<int64_t>(threads, m / kRowsOfThread));
    const int64_t grain = kMultiplicationsOfThread * blocks / (m * k * width) + 1;
    parallel_for(threads, panels.dim(0) * blocks, grain, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const int64_t panel = i / blocks, first = panel * width;
        const int64_t row = m * (i % blocks) / blocks, rows = m * (i % blocks + 1) / blocks - row;
        multiply_some(a + row * k, rows, k, panels.data<float>() + panel * k * width, std::min(width, n - first), add,
                      c + row * n + first, n);
      }
    });
    return true;
  });
}

#ifdef TROUPE_ONEDNN
Result<PackedProduct> onednn_product(const KernelContext& context, const float* b, bool tb, bool add, int64_t m,
                                     int64_t n, int64_t k) {
  using dnnl::memory;
  const auto f32 = memory::data_type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc of_a({m, k}, f32, memory::format_tag::ab), of_c({m, n}, f32, memory::format_tag::ab);
  const memory::desc plain({k, n}, f32, tb ? memory::format_tag::ba : memory::format_tag::ab);
  dnnl::primitive_attr attr;
  dnnl::post_ops sum;
  if (add) sum.append_sum(1);
  attr.set_post_ops(sum);
  const dnnl::matmul::primitive_desc wanted(
      dnnl::matmul::desc(of_a, memory::desc({k, n}, f32, memory::format_tag::any), of_c), attr, engine);
  const memory::desc packed = wanted.weights_desc();
  TROUPE_ASSIGN(Tensor kept, context.allocate(DType::kUInt8, {static_cast<int64_t>(packed.get_size())}));
  memory from(plain, engine, const_cast<float*>(b)), to(packed, engine, kept.mutable_raw());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return PackedProduct([=, product = dnnl::matmul(wanted)](const float* a, float* c) mutable {
    try {
      product.execute(stream, {{DNNL_ARG_SRC, memory(of_a, engine, const_cast<float*>(a))},
                               {DNNL_ARG_WEIGHTS, memory(packed, engine, kept.mutable_raw())},
                               {DNNL_ARG_DST, memory(of_c, engine, c)}});
      stream.wait();
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  });
}
#endif

}  // namespace

Result<PackedProduct> packed_product(const KernelContext& context, const float* b, bool tb, bool add, int64_t m,
                                     int64_t n, int64_t k, int64_t times) {
  if (m >= kFewestRows && times >= kFewestTimes && n > 0 && k > 0) {
    if (panels_beat_onednn()) return product_by_panels(context, b, tb, add, m, n, k);
#ifdef TROUPE_ONEDNN
    try {
      return onednn_product(context, b, tb, add, m, n, k);
    } catch (const dnnl::error&) {  // not by this library: plainly
    }
#endif
  }
  return PackedProduct([=](const float* a, float* c) {
    return add ? gemm_add(a, false, b, tb, c, m, n, k) : gemm(a, false, b, tb, c, m, n, k);
  });
}

}  // namespace troupe
