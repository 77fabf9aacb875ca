// SPDX-License-Identifier: Apache-2.0
// Collectives by rings of chunks.
//
//   reduce_scatter: chunk c starts at device c+1 and is added to on its way round; the sum is whole at device c.
//   all_gather:     from there it goes round once more, handed on from device to device.
//
// Who hands on is an EnsureShape: passes leave it where it is (an Identity they would leave out, and the chunk would go
// from its owner to every device straight).
#include "troupe/collectives.h"

namespace troupe::nn {
namespace {

using Outputs = std::vector<Output>;

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}
bool is_number(DType dtype) {
  return dtype != DType::kBool && dtype != DType::kString && dtype != DType::kResource && dtype != DType::kVariant;
}

Output int_constant(const Scope& s, std::span<const int64_t> values) { return s.constant(Tensor::of<int64_t>(values)); }

class Ring {
 public:
  Ring(const Scope& scope, const char* what, const std::vector<std::string>& devices)
      : what_(what), scope_(scope.scope(what)) {
    for (const std::string& device : devices) at_.push_back(scope_.device(device));
    if (at_.empty()) fail("no devices");
  }

  bool ok() const { return scope_.ok(); }
  size_t size() const { return at_.size(); }
  const Scope& at(size_t device) const { return at_[device]; }
  template <class... Args> void fail(fmt::format_string<Args...> text, Args&&... args) const {
    scope_.fail(invalid_argument("{}: {}", what_, fmt::format(text, std::forward<Args>(args)...)));
  }

  /// One tensor for each device, of one dtype, and of one shape but for what they are joined along.
  bool check(const Outputs& xs, std::optional<int> joined = {}) const {
    if (!ok()) return false;
    if (xs.size() != size()) return fail("{} tensors for {} devices", xs.size(), size()), false;
    PartialShape known;  // what those so far say of the shape of all
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!xs[i]) return fail("tensor {} is empty", i), false;
      if (xs[i].dtype() != xs[0].dtype())
        return fail("{} is {}, but {} is {}", xs[i].name(), to_string(xs[i].dtype()), xs[0].name(),
                    to_string(xs[0].dtype())),
               false;
      PartialShape shape = xs[i].shape();
      if (joined && shape.rank() > *joined) shape.set(*joined, -1);
      auto merged = PartialShape::merge(known, shape);
      if (!merged.ok())
        return fail("{} is {}, but the tensors before it are {}", xs[i].name(), xs[i].shape().str(), known.str()),
               false;
      known = *merged;
    }
    return true;
  }
  bool check(const Outputs& xs, Reduction reduction) const {
    if (!check(xs)) return false;
    const DType dtype = xs[0].dtype();
    if (!is_number(dtype) || (reduction == Reduction::kMean && !is_float(dtype)))
      return fail("{} is {}: no type for a {}", xs[0].name(), to_string(dtype),
                  reduction == Reduction::kMean ? "mean" : "sum"),
             false;
    return true;
  }
  /// The axis from 0 on. Where no rank is known, a negative one is refused too.
  std::optional<int> axis_of(const Outputs& xs, int axis) const {
    int rank = -1;
    for (const Output& x : xs)
      if (x && x.shape().has_rank()) rank = x.shape().rank();
    const int from_front = axis < 0 && rank >= 0 ? axis + rank : axis;
    if (from_front >= 0 && (rank < 0 || from_front < rank)) return from_front;
    fail("axis {} of {}", axis, xs.empty() || !xs[0] ? "no tensor" : xs[0].name() + " " + xs[0].shape().str());
    return {};
  }

  /// x of `device` as a vector.
  Output flat(size_t device, Output x) const {
    return at(device).op("Reshape", {x, at(device).constant(Tensor::of<int32_t>({-1}))});
  }
  /// The sizes of x, which is on `device`.
  Output sizes_of(size_t device, Output x) const {
    if (x.shape().fully_known()) return int_constant(at(device), x.shape().shape().dims());
    return at(device).op("Shape", {x}, {{"out_type", DType::kInt64}});
  }

  /// Waits until it is known that x of `device` and `before` of the one before it in the ring have one shape.
  Scope after_same_shape(size_t device, Output x, Output before) const {
    const Scope s = at(device);
    if (x.shape().fully_known() && before.shape().fully_known()) return s;
    const Output mine = sizes_of(device, x), others = sizes_of((device + size() - 1) % size(), before);
    // AddN refuses vectors of different length, where Equal would broadcast one of length 1.
    const Output differences = s.op("AddN", {mine, s.op("Neg", {others})});
    const Output same = s.op("All", {s.op("Equal", {differences, s.constant(int64_t{0})}), s.constant(int32_t{0})});
    return s.after(std::vector<const Node*>{s.named("same_shape").node("Assert", {same, mine, others})});
  }

  /// The chunks of x along an axis, as many as there are devices.
  Outputs split(size_t device, Output x, int axis) const {
    const Scope& s = at(device);
    const int64_t known = x.shape().has_rank() ? x.shape()[axis] : -1;
    const Output sizes = known >= 0 ? int_constant(s, chunk_sizes(known, size())) : unknown_sizes(s, x, axis);
    const Node* parts =
        s.node("SplitV", {x, sizes, s.constant(int32_t{axis})}, {{"num_split", static_cast<int64_t>(size())}});
    Outputs out;
    for (int i = 0; parts && i < parts->num_outputs(); ++i) out.push_back(parts->out(i));
    return out;
  }
  Output join(size_t device, Outputs parts, int axis) const {
    parts.push_back(at(device).constant(int32_t{axis}));
    return at(device).op("ConcatV2", std::move(parts));
  }

  /// Chunk c of the sum, on device c.
  Outputs reduce(const Outputs& xs, Reduction reduction, int axis) const {
    const size_t n = size();
    std::vector<Outputs> chunks;
    for (size_t i = 0; i < n && ok(); ++i) chunks.push_back(split(i, xs[i], axis));
    Outputs sums;
    for (size_t c = 0; c < n && ok(); ++c) {
      Output sum = chunks[(c + 1) % n][c];
      for (size_t step = 2; step <= n && ok(); ++step) {
        const size_t device = (c + step) % n;
        sum = at(device).op("AddN", {sum, chunks[device][c]});
      }
      if (reduction == Reduction::kMean && sum) sum = at(c).op("Mul", {sum, share(at(c), sum.dtype())});
      sums.push_back(sum);
    }
    return sums;
  }

  /// What xs[c] of each device c is on every device, by handing on: [device][c].
  std::vector<Outputs> hand_round(const Outputs& xs) const {
    std::vector<Outputs> out(size(), Outputs(size()));
    for (size_t c = 0; c < size(); ++c) pass_on(c, xs[c], [&](size_t device, Output x) { out[device][c] = x; });
    return out;
  }
  /// Calls take(device, x there) for each device from `from` on.
  template <class F> void pass_on(size_t from, Output x, F take) const {
    for (size_t step = 0; step < size() && ok(); ++step) {
      const size_t device = (from + step) % size();
      if (step > 0) x = at(device).op("EnsureShape", {x}, {{"shape", x.shape()}});
      take(device, x);
    }
  }
  Outputs gather(const Outputs& xs, int axis) const {
    if (!ok()) return {};
    const std::vector<Outputs> there = hand_round(xs);
    Outputs out;
    for (size_t i = 0; i < size() && ok(); ++i) out.push_back(join(i, there[i], axis));
    return out;
  }

  /// Nothing when there was a fault.
  Outputs checked(Outputs out) const { return ok() ? std::move(out) : Outputs(); }

 private:
  /// 1/n.
  Output share(const Scope& s, DType dtype) const {
    return s.op("Cast", {s.constant(1.0 / static_cast<double>(size()))}, {{"DstT", dtype}});
  }
  /// chunk_sizes of what is known when the step runs.
  Output unknown_sizes(const Scope& s, Output x, int axis) const {
    const int64_t at[] = {axis}, one[] = {1};
    const Output all = s.op("Shape", {x}, {{"out_type", DType::kInt64}});
    const Output total = s.op("Squeeze", {s.op("Slice", {all, int_constant(s, at), int_constant(s, one)})});
    const Output n = s.constant(static_cast<int64_t>(size()));
    const Output numbers = s.op("Range", {s.constant(int64_t{0}), n, s.constant(int64_t{1})});
    const Output larger = s.op("Less", {numbers, s.op("FloorMod", {total, n})});
    return s.op("AddV2", {s.op("FloorDiv", {total, n}), s.op("Cast", {larger}, {{"DstT", DType::kInt64}})});
  }

  const char* what_;
  Scope scope_;
  std::vector<Scope> at_;
};

}  // namespace

std::vector<int64_t> chunk_sizes(int64_t size, size_t chunks) {
  const auto n = static_cast<int64_t>(chunks);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(size / n + (i < size % n ? 1 : 0));
  return out;
}

std::vector<Output> all_reduce(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, Reduction reduction) {
  const Ring ring(scope, "all_reduce", devices);
  if (!ring.check(xs, reduction)) return {};
  if (ring.size() == 1) return xs;
  Outputs vectors;
  for (size_t i = 0; i < xs.size(); ++i) vectors.push_back(ring.flat(i, xs[i]));
  if (!ring.ok()) return {};
  Outputs out = ring.gather(ring.reduce(vectors, reduction, 0), 0);
  for (size_t i = 0; i < out.size() && ring.ok(); ++i)
    out[i] = ring.after_same_shape(i, xs[i], xs[(i + ring.size() - 1) % ring.size()])
                 .op("Reshape", {out[i], ring.sizes_of(i, xs[i])});
  return ring.checked(std::move(out));
}

std::vector<Output> reduce_scatter(const ScopeAt& scope, const std::vector<std::string>& devices,
                                   const std::vector<Output>& xs, Reduction reduction, int axis) {
  const Ring ring(scope, "reduce_scatter", devices);
  if (!ring.check(xs, reduction)) return {};
  const auto along = ring.axis_of(xs, axis);
  if (!along) return {};
  return ring.size() == 1 ? xs : ring.checked(ring.reduce(xs, reduction, *along));
}

std::vector<Output> all_gather(const ScopeAt& scope, const std::vector<std::string>& devices,
                               const std::vector<Output>& xs, int axis) {
  const Ring ring(scope, "all_gather", devices);
  if (!ring.ok()) return {};
  const auto along = ring.axis_of(xs, axis);
  if (!along || !ring.check(xs, along)) return {};
  return ring.size() == 1 ? xs : ring.checked(ring.gather(xs, *along));
}

std::vector<Output> broadcast(const ScopeAt& scope, const std::vector<std::string>& devices, Output x, size_t root) {
  const Ring ring(scope, "broadcast", devices);
  if (!ring.ok()) return {};
  if (!x || root >= ring.size()) {
    ring.fail("{} from device {} of {}", x ? x.name() : "no tensor", root, ring.size());
    return {};
  }
  if (ring.size() == 1) return {x};
  const Output sizes = ring.sizes_of(root, x), vector = ring.flat(root, x);
  if (!ring.ok()) return {};
  const Outputs chunks = ring.split(root, vector, 0);
  std::vector<Outputs> there(ring.size(), Outputs(ring.size()));
  for (size_t c = 0; c < chunks.size(); ++c)
    ring.pass_on(root, chunks[c], [&](size_t device, Output part) { there[device][c] = part; });
  Outputs out;
  for (size_t i = 0; i < ring.size() && ring.ok(); ++i)
    out.push_back(i == root ? x : ring.at(i).op("Reshape", {ring.join(i, there[i], 0), sizes}));
  return ring.checked(std::move(out));
}

}  // namespace troupe::nn
