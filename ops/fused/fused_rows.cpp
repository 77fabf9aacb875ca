// SPDX-License-Identifier: Apache-2.0
// Programs with reductions over the last dimension: layer norms, hand-written softmax, and their gradients.
#include "ops/fused/fused_rows.h"

#include <algorithm>
#include <cstring>

namespace troupe {
namespace {

class FusedRows final : public ComputeKernel {
 public:
  FusedRows(FusedProgram form, std::vector<FusedInstruction> program, size_t blocks)
      : form_(std::move(form)), size_(size_of(form_.dtype)), blocks_(std::max<size_t>(blocks, 1)),
        program_(std::move(program)), grain_(grain_of(program_)) {}
  bool shareable() const override { return true; }

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::vector<Shape> shapes, form_.shapes(c));
    const Shape& shape = shapes.back();
    const int64_t n = shape.rank() > 0 ? shape.dim(-1) : 1;
    std::vector<Value> values(shapes.size());
    for (size_t v = 0; v < shapes.size(); ++v) {
      TROUPE_ASSIGN(values[v].plan, plan_broadcast(shapes[v], shape));
      if (values[v].plan.shape != shape)
        return invalid_argument("a value {} is larger than the result {}", shapes[v].str(), shape.str());
      values[v].wide = shapes[v].rank() > 0 && shapes[v].dim(-1) == n;
      if (v < form_.inputs) values[v].data = static_cast<const char*>(c.input(static_cast<int>(v)).raw());
    }
    TROUPE_ASSIGN(Tensor y, form_.result(c, shape));
    const int64_t rows = n == 0 ? 0 : shape.elements() / n;
    char* out = static_cast<char*>(y.mutable_raw());
    parallel_for(c.threads(), rows, std::max<int64_t>(grain_ / std::max<int64_t>(n, 1), 1),
                 [&](int64_t begin, int64_t end) { run(values, n, out, begin, end); });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  struct Value {
    Broadcast plan;              // how the result's elements meet its own
    bool wide = true;            // as wide as the result; else one element in each row
    const char* data = nullptr;  // of an input
  };

  void run(const std::vector<Value>& values, int64_t n, char* out, int64_t begin, int64_t end) const {
    const size_t stride = (static_cast<size_t>(n) * size_ + 63) / 64 * 64;
    const auto scratch = std::make_unique_for_overwrite<char[]>(blocks_ * stride);
    std::vector<const char*> at(values.size());  // where each value of the row is
    for (int64_t row = begin; row < end; ++row) {
      for (size_t v = 0; v < form_.inputs; ++v)
        at[v] = values[v].data + static_cast<size_t>(place_of_first(values[v].plan, row * n)) * size_;
      for (size_t j = 0; j < program_.size(); ++j) {
        const FusedInstruction& i = program_[j];
        const size_t v = form_.inputs + j;
        char* to =
            j + 1 < program_.size() ? scratch.get() + i.block * stride : out + static_cast<size_t>(row * n) * size_;
        call(i, values[i.a].wide, values[i.b].wide, at[i.a], at[i.b], n, to);
        at[v] = to;
      }
    }
  }

  void call(const FusedInstruction& i, bool a_is_wide, bool b_is_wide, const char* a, const char* b, int64_t n,
            char* to) const {
    constexpr double kNoParameters[2] = {};
    const int64_t length = a_is_wide || b_is_wide ? n : 1;
    switch (i.loop.kind) {
      case FusedKind::kUnary: i.loop.unary(to, a, length, kNoParameters); break;
      case FusedKind::kBinary:
        i.loop.binary(to, a, b, length,
                      a_is_wide == b_is_wide ? Operands::kBoth
                      : a_is_wide            ? Operands::kRightScalar
                                             : Operands::kLeftScalar);
        break;
      case FusedKind::kReduce: reduce_row(a, length, size_, i.loop.reduce, to); break;
      case FusedKind::kSpread:
        if (a_is_wide || !b_is_wide) std::memcpy(to, a, static_cast<size_t>(length) * size_);
        else if (size_ == 4) std::fill_n(reinterpret_cast<float*>(to), n, *reinterpret_cast<const float*>(a));
        else std::fill_n(reinterpret_cast<double*>(to), n, *reinterpret_cast<const double*>(a));
    }
  }

  const FusedProgram form_;
  const size_t size_, blocks_;
  const std::vector<FusedInstruction> program_;
  const int64_t grain_;
};

}  // namespace

int64_t grain_of(const std::vector<FusedInstruction>& program) {
  double dear = 0;
  for (const FusedInstruction& i : program) dear += 1.0 / static_cast<double>(i.loop.grain);
  return std::max<int64_t>(static_cast<int64_t>(1 / dear), 256);
}

int64_t place_of_first(const Broadcast& plan, int64_t at) {
  int64_t rest = at / plan.run();
  int64_t from = plan.stride[0][plan.rank - 1] * (at % plan.run());
  for (int d = plan.rank - 2; d >= 0; --d) {
    from += rest % plan.size[d] * plan.stride[0][d];
    rest /= plan.size[d];
  }
  return from;
}

std::unique_ptr<ComputeKernel> make_fused_rows(FusedProgram form, std::vector<FusedInstruction> program,
                                               size_t blocks) {
  return std::make_unique<FusedRows>(std::move(form), std::move(program), blocks);
}

}  // namespace troupe
