// SPDX-License-Identifier: Apache-2.0
// Tensor parallel layers: one layer's variables and products split over devices. Implemented in nn/tensor_parallel.cpp.
//
//            ┌ columns 0 ┐    each    ┌ rows 0 ┐
//   x ──────>│ columns 1 │──> relu ──>│ rows 1 │──> sum ──> y        one reduction for two layers, and one more
//            └ columns 2 ┘            └ rows 2 ┘                     for their gradients
//
// A layer's share on device i has variables of its own, `name`/kernel_i, whose initial values are slices of that of the
// layer in nn.h of the same name and seed: so split and whole models compute the same but for rounding. Sizes need not
// divide: the first shares have one more. Faults stick to the scope, as in nn.h. Sums are in the order of the devices.
// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/nn.h"

namespace TROUPE_API troupe {
namespace nn {

/// A tensor spread over devices: parts[i] is on devices[i]. They are copies of it, its shares along the last dimension,
/// or partial sums of it; which of these is said where one is taken or given.
struct Spread {
  std::vector<std::string> devices;
  std::vector<Output> parts;
};

/// Sizes of the shares of `size` over n >= 1: of 7 over 3 they are 3, 2, 2.
std::vector<int64_t> share_sizes(int64_t size, size_t n);

// -- from one tensor to many and back ---------------------------------------------------------------------------------

/// A copy on each device. Gradients by the copies are summed where x is. Error: no devices.
Spread copy_to(const ScopeAt& scope, Output x, const std::vector<std::string>& devices);
/// Shares of x [..., n], cut where x is. Errors: no devices, more of them than n, n not known.
Spread split_to(const ScopeAt& scope, Output x, const std::vector<std::string>& devices);
/// fn of each part, on its device, with a scope there.
Spread each(const ScopeAt& scope, const Spread& x, const std::function<Output(const Scope& scope, Output part)>& fn);
/// Shares joined along the last dimension, on the scope's device.
Output gather(const ScopeAt& scope, const Spread& shares);
/// Partial sums added up, on the scope's device.
Output reduce(const ScopeAt& scope, const Spread& sums);
/// Partial sums added up, on every device: each device adds a share of the last dimension, and hands it to the others.
/// So each sends and receives about twice the size of a part, however many devices there are. Error: last size not
/// known.
Spread all_reduce(const ScopeAt& scope, const Spread& sums);

// -- layers -----------------------------------------------------------------------------------------------------------

/// Shares of dense(x): device i has kernel_i [in, units_i] and bias_i [units_i]. x: copies [batch, in]. Errors: those
/// of dense; more devices than units.
Spread dense_by_columns(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                        const std::string& name, const DenseOptions& options = {});
/// The same of copies of one x.
Spread dense_by_columns(const ScopeAt& scope, Variables& variables, Output x, int64_t units, const std::string& name,
                        const std::vector<std::string>& devices, const DenseOptions& options = {});
/// dense() of x given in shares [batch, in_i], of any sizes: device i has kernel_i [in_i, units]; the sum of the
/// products and `name`/bias is on the scope's device. Errors: no shares; one of unknown last size.
Output dense_by_rows(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                     const std::string& name, const DenseOptions& options = {});
/// The same on every device, by all_reduce: copies, for further layers split over the same devices.
Spread dense_by_rows_to_all(const ScopeAt& scope, Variables& variables, const Spread& x, int64_t units,
                            const std::string& name, const DenseOptions& options = {});

/// embedding() of a table split by rows: device i has `name`/table_i [rows_i, width], is sent the ids that are in it
/// and sends their rows to the scope's device; an update of it touches those rows only (IndexedSlices in optimizers.h).
/// An id out of range fails the step. Errors: those of embedding; no devices, or more of them than rows.
Output embedding_by_rows(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                         const std::string& name, const std::vector<std::string>& devices,
                         const EmbeddingOptions& options = {});
/// Shares of embedding(): device i has `name`/table_i [rows, width_i]. Errors: those of embedding; no devices, or more
/// of them than width.
Spread embedding_by_columns(const ScopeAt& scope, Variables& variables, Output ids, int64_t rows, int64_t width,
                            const std::string& name, const std::vector<std::string>& devices,
                            const EmbeddingOptions& options = {});

// -- losses -----------------------------------------------------------------------------------------------------------

/// The mean over the batch of the cross entropy of logits given in shares [batch, classes_i]; labels [batch] int32 or
/// int64. Shares stay where they are: for each row a device sends its largest logit, its sum of exponentials and, if it
/// has it, the label's logit. A label out of range fails the step. Error: a share of unknown last size.
Output sparse_softmax_cross_entropy(const ScopeAt& scope, const Spread& logits, Output labels);

}  // namespace nn
}  // namespace troupe
