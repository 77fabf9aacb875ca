// SPDX-License-Identifier: Apache-2.0
// Running oneDNN's primitives on tensors: a primitive with the layouts it wants, the reorders from and to ours, and a
// cache of such by shape. Implemented in ops/parts/onednn.cpp. To be included only where TROUPE_ONEDNN is defined.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "troupe/kernel.h"

namespace troupe::onednn {

/// Appends an activation of fused_ops (ops/nn/epilogue.h); "" appends nothing.
void append_activation(dnnl::post_ops& ops, std::string_view activation);

/// One tensor of a primitive: `plain` is how we store it, `wanted` how the primitive does.
struct Argument {
  int id;  // DNNL_ARG_...
  dnnl::memory::desc plain, wanted;
  bool output = false;
  bool added_to = false;  // an output that holds what is added to it
  int64_t kept = 0;       // not 0: the same data in every run, of that version, so that it is reordered once; an input
};

/// What the primitives of one kernel lay out once, such as a constant filter. Primitives of other shapes often want the
/// same layout, and share it. It goes with the last primitive that has it. Thread-safe.
class KeptLayouts {
 public:
  /// The data of that version in the layout that `argument` wants, by make() where no primitive has it. Errors: those
  /// of make().
  Result<std::shared_ptr<const Tensor>> get(const Argument& argument, const std::function<Result<Tensor>()>& make);

 private:
  struct Layout {
    Argument argument;
    std::weak_ptr<const Tensor> data;
  };
  std::mutex mutex_;
  std::vector<Layout> layouts_;
};

/// A primitive made for one set of shapes and one number of threads. Any number of threads may run it at once; scratch
/// memory and reordered tensors come from the calling device.
class Primitive {
 public:
  /// `scratch` is the primitive's scratchpad_desc(), in user mode. `layouts`: the kernel's. Throws dnnl::error.
  Primitive(dnnl::engine engine, dnnl::primitive primitive, std::vector<Argument> arguments, dnnl::memory::desc scratch,
            std::shared_ptr<KeptLayouts> layouts);
  ~Primitive();
  /// data[i] belongs to argument i. Errors: memory refused, kInternal.
  Status run(const KernelContext& c, std::span<void* const> data) const;

 private:
  struct Call;
  struct Reorder {
    dnnl::reorder primitive;     // empty where the layouts are the same
    dnnl::memory::desc scratch;  // that it wants; of Winograd's filters four times as large as these
    explicit operator bool() const { return static_cast<bool>(primitive); }
  };
  Reorder make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) const;
  Status reorder(const Reorder& how, Call& call, const KernelContext& c, const dnnl::memory& from,
                 const dnnl::memory& to) const;
  /// One that nobody uses, or a new one.
  std::unique_ptr<Call> take_call() const;
  Status run(Call& call, const KernelContext& c, std::span<void* const> data) const;

  dnnl::engine engine_;
  dnnl::primitive primitive_;
  std::vector<Argument> arguments_;
  std::vector<Reorder> reorders_;  // by argument; empty where plain is wanted
  std::vector<Reorder> before_;    // of outputs that are added to; else empty
  dnnl::memory::desc scratch_;
  std::shared_ptr<KeptLayouts> layouts_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const Tensor>> kept_;  // by argument, as wanted
  mutable std::vector<std::unique_ptr<Call>> calls_;         // that wait for their next use
};

/// The primitives of one kernel by shape. Thread-safe.
class PrimitiveCache {
 public:
  using Key = std::array<int64_t, 12>;
  using Make = std::function<std::shared_ptr<const Primitive>(const std::shared_ptr<KeptLayouts>&)>;
  /// The primitive for `key`, made by make() at its first use, with what the primitives here share; nullptr when make()
  /// gave nullptr or oneDNN refused.
  std::shared_ptr<const Primitive> get(const Key& key, const Make& make);
  void clear();

 private:
  /// Shapes kept; beyond that the oldest goes.
  static constexpr size_t kMost = 16;
  const std::shared_ptr<KeptLayouts> layouts_ = std::make_shared<KeptLayouts>();
  std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<const Primitive>>> entries_;
};

}  // namespace troupe::onednn
