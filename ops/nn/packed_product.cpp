// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/packed_product.h"

#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"
#endif

namespace troupe {

#ifdef TROUPE_ONEDNN
namespace {

/// Laying out costs about as much as half a product of 32 rows, and gains little where there are few rows.
constexpr int64_t kFewestRows = 8, kFewestTimes = 4;

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

}  // namespace
#endif

Result<PackedProduct> packed_product(const KernelContext& context, const float* b, bool tb, bool add, int64_t m,
                                     int64_t n, int64_t k, int64_t times) {
#ifdef TROUPE_ONEDNN
  if (m >= kFewestRows && times >= kFewestTimes && n > 0 && k > 0) {
    try {
      return onednn_product(context, b, tb, add, m, n, k);
    } catch (const dnnl::error&) {  // not by this library: plainly
    }
  }
#endif
  return PackedProduct([=](const float* a, float* c) {
    return add ? gemm_add(a, false, b, tb, c, m, n, k) : gemm(a, false, b, tb, c, m, n, k);
  });
}

}  // namespace troupe
