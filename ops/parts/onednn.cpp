// SPDX-License-Identifier: Apache-2.0
// oneDNN's primitives with the reorders around them.
#ifdef TROUPE_ONEDNN
#include "ops/parts/onednn.h"

#include "base/memory_available.h"

namespace troupe::onednn {

using dnnl::memory;

namespace {
/// More than the code of one primitive takes, and the memory to make it, on a thread that has had none yet.
constexpr size_t kRoomForCode = size_t{64} << 20;
}  // namespace

void append_activation(dnnl::post_ops& ops, std::string_view activation) {
  using dnnl::algorithm;
  if (activation == "Relu") ops.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
  else if (activation == "Relu6") ops.append_eltwise(1, algorithm::eltwise_bounded_relu, 6, 0);
  else if (activation == "Elu") ops.append_eltwise(1, algorithm::eltwise_elu, 1, 0);
  else if (activation == "Tanh") ops.append_eltwise(1, algorithm::eltwise_tanh, 0, 0);
  else if (activation == "Sigmoid") ops.append_eltwise(1, algorithm::eltwise_logistic, 0, 0);
  else if (activation == "Swish") ops.append_eltwise(1, algorithm::eltwise_swish, 1, 0);
  else if (activation == "GeluApproximate") ops.append_eltwise(1, algorithm::eltwise_gelu_tanh, 0, 0);
  else if (activation == "GeluExact") ops.append_eltwise(1, algorithm::eltwise_gelu_erf, 0, 0);
}

Result<std::shared_ptr<const Tensor>> KeptLayouts::get(const Argument& argument,
                                                       const std::function<Result<Tensor>()>& make) {
  const std::lock_guard lock(mutex_);
  for (const Layout& l : layouts_)
    if (l.argument.kept == argument.kept && l.argument.plain == argument.plain && l.argument.wanted == argument.wanted)
      if (auto known = l.data.lock()) return known;
  std::erase_if(layouts_, [](const Layout& l) { return l.data.expired(); });
  TROUPE_ASSIGN(Tensor made, make());
  auto data = std::make_shared<const Tensor>(std::move(made));
  layouts_.push_back({argument, data});
  return data;
}

Primitive::Primitive(dnnl::engine engine, dnnl::primitive primitive, std::vector<Argument> arguments,
                     memory::desc scratch, std::shared_ptr<KeptLayouts> layouts)
    : engine_(std::move(engine)), primitive_(std::move(primitive)), arguments_(std::move(arguments)),
      scratch_(std::move(scratch)), layouts_(std::move(layouts)), kept_(arguments_.size()) {
  for (const Argument& a : arguments_) {
    reorders_.emplace_back();
    before_.emplace_back();
    if (a.plain == a.wanted) continue;
    if (a.added_to) before_.back() = make_reorder(a.plain, a.wanted);
    reorders_.back() = a.output ? make_reorder(a.wanted, a.plain) : make_reorder(a.plain, a.wanted);
  }
}

/// What oneDNN wants to know of one run: making it takes longer than a small primitive. Used again with other data.
struct Primitive::Call {
  dnnl::stream stream;
  std::vector<memory> plain, wanted;  // by argument; `wanted` where it is reordered
  memory scratch;
  std::unordered_map<int, memory> arguments;
};

// In oneDNN's own mode the primitive would hold its scratch memory for good.
Primitive::Reorder Primitive::make_reorder(const memory::desc& from, const memory::desc& to) const {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(engine_, from, engine_, to, attr);
  return {dnnl::reorder(pd), pd.scratchpad_desc()};
}

Status Primitive::reorder(const Reorder& how, Call& call, const KernelContext& c, const memory& from,
                          const memory& to) const {
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  Tensor room;
  if (const size_t bytes = how.scratch.get_size(); bytes > 0) {
    TROUPE_ASSIGN(room, c.allocate(DType::kUInt8, {static_cast<int64_t>(bytes)}));
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(how.scratch, engine_, room.mutable_raw()));
  }
  how.primitive.execute(call.stream, arguments);
  call.stream.wait();
  return {};
}

Primitive::~Primitive() = default;

std::unique_ptr<Primitive::Call> Primitive::take_call() const {
  {
    const std::lock_guard lock(mutex_);
    if (!calls_.empty()) {
      auto call = std::move(calls_.back());
      calls_.pop_back();
      return call;
    }
  }
  auto call = std::make_unique<Call>();
  call->stream = dnnl::stream(engine_);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    call->plain.emplace_back(a.plain, engine_, nullptr);
    call->wanted.push_back(reorders_[i] ? memory(a.wanted, engine_, nullptr) : memory());
    call->arguments.emplace(a.id, reorders_[i] ? call->wanted[i] : call->plain[i]);
  }
  if (scratch_.get_size() > 0) {
    call->scratch = memory(scratch_, engine_, nullptr);
    call->arguments.emplace(DNNL_ARG_SCRATCHPAD, call->scratch);
  }
  return call;
}

Status Primitive::run(Call& call, const KernelContext& c, std::span<void* const> data) const {
  std::vector<Tensor> held;
  const auto room = [&](memory& to) -> Status {
    TROUPE_ASSIGN(Tensor t, c.allocate(DType::kUInt8, {static_cast<int64_t>(to.get_desc().get_size())}));
    to.set_data_handle(t.mutable_raw());
    held.push_back(std::move(t));
    return {};
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    memory &plain = call.plain[i], &wanted = call.wanted[i];
    plain.set_data_handle(data[i]);
    if (!reorders_[i]) continue;
    if (a.kept) {
      const std::lock_guard lock(mutex_);
      if (!kept_[i]) {
        TROUPE_ASSIGN(kept_[i], layouts_->get(a, [&]() -> Result<Tensor> {
          TROUPE_RETURN_IF_ERROR(room(wanted));
          TROUPE_RETURN_IF_ERROR(reorder(reorders_[i], call, c, plain, wanted));
          return held.back();
        }));
      }
      // Only where it is another, since padding is written then.
      if (void* const kept = const_cast<void*>(kept_[i]->raw()); wanted.get_data_handle() != kept)
        wanted.set_data_handle(kept);
      continue;
    }
    TROUPE_RETURN_IF_ERROR(room(wanted));
    if (!a.output) TROUPE_RETURN_IF_ERROR(reorder(reorders_[i], call, c, plain, wanted));
    if (before_[i]) TROUPE_RETURN_IF_ERROR(reorder(before_[i], call, c, plain, wanted));
  }
  if (call.scratch) TROUPE_RETURN_IF_ERROR(room(call.scratch));
  primitive_.execute(call.stream, call.arguments);
  for (size_t i = 0; i < arguments_.size(); ++i)
    if (arguments_[i].output && reorders_[i])
      TROUPE_RETURN_IF_ERROR(reorder(reorders_[i], call, c, call.wanted[i], call.plain[i]));
  call.stream.wait();
  return {};
}

Status Primitive::run(const KernelContext& c, std::span<void* const> data) const {
  try {
    auto call = take_call();
    TROUPE_RETURN_IF_ERROR(run(*call, c, data));
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    return {};
  } catch (const std::bad_alloc&) {
    return make_error(Code::kResourceExhausted, "oneDNN: no memory");
  } catch (const dnnl::error& e) {
    return make_error(e.status == dnnl_out_of_memory ? Code::kResourceExhausted : Code::kInternal, "oneDNN: {}",
                      e.what());
  } catch (const std::exception& e) {
    return make_error(Code::kInternal, "oneDNN: {}", e.what());
  }
}

std::shared_ptr<const Primitive> PrimitiveCache::get(const Key& key, const Make& make) {
  std::lock_guard lock(mutex_);
  for (const auto& [known, primitive] : entries_)
    if (known == key) return primitive;
  if (!memory_available(kRoomForCode)) return nullptr;  // oneDNN would crash; there may be memory the next time
  std::shared_ptr<const Primitive> made;
  try {
    made = make(layouts_);
  } catch (const std::bad_alloc&) {
    return nullptr;  // there may be memory the next time
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return nullptr;
  } catch (const std::exception&) {
    // A shape oneDNN has no code for: the caller has its own.
  }
  if (entries_.size() == kMost) entries_.erase(entries_.begin());
  entries_.emplace_back(key, made);
  return made;
}

void PrimitiveCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace troupe::onednn
#endif
