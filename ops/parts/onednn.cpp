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

Primitive::Primitive(dnnl::engine engine, dnnl::primitive primitive, std::vector<Argument> arguments,
                     memory::desc scratch)
    : engine_(std::move(engine)), primitive_(std::move(primitive)), arguments_(std::move(arguments)),
      scratch_(std::move(scratch)), kept_(arguments_.size()) {
  for (const Argument& a : arguments_) {
    reorders_.emplace_back();
    if (a.plain == a.wanted) continue;
    const auto& from = a.output ? a.wanted : a.plain;
    const auto& to = a.output ? a.plain : a.wanted;
    reorders_.back() = dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to));
  }
}

Status Primitive::run(const KernelContext& c, std::span<void* const> data) const {
  try {
    dnnl::stream stream(engine_);
    std::unordered_map<int, memory> args;
    std::vector<Tensor> held;
    const auto room = [&](const memory::desc& desc) -> Result<memory> {
      TROUPE_ASSIGN(Tensor t, c.allocate(DType::kUInt8, {static_cast<int64_t>(desc.get_size())}));
      held.push_back(std::move(t));
      return memory(desc, engine_, held.back().mutable_raw());
    };
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& a = arguments_[i];
      memory plain(a.plain, engine_, data[i]);
      if (!reorders_[i]) {
        args.emplace(a.id, std::move(plain));
        continue;
      }
      if (a.kept) {
        const std::lock_guard lock(keeping_);
        if (!kept_[i].defined()) {
          TROUPE_ASSIGN(memory made, room(a.wanted));
          reorders_[i].execute(stream, plain, made);
          stream.wait();
          kept_[i] = held.back();
        }
        args.emplace(a.id, memory(a.wanted, engine_, const_cast<void*>(kept_[i].raw())));
        continue;
      }
      TROUPE_ASSIGN(memory wanted, room(a.wanted));
      if (!a.output) reorders_[i].execute(stream, plain, wanted);
      args.emplace(a.id, std::move(wanted));
    }
    if (scratch_.get_size() > 0) {
      TROUPE_ASSIGN(memory scratch, room(scratch_));
      args.emplace(DNNL_ARG_SCRATCHPAD, std::move(scratch));
    }
    primitive_.execute(stream, args);
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!arguments_[i].output || !reorders_[i]) continue;
      memory plain(arguments_[i].plain, engine_, data[i]);
      reorders_[i].execute(stream, args.at(arguments_[i].id), plain);
    }
    stream.wait();
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

std::shared_ptr<const Primitive> PrimitiveCache::get(const Key& key,
                                                     const std::function<std::shared_ptr<const Primitive>()>& make) {
  std::lock_guard lock(mutex_);
  for (const auto& [known, primitive] : entries_)
    if (known == key) return primitive;
  if (!memory_available(kRoomForCode)) return nullptr;  // oneDNN would crash; there may be memory the next time
  std::shared_ptr<const Primitive> made;
  try {
    made = make();
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
