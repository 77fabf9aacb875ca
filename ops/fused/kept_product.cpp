// SPDX-License-Identifier: Apache-2.0
// With AVX-512 the constant lies in panels of 64 columns, which are asked for ahead of time
// (ops/parts/panel_product.h): measured with one thread, BERT with 128 words is 1.04 times as fast as with oneDNN,
// which lays it out where there is none. Bias and GELU, a tenth of a transformer's time after its products, find the
// part that was just made in the cache. One row is bound by reading the constant: a loop over it as it lies reads 15 to
// 18 GB/s, oneDNN's product 10 to 13 once it is laid out and 12 to 16 before.
#include "ops/fused/kept_product.h"

#include <algorithm>
#include <atomic>
#include <string_view>

#include "devices/parallel.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/panel_product.h"
#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"
#endif

namespace troupe {

#ifdef TROUPE_ONEDNN
namespace {

/// Multiplications below which handing over takes longer than it saves, and numbers of rows with a layout of their own.
constexpr int64_t kLeastWork = 1 << 18;
constexpr size_t kMostRows = 2;
constexpr int64_t kLeastColumns = 256;  // of one row, worth a thread
// Rows that go through a panel together, and pieces of work for each thread, so that all end at about the same time.
constexpr int64_t kLeastRows = 28, kMostRowsAtOnce = 256, kPiecesOfThread = 4;

/// y[n] = a[k] b[k,n], whose rows are `row_of_b` elements apart.
TROUPE_SIMD_CLONES void multiply_row(const float* __restrict a, const float* __restrict b, int64_t row_of_b,
                                     float* __restrict y, int64_t n, int64_t k) {
  constexpr int64_t kRows = 8;  // read at once: with four the memory waits
  std::fill_n(y, n, 0.0f);
  int64_t p = 0;
  for (; p + kRows <= k; p += kRows) {
    const float *x = a + p, *r = b + p * row_of_b;
    const int64_t d = row_of_b;
    for (int64_t j = 0; j < n; ++j)
      y[j] += ((x[0] * r[j] + x[1] * r[d + j]) + (x[2] * r[2 * d + j] + x[3] * r[3 * d + j])) +
              ((x[4] * r[4 * d + j] + x[5] * r[5 * d + j]) + (x[6] * r[6 * d + j] + x[7] * r[7 * d + j]));
  }
  for (; p < k; ++p) {
    const float* row = b + p * row_of_b;
    const float f = a[p];
    for (int64_t j = 0; j < n; ++j) y[j] += f * row[j];
  }
}

}  // namespace

struct KeptProduct::State {
  Tensor factor;
  bool ta, tb;
  Epilogue epilogue;
  onednn::PrimitiveCache primitives = {};
  std::mutex mutex = {};
  std::vector<int64_t> rows = {};  // guarded by mutex
  Tensor panels = {};              // guarded by mutex

  bool takes_rows(int64_t m) {
    const std::lock_guard lock(mutex);
    if (std::ranges::find(rows, m) != rows.end()) return true;
    if (rows.size() == kMostRows) return false;
    rows.push_back(m);
    return true;
  }

  std::shared_ptr<const onednn::Primitive> primitive(int64_t m, int64_t n, int64_t k,
                                                     const std::shared_ptr<onednn::KeptLayouts>& layouts) const {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const auto rows_of = [&](memory::dims dims, bool transposed) {
      return memory::desc(dims, f32, transposed ? memory::format_tag::ba : memory::format_tag::ab);
    };
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const memory::desc a = rows_of({m, k}, ta), b = rows_of({k, n}, tb), y = rows_of({m, n}, false);
    const memory::desc bias = rows_of({1, n}, false), any({k, n}, f32, memory::format_tag::any);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    if (epilogue.image() >= 0) after.append_binary(dnnl::algorithm::binary_add, y);
    onednn::append_activation(after, epilogue.activation());
    attr.set_post_ops(after);
    using Desc = dnnl::matmul::desc;
    const dnnl::matmul::primitive_desc pd(epilogue.bias() ? Desc(a, any, bias, y) : Desc(a, any, y), attr, engine);
    if (std::string_view(pd.impl_info_str()).find("brg") == std::string_view::npos) return nullptr;
    std::vector<onednn::Argument> arguments = {{DNNL_ARG_SRC, a, pd.src_desc()},
                                               {DNNL_ARG_WEIGHTS, b, pd.weights_desc()},
                                               {DNNL_ARG_DST, y, pd.dst_desc(), true}};
    arguments[1].kept = 1;
    if (epilogue.bias()) arguments.push_back({DNNL_ARG_BIAS, bias, bias});
    if (epilogue.image() >= 0) arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, y, y});
    return std::make_shared<const onednn::Primitive>(engine, dnnl::matmul(pd), std::move(arguments),
                                                     pd.scratchpad_desc(), layouts);
  }

  /// The constant in panels.
  Result<Tensor> panels_of(const KernelContext& c, int64_t k, int64_t n) {
    const std::lock_guard lock(mutex);
    if (panels.defined()) return panels;
    TROUPE_ASSIGN(panels, in_panels(c, factor.data<float>(), tb, k, n));
    return panels;
  }

  /// By panels: each makes its columns for some rows, which are still in the cache when the epilogue comes.
  Result<Tensor> by_panels(KernelContext& c, int64_t m, int64_t n, int64_t k) {
    TROUPE_ASSIGN(const Tensor laid_out, panels_of(c, k, n));
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, {m, n}));
    const float *const a = c.input(0).data<float>(), *const b = laid_out.data<float>();
    float* const out = y.mutable_data<float>();
    const int64_t count = laid_out.dim(0), width = panel_columns();
    // Enough pieces for all threads, of rows enough for the panel to be read from afar but once.
    const int64_t wanted = (kPiecesOfThread * c.threads() + count - 1) / count;
    const int64_t pieces = std::max(std::min(wanted, m / kLeastRows), (m + kMostRowsAtOnce - 1) / kMostRowsAtOnce);
    const int64_t blocks = std::max<int64_t>(pieces, 1);
    const int64_t most_sums = (m + blocks - 1) / blocks * width;
    TROUPE_ASSIGN(Tensor all_sums, c.allocate(DType::kFloat32, {c.threads(), most_sums}));
    float* const first_sums = all_sums.mutable_data<float>();
    std::atomic<int64_t> taken = 0;  // of the sums
    parallel_for(c.threads(), count * blocks, 1, [&](int64_t begin, int64_t end) {
      float* const sums = first_sums + taken++ * most_sums;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / blocks, first = panel * width, columns = std::min(width, n - first);
        const int64_t row = m * (i % blocks) / blocks, rows = m * (i % blocks + 1) / blocks - row;
        multiply_panel(a + row * k, rows, k, b + panel * k * width, columns, false, sums);
        epilogue.apply_part(
            c, {.sums = sums, .row_of_sums = width, .rows = rows, .columns = columns, .at = row * n + first, .n = n},
            out);
      }
    });
    return y;
  }

  Result<Tensor> compute(KernelContext& c) {
    const Tensor &left = c.input(0), &b = c.input(1);
    if (b.raw() != factor.raw() || b.shape() != factor.shape() || left.rank() != 2 || b.rank() != 2) return Tensor();
    const int64_t m = left.dim(ta ? 1 : 0), k = left.dim(ta ? 0 : 1), n = b.dim(tb ? 0 : 1);
    if (b.dim(tb ? 1 : 0) != k || m == 0 || b.elements() == 0 || m < kLeastWork / b.elements()) return Tensor();
    const int image = epilogue.image();
    if (epilogue.bias() && c.input(2).shape() != Shape{n}) return Tensor();
    if (image >= 0 && c.input(image).shape() != Shape{m, n}) return Tensor();
    if (m == 1 && tb) return Tensor();
    if (m == 1) {
      TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, {1, n}));
      float* out = y.mutable_data<float>();
      parallel_for(c.threads(), n, kLeastColumns, [&](int64_t begin, int64_t end) {
        multiply_row(left.data<float>(), b.data<float>() + begin, n, out + begin, end - begin, k);
      });
      TROUPE_RETURN_IF_ERROR(epilogue.apply(c, y));
      return y;
    }
    if (!ta && panels_are_fast()) return by_panels(c, m, n, k);
    if (!takes_rows(m)) return Tensor();
    const auto found =
        primitives.get({c.threads(), m}, [&](const auto& layouts) { return primitive(m, n, k, layouts); });
    if (!found) return Tensor();
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, {m, n}));
    const auto raw = [&](int i) { return const_cast<void*>(c.input(i).raw()); };
    std::vector<void*> data = {raw(0), raw(1), y.mutable_raw()};
    if (epilogue.bias()) data.push_back(raw(2));
    if (image >= 0) data.push_back(raw(image));
    TROUPE_RETURN_IF_ERROR(found->run(c, data));
    return y;
  }
};

std::unique_ptr<KeptProduct> KeptProduct::make(const KernelInit& init, const Epilogue& epilogue) {
  if (init.attr<DType>("T") != DType::kFloat32 || init.constants.size() < 2 || !init.constants[1].defined()) return {};
  return std::unique_ptr<KeptProduct>(new KeptProduct(std::unique_ptr<State>(
      new State{init.constants[1], init.attr<bool>("transpose_a"), init.attr<bool>("transpose_b"), epilogue})));
}

Result<Tensor> KeptProduct::compute(KernelContext& c) { return state_->compute(c); }
#else
struct KeptProduct::State {};
std::unique_ptr<KeptProduct> KeptProduct::make(const KernelInit&, const Epilogue&) { return {}; }
Result<Tensor> KeptProduct::compute(KernelContext&) { return Tensor(); }
#endif

KeptProduct::KeptProduct(std::unique_ptr<State> state) : state_(std::move(state)) {}
KeptProduct::~KeptProduct() = default;

}  // namespace troupe
