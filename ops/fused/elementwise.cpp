// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise: a little program of element-wise functions, run block after block by the loops of their own
// kernels. A block of each intermediate value stays in the cache; only inputs and the result touch memory.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "graph/passes/fuse_elementwise.h"
#include "ops/fused/fused_rows.h"
#include "ops/fused/register.h"

namespace troupe {
namespace {

/// What a thread keeps blocks in: a part of the first cache, beside inputs and result.
constexpr int64_t kScratchBytes = 24 << 10;
/// Elements of the longest block.
constexpr int64_t kLongest = 2048;

using FusedLoops = std::map<std::pair<std::string_view, DType>, FusedLoop>;

FusedLoops find_loops(const KernelRegistry& kernels) {
  const auto make = [&](std::string_view op, DType dtype) {
    Attrs attrs;
    attrs.set("T", dtype);
    KernelInit init;
    init.op = op;
    init.attrs = &attrs;
    auto kernel = kernels.make(init, DeviceKind::kCpu);
    TROUPE_CHECK(kernel.ok());
    return std::move(*kernel);
  };
  FusedLoops loops;
  for (const std::string_view op : fusable_ops())
    for (DType dtype : FullFloatTypes::dtypes()) {
      const auto kernel = make(op, dtype);
      const auto* unary = dynamic_cast<const UnaryKernel*>(kernel.get());
      const auto* binary = dynamic_cast<const BinaryKernel*>(kernel.get());
      TROUPE_CHECK((unary && unary->out() == dtype) || (binary && binary->out() == dtype));
      loops[{op, dtype}] =
          unary ? FusedLoop{FusedKind::kUnary, unary->loop(), nullptr, unary->grain()}
                : FusedLoop{FusedKind::kBinary, nullptr, binary->loop(), binary->grain(), binary->broadcasts()};
    }
  for (const std::string_view op : fusable_reductions())
    for (DType dtype : FullFloatTypes::dtypes()) {
      const auto kernel = make(op, dtype);
      const auto* reduction = dynamic_cast<const ReduceKernel*>(kernel.get());
      TROUPE_CHECK(reduction);
      loops[{op, dtype}] = {.kind = FusedKind::kReduce, .grain = kCheapGrain, .reduce = reduction->loops()};
    }
  for (DType dtype : FullFloatTypes::dtypes())
    loops[{"BroadcastTo", dtype}] = {.kind = FusedKind::kSpread, .grain = kCheapGrain};
  // Of two at a time.
  for (DType dtype : FullFloatTypes::dtypes()) {
    FusedLoop sum = loops.at({"AddV2", dtype});
    sum.broadcasts = false;
    loops[{"AddN", dtype}] = sum;
  }
  return loops;
}

/// Elements [begin, begin + n) of the first input of `plan`, repeated as it says.
void expand(const Broadcast& plan, const char* in, size_t size, int64_t begin, int64_t n, char* out) {
  const int64_t run = plan.run();
  const bool repeats = plan.stride[0][plan.rank - 1] == 0;
  while (n > 0) {
    const int64_t count = std::min(run - begin % run, n);
    const char* source = in + static_cast<size_t>(place_of_first(plan, begin)) * size;
    if (!repeats) std::memcpy(out, source, static_cast<size_t>(count) * size);
    else if (size == 4) std::fill_n(reinterpret_cast<float*>(out), count, *reinterpret_cast<const float*>(source));
    else std::fill_n(reinterpret_cast<double*>(out), count, *reinterpret_cast<const double*>(source));
    out += static_cast<size_t>(count) * size;
    begin += count;
    n -= count;
  }
}

class FusedElementwise final : public ComputeKernel {
 public:
  FusedElementwise(FusedProgram form, std::vector<FusedInstruction> program, size_t blocks)
      : form_(std::move(form)), size_(size_of(form_.dtype)), inputs_(form_.inputs), blocks_(blocks),
        program_(std::move(program)), grain_(grain_of(program_)) {}
  bool shareable() const override { return true; }

  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const Shape shape, form_.shape(c));
    const int64_t n = shape.elements();
    TROUPE_ASSIGN(Tensor y, form_.result(c, shape));
    std::vector<Source> sources(inputs_);
    std::vector<Broadcast> plans;
    plans.reserve(inputs_);  // pointers into it stay
    Layout layout;
    const auto plan = [&](size_t i) -> Status {
      TROUPE_ASSIGN(Broadcast made, plan_broadcast(c.input(static_cast<int>(i)).shape(), shape));
      sources[i].plan = &plans.emplace_back(std::move(made));
      return {};
    };
    for (size_t i = 0; i < inputs_; ++i) {
      const Tensor& x = c.input(static_cast<int>(i));
      Source& source = sources[i];
      source.data = static_cast<const char*>(x.raw());
      if (x.elements() == n) continue;
      source.how = Reading::kElement;
      if (x.elements() == 1) continue;
      TROUPE_RETURN_IF_ERROR(plan(i));
      if (source.plan->run() < kShortest) source.how = Reading::kRepeated;
      else if (source.plan->stride[0][source.plan->rank - 1] == 1) source.how = Reading::kRun;
    }
    // Loops take one element beside a block; another becomes a block.
    for (const FusedInstruction& i : program_) {
      if (!is_element(sources, i.a) || !is_element(sources, i.b)) continue;
      sources[i.a].how = Reading::kRepeated;
      if (!sources[i.a].plan) TROUPE_RETURN_IF_ERROR(plan(i.a));
    }
    find_cycle(sources, layout);
    for (Source& source : sources) {
      if (source.how == Reading::kRepeated) source.block = blocks_ + layout.repeated++;
      else if (source.plan) layout.run = std::min(layout.run, source.plan->run());
    }
    char* out = static_cast<char*>(y.mutable_raw());
    parallel_for(c.threads(), n, grain_, [&](int64_t begin, int64_t end) { run(sources, layout, out, begin, end); });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Runs of repeated inputs that are shorter are copied into a block.
  static constexpr int64_t kShortest = 128;
  /// So many elements a block has at least that holds a whole number of cycles.
  static constexpr int64_t kFewCycled = 512;
  /// How an input is read beside a block of the result: as it lies from the same element on; where the part of it lies
  /// that is repeated; as one element; or from a block into which it was repeated.
  enum class Reading { kWhole, kRun, kElement, kRepeated };
  struct Source {
    const char* data = nullptr;
    Reading how = Reading::kWhole;
    const Broadcast* plan = nullptr;  // of what is not there once only, for all elements or for each
    size_t block = 0;                 // of kRepeated: behind those for results
    bool cycles = false;              // its block holds the same in each block of the result: see Layout::cycle
  };
  struct Layout {
    int64_t run = INT64_MAX;  // blocks of the result end at its multiples, with the runs that are read in place
    size_t repeated = 0;      // blocks
    int64_t cycle = 0;        // blocks of the result are multiples of it, where it is not 0
  };

  bool is_element(const std::vector<Source>& sources, size_t operand) const {
    return operand < inputs_ && sources[operand].how == Reading::kElement;
  }

  /// Elements of a block where there are so many blocks.
  int64_t longest(size_t blocks) const {
    const auto fit = kScratchBytes / static_cast<int64_t>(std::max<size_t>(blocks, 1) * size_) / 16 * 16;
    return std::min(fit, kLongest);
  }

  /// Vectors of one length along the last dimension, such as those of a bias or of a batch norm, are the same in each
  /// block of the result that begins at the same place of them: they are repeated once for all blocks.
  void find_cycle(std::vector<Source>& sources, Layout& layout) const {
    const auto vector = [](const Source& s) {
      return s.plan && s.plan->rank == 2 && s.plan->stride[0][0] == 0 && s.plan->stride[0][1] == 1 ? s.plan->run() : 0;
    };
    const auto first = std::ranges::find_if(sources, [&](const Source& s) { return vector(s) > 0; });
    if (first == sources.end()) return;
    const int64_t cycle = vector(*first);
    size_t repeated = 0;
    for (const Source& s : sources) {
      if (vector(s) == cycle || s.how == Reading::kRepeated) ++repeated;
      else if (s.plan) return;  // its runs end blocks
    }
    const int64_t most = longest(blocks_ + repeated);
    if (most / cycle * cycle < std::min(kFewCycled, 2 * cycle)) return;
    const int64_t even = std::lcm(cycle, 16);  // what is behind the last 16 takes a loop longer
    layout.cycle = even <= most ? even : cycle;
    for (Source& s : sources)
      if (vector(s) == cycle) s.how = Reading::kRepeated, s.cycles = true;
  }

  void run(const std::vector<Source>& sources, const Layout& layout, char* out, int64_t begin, int64_t end) const {
    alignas(64) char scratch[kScratchBytes];
    int64_t length = longest(blocks_ + layout.repeated);
    if (layout.cycle > 0) length = length / layout.cycle * layout.cycle;
    const size_t stride = static_cast<size_t>(length) * size_;
    for (const Source& s : sources)
      if (s.cycles) expand(*s.plan, s.data, size_, begin, std::min(length, end - begin), scratch + s.block * stride);
    for (int64_t at = begin, n = 0; at < end; at += n) {
      n = std::min({length, end - at, layout.run - at % layout.run});
      const size_t offset = static_cast<size_t>(at) * size_;
      for (const Source& s : sources)
        if (s.how == Reading::kRepeated && !s.cycles) expand(*s.plan, s.data, size_, at, n, scratch + s.block * stride);
      const auto place = [&](size_t operand) -> const char* {
        if (operand >= inputs_) return scratch + program_[operand - inputs_].block * stride;
        const Source& s = sources[operand];
        if (s.how == Reading::kWhole) return s.data + offset;
        if (s.how == Reading::kRepeated) return scratch + s.block * stride;
        return s.plan ? s.data + static_cast<size_t>(place_of_first(*s.plan, at)) * size_ : s.data;
      };
      for (const FusedInstruction& i : program_) {
        char* to = &i == &program_.back() ? out + offset : scratch + i.block * stride;
        constexpr double kNoParameters[2] = {};
        if (i.loop.unary) i.loop.unary(to, place(i.a), n, kNoParameters);
        else
          i.loop.binary(to, place(i.a), place(i.b), n,
                        is_element(sources, i.a)   ? Operands::kLeftScalar
                        : is_element(sources, i.b) ? Operands::kRightScalar
                                                   : Operands::kBoth);
      }
    }
  }

  const FusedProgram form_;
  const size_t size_, inputs_;
  const size_t blocks_;  // for results
  const std::vector<FusedInstruction> program_;
  const int64_t grain_;
};

/// Gives each result but the last a block, again once its last reader has run. Returns how many blocks there are.
size_t assign_blocks(std::vector<FusedInstruction>& program, size_t inputs) {
  std::vector<size_t> last(program.size(), 0), free;
  for (size_t j = 0; j < program.size(); ++j)
    for (size_t operand : {program[j].a, program[j].b})
      if (operand >= inputs) last[operand - inputs] = j;
  size_t blocks = 0;
  for (size_t j = 0; j + 1 < program.size(); ++j) {
    if (free.empty()) free.push_back(blocks++);
    program[j].block = free.back();
    free.pop_back();
    for (size_t k = 0; k < j; ++k)
      if (last[k] == j) free.push_back(program[k].block);
  }
  return blocks;
}

Result<std::unique_ptr<ComputeKernel>> make_fused(const KernelInit& init, const FusedLoops& loops) {
  const DType dtype = init.attr<DType>("T");
  const auto find = [&](std::string_view op) -> std::optional<FusedFunction> {
    const auto at = loops.find({op, dtype});
    if (at == loops.end()) return {};
    return FusedFunction{at->first.first, at->second.kind, at->second.broadcasts};
  };
  TROUPE_ASSIGN(FusedProgram form, FusedProgram::parse(init, find));
  std::vector<FusedInstruction> program;
  for (const FusedStep& s : form.steps) program.push_back({loops.at({s.function.op, dtype}), s.a, s.b});
  const size_t blocks = assign_blocks(program, form.inputs);
  if (form.by_rows()) return make_fused_rows(std::move(form), std::move(program), blocks);
  return std::unique_ptr<ComputeKernel>(new FusedElementwise(std::move(form), std::move(program), blocks));
}

}  // namespace

void register_fused_elementwise_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("_FusedElementwise")
          .input("args: N * T")
          .output("y: T")
          .attr("N: int >= 1")
          .attr(type_attr("T", FloatTypes{}))
          .attr("ops: list(string)")
          .attr("operands: list(int)")
          .shape([](ShapeContext& c) -> Status {
            PartialShape shape = c.input(0);
            for (int i = 1; i < c.num_inputs(); ++i) {
              TROUPE_ASSIGN(shape, broadcast(shape, c.input(i)));
            }
            c.set_output(0, std::move(shape));
            return {};
          })
          .doc("The last result of the element-wise functions `ops`, each applied to two `operands` (of which one of "
               "a single tensor ignores the second): below N an input, from there on the result of an earlier "
               "function. On CPUs Max, Mean, Min and Sum are of the last dimension, which stays with size 1, and "
               "BroadcastTo repeats to the shape of its second operand. A pass makes it."),
      not_differentiable("passes make it, after gradients"));
  kernels.add("_FusedElementwise", DeviceKind::kCpu, {{"T", FullFloatTypes::dtypes()}},
              [loops = find_loops(kernels)](const KernelInit& init) { return make_fused(init, loops); });
}

}  // namespace troupe
