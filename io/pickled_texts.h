// SPDX-License-Identifier: Apache-2.0
// Texts in NumPy's arrays of objects, which .npy files have as pickles: TensorFlow gives string tensors as such arrays,
// and they alone keep zero bytes at a text's end. Nothing of a pickle is called or looked up: of what it says only the
// one list of bytes and str is taken. Implemented in io/pickled_texts.cpp.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/shape.h"

namespace troupe {

/// The elements of the array that numpy.save pickled, by protocol 3 or later, in order; they lie in `pickle`. False
/// where it is damaged or has other objects than bytes and str.
bool pickled_texts(std::string_view pickle, std::vector<std::string_view>& texts);

/// A pickle that numpy.load makes an array of bytes objects of.
std::string pickle_texts(std::span<const std::string> texts, const Shape& shape);

}  // namespace troupe
