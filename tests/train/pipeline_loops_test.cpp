// SPDX-License-Identifier: Apache-2.0
// Pipelines whose stages have loops and branches: the bits of a run without a pipeline.
#include "tests/train/pipeline_fixture.h"
#include "troupe/control_flow.h"

namespace troupe::nn {
namespace {

using Values = std::vector<Output>;

// More iterations than run at once, each with one layer's weights.
Values looped(const Scope& s, Variables& v, const Values& in, const Values&, bool) {
  return {while_loop(
      s, {s.constant(0), in[0]},
      [](const Scope& at, const Values& x) {
        return at.op("Less", {x[0], at.constant(15)});
      },
      [&](const Scope& at, const Values& x) {
        return Values{x[0] + 1, tanh(at, dense(at, v, x[1], 8, "looped"))};
      })[1]};
}

Values scanned(const Scope& s, Variables& v, const Values& in, const Values&, bool) {
  const Output zeros = s.constant(Tensor::zeros(DType::kFloat32, {24 / kMicroBatches, 4}).value());
  const Output columns = s.op("Transpose", {in[0], s.constant(Tensor::of<int32_t>({1, 0}))});
  const Output states = scan(s, {columns}, {zeros}, [&](const Scope& at, const Values& state, const Values& column) {
    const Output x = at.op("ConcatV2", {state[0], at.op("ExpandDims", {column[0], at.constant(1)}), at.constant(1)});
    return Values{tanh(at, dense(at, v, x, 4, "scanned"))};
  })[0];
  return {s.op("GatherV2", {states, s.constant(7), s.constant(0)})};
}

Values branched(const Scope& s, Variables& v, const Values& in, const Values&, bool) {
  return cond(
      s, s.op("Greater", {mean_all(s, in[0]), s.constant(0.f)}),
      [&](const Scope& at) { return Values{tanh(at, dense(at, v, in[0], 8, "branched"))}; },
      [&](const Scope& at) { return Values{relu(at, in[0])}; });
}

TEST_CASE("stages with loops and branches give the bits of a run without a pipeline") {
  const bool norm = GENERATE(false, true);  // with moving averages forward passes take turns
  const StageFn first = [norm](const Scope& s, Variables& v, const Values& in, const Values&, bool training) {
    const Output x = dense(s, v, in[0], 8, "first");
    return Values{norm ? batch_norm(s, v, x, "norm", training) : x};
  };
  const StageFn end = [](const Scope& s, Variables& v, const Values& in, const Values& batch, bool training) {
    return last(s, v, scanned(s, v, in, batch, training), batch, training);
  };
  const std::vector<StageFn> stages = {first, branched, looped, end};
  const Optimizer optimizer = momentum(constant_rate(.1f));
  const Trained expected = reference(chain(stages), optimizer, 3, kMicroBatches);
  for (const PipelineSchedule schedule : kSchedules) {
    INFO("schedule " << static_cast<int>(schedule));
    auto engine = engine_of(4);
    const int devices = schedule == PipelineSchedule::kInterleaved ? 2 : 4;
    check_same(trained(*engine, stages, options_of(schedule, devices, optimizer), 3), expected);
  }
}

TEST_CASE("a pass ends where a branch with moving averages is not taken") {
  const StageFn norm = [](const Scope& s, Variables& v, const Values& in, const Values&, bool training) {
    return cond(
        s, s.op("Greater", {mean_all(s, in[0]), s.constant(0.f)}),
        [&](const Scope& at) { return Values{batch_norm(at, v, in[0], "norm", training)}; },
        [&](const Scope& at) { return Values{at.op("Identity", {in[0]})}; });
  };
  const Optimizer optimizer = sgd(constant_rate(.1f));
  auto engine = engine_of(2);
  const Trained got = trained(*engine, {norm, last}, options_of(PipelineSchedule::kOneFOneB, 2, optimizer), 3);
  check_same(got, reference(chain({norm, last}), optimizer, 3, kMicroBatches));
}

}  // namespace
}  // namespace troupe::nn
