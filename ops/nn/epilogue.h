// SPDX-License-Identifier: Apache-2.0
// What a fused node does to the result of its product (a matrix product, a convolution): adds a bias along the
// channels, adds an image, applies an activation. Implemented in ops/nn/epilogue.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// The kernels of the ops that an Epilogue is made of, for float32 and float64.
class EpilogueKernels {
 public:
  explicit EpilogueKernels(const KernelRegistry& kernels);
  /// nullptr where there is none.
  std::shared_ptr<ComputeKernel> find(std::string_view op, DType dtype, std::string_view data_format) const;

 private:
  std::map<std::string, std::shared_ptr<ComputeKernel>> kernels_;
};

/// The ops of attribute fused_ops: "BiasAdd" or nothing, then "Add" of an image or nothing, then Relu, Relu6, Elu,
/// Tanh, Sigmoid, Swish, GeluApproximate, GeluExact or nothing. The latter three are not ops of graphs: GELU by tanh
/// and by erf have their names in TensorFlow's _FusedMatMul.
struct EpilogueForm {
  bool bias = false;
  bool image = false;
  std::string activation = {};  // or ""
  /// Errors: other ops, another order, other than one of args for a bias and one for an image; an image where the
  /// kernel takes none.
  static Result<EpilogueForm> parse(const KernelInit& init, bool takes_image = false);
};

/// What CPUs do for it.
class Epilogue {
 public:
  Epilogue() = default;
  /// Errors: those of EpilogueForm.
  static Result<Epilogue> make(const KernelInit& init, const EpilogueKernels& kernels, bool takes_image = false);
  bool empty() const { return steps_.empty(); }
  bool bias() const { return form_.bias; }
  /// The input that is added as a whole; -1: none.
  int image() const { return form_.image ? 2 + form_.bias : -1; }
  const std::string& activation() const { return form_.activation; }
  /// Does it by the ops' own kernels, in place where `y` has no other holder. The bias is input 2 of `c`, the image
  /// input image().
  Status apply(const KernelContext& c, Tensor& y) const;
  /// The same for a part that was just made: `rows` of `columns`, one after the other in `sums` with `row_of_sums`
  /// between them, of which the first is element `at` of rows of n in the bias, the image and `y`. Any thread.
  struct Part {
    float* sums;
    int64_t row_of_sums, rows, columns, at, n;
  };
  void apply_part(const KernelContext& c, const Part& part, float* y) const;

 private:
  std::vector<std::shared_ptr<ComputeKernel>> steps_;
  EpilogueForm form_;
  int activation_ = -1;  // which of them; -1: none
};

}  // namespace troupe
