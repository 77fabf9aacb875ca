// SPDX-License-Identifier: Apache-2.0
// What gradient functions of several families build with: scalars of a tensor's dtype, attributes of windows, and sums
// over the dimensions along which an input was broadcast.
#pragma once
#include <utility>

#include "troupe/graph.h"
#include "troupe/op.h"
#include "troupe/scope.h"

namespace troupe {

/// Of an op that has a gradient which nobody has defined: a path through it is an error of gradients(), as in
/// TensorFlow; with not_differentiable() the loss would be taken for a constant there. `reason` is documented.
Gradient undefined_gradient(std::string_view reason = "TensorFlow defines none, and a path through it is an error");
/// A Const scalar of the numeric `dtype` with this value.
Output scalar_like(GradientContext& c, DType dtype, double value);
/// The conjugate of complex x; x itself where it is real. A gradient is taken by real and imaginary part: that of an
/// analytic f is dy * conj(f'(x)).
Output conj(GradientContext& c, Output x);
/// Real and Imag of complex x, and Complex, in the precision of what they take.
Output real_part(GradientContext& c, Output x);
Output imaginary_part(GradientContext& c, Output x);
Output complex_number(GradientContext& c, Output real, Output imaginary);
/// The attributes of a windowed op that say how its windows lie.
Attrs window_attrs(GradientContext& c);
/// A Const vector of int32, or of int64 where a value does not fit.
Output int_vector(GradientContext& c, std::span<const int64_t> values);
/// The sizes of x as a vector: a Const int32 or int64 where the shape is known, else a Shape node.
Output sizes_of(GradientContext& c, Output x);

/// Indices as an op takes them that has no int16: these become int32.
Output int32_or_int64(GradientContext& c, Output indices);
/// The sum of all elements of x.
Output sum_all(GradientContext& c, Output x);
/// g has the shape that x and y broadcast to: sums it to the shape of x. Returns g itself where nothing was
/// broadcast; asks the sizes at run time where they are not known.
Output sum_to(GradientContext& c, Output g, Output x, Output y);
/// Sets dx(0) and dx(1) of a broadcasting op from gradients that have the shape of the result.
void set_broadcast_gradients(GradientContext& c, Output da, Output db);

}  // namespace troupe
