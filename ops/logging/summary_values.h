// SPDX-License-Identifier: Apache-2.0
// Values of a Summary made from the inputs of ops, as those that give Summaries and those that write them do.
// Implemented in ops/logging/summary_values.cpp; the pieces are in io/summary.h.
#pragma once
#include "io/summary.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

/// The types of pictures.
using PictureTypes = TypeList<uint8_t, float, float16, double>;

/// The string of a scalar. Errors name `what`: another shape.
Result<std::string> text_of(const Tensor& t, const char* what);

/// A number under its tag. `value` is of a real type.
void add_number(const std::string& tag, const Tensor& value, int64_t i, proto::Summary& out);

/// The first `most` of images [n, height, width, 1|3|4] of PictureTypes as PNG, under "tag/image/i", or "tag/image"
/// where `most` is 1. Floats of an image are scaled so that the largest becomes 255; where some are negative, so that 0
/// becomes 128 and the largest magnitude 127 away from it. A pixel with NaN or infinity gets `bad_color`, a vector of
/// uint8. Errors: shapes that do not fit.
Status add_pictures(const std::string& tag, const Tensor& images, int64_t most, const Tensor& bad_color,
                    proto::Summary& out);

/// The first `most` of sounds [batch,frames,channels] or [batch,frames] of float32 as WAV, under "tag/audio/i", or
/// "tag/audio" where `most` is 1; `rate` is a scalar. Errors: shapes that do not fit; a rate that is not above 0.
Status add_sounds(const std::string& tag, const Tensor& sounds, int64_t most, float rate, proto::Summary& out);

/// A whole tensor. Errors: handles and lists; more bytes than a summary may have.
Status set_tensor(const Tensor& x, proto::Summary::Value& out);

}  // namespace troupe
