// SPDX-License-Identifier: Apache-2.0
// The equation of an Einsum: which dimensions of operands and result are the same. Implemented in
// ops/linear/einsum_spec.cpp.
#pragma once
#include <string>
#include <vector>

#include "troupe/shape.h"

namespace troupe {

/// Subscripts by operand: letters, and kEllipsis where '...' stands for any number of dimensions that broadcast.
struct EinsumSpec {
  static constexpr char kEllipsis = '.';
  std::vector<std::string> inputs;
  std::string output;

  /// "ab,b...->a..." for `n` operands. Errors: other characters, no or two arrows, another number of operands, two
  /// ellipses in one operand, an ellipsis or a letter in the result that no operand has.
  static Result<EinsumSpec> parse(const std::string& equation, int n);
};

/// Dimensions numbered: those of one number have one size, unless they broadcast.
struct EinsumLabels {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::vector<int64_t> sizes;    // by number; -1: not known
  std::vector<bool> broadcasts;  // by number: stands under an ellipsis

  /// Errors: ranks and sizes that do not fit, with the shapes. All ranks must be known.
  static Result<EinsumLabels> resolve(const EinsumSpec& spec, const std::vector<PartialShape>& shapes);
  Result<PartialShape> result() const;
};

}  // namespace troupe
