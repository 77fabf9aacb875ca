// SPDX-License-Identifier: Apache-2.0
// Histograms and images in a Summary.
#include "io/summary.h"

#include <png.h>

#include <algorithm>
#include <cmath>

#include "io/histogram.h"
#include "io/numbers.h"

namespace troupe {

Status add_histogram(std::string_view tag, const Tensor& values, proto::Summary& out) {
  if (!visit_real(values.dtype(), [](auto) {}))
    return invalid_argument("histogram '{}' of {}{}: it needs numbers", tag, to_string(values.dtype()),
                            values.shape().str());
  const std::vector<double> numbers = as_doubles(values);
  const auto bad = std::ranges::find_if(numbers, [](double v) { return !std::isfinite(v); });
  if (bad != numbers.end())
    return invalid_argument("histogram '{}': element {} is {}", tag, bad - numbers.begin(), *bad);
  const Histogram h = make_histogram(numbers);
  auto* v = out.add_value();
  v->set_tag(std::string(tag));
  auto* histo = v->mutable_histo();
  histo->set_min(h.min);
  histo->set_max(h.max);
  histo->set_num(h.num);
  histo->set_sum(h.sum);
  histo->set_sum_squares(h.sum_squares);
  histo->mutable_bucket_limit()->Add(h.limits.begin(), h.limits.end());
  histo->mutable_bucket()->Add(h.counts.begin(), h.counts.end());
  return {};
}

Status add_image(std::string tag, const uint8_t* pixels, int64_t height, int64_t width, int64_t channels,
                 proto::Summary& out) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string png(bytes, '\0');
  if (!png_image_write_to_memory(&image, png.data(), &bytes, 0, pixels, 0, nullptr))
    return make_error(Code::kInternal, "libpng: {}", image.message);
  png.resize(bytes);
  auto* v = out.add_value();
  v->set_tag(std::move(tag));
  auto* written = v->mutable_image();
  written->set_height(static_cast<int32_t>(height));
  written->set_width(static_cast<int32_t>(width));
  written->set_colorspace(static_cast<int32_t>(channels));
  written->set_encoded_image_string(std::move(png));
  return {};
}

}  // namespace troupe
