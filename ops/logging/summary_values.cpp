// SPDX-License-Identifier: Apache-2.0
// Numbers, pictures, sounds and tensors in a Summary.
#include "ops/logging/summary_values.h"

#include <algorithm>
#include <cmath>

#include "graph/graph_def/attr_proto.h"

namespace troupe {
namespace {

template <class T> void to_bytes(const T* in, int64_t channels, const uint8_t* bad_color, std::vector<uint8_t>& out) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    std::copy_n(in, out.size(), out.begin());
  } else {
    const auto value = [in](size_t k) { return static_cast<float>(widen(in[k])); };
    float low = 0, high = 0;
    for (size_t k = 0; k < out.size(); ++k)
      if (std::isfinite(value(k))) low = std::min(low, value(k)), high = std::max(high, value(k));
    const float most = std::max(-low, high), offset = low < 0 ? 128 : 0,
                scale = most > 0 ? (low < 0 ? 127 : 255) / most : 0;
    const auto n = static_cast<size_t>(channels);
    for (size_t pixel = 0; pixel < out.size(); pixel += n) {
      bool finite = true;
      for (size_t k = pixel; k < pixel + n; ++k) finite &= std::isfinite(value(k));
      for (size_t k = 0; k < n; ++k)
        out[pixel + k] = finite ? static_cast<uint8_t>(value(pixel + k) * scale + offset) : bad_color[k];
    }
  }
}

}  // namespace

Result<std::string> text_of(const Tensor& t, const char* what) {
  if (t.rank() != 0) return invalid_argument("{} must be a scalar, not {}", what, t.str());
  return t.data<std::string>()[0];
}

void add_number(const std::string& tag, const Tensor& value, int64_t i, proto::Summary& out) {
  auto* v = out.add_value();
  v->set_tag(tag);
  with_type(value.dtype(), NumberTypes{},
            [&]<class T>() { v->set_simple_value(static_cast<float>(widen(value.data<T>()[i]))); });
}

Status add_pictures(const std::string& tag, const Tensor& images, int64_t most, const Tensor& bad_color,
                    proto::Summary& out) {
  constexpr int64_t kMostSide = 1 << 15;
  const int64_t channels = images.rank() == 4 ? images.dim(3) : 0;
  if ((channels != 1 && channels != 3 && channels != 4) || images.dim(1) < 1 || images.dim(2) < 1 ||
      images.dim(1) > kMostSide || images.dim(2) > kMostSide)
    return invalid_argument("images must be [n, height, width, 1|3|4], not {}", images.shape().str());
  if (bad_color.dtype() != DType::kUInt8 || bad_color.elements() < channels)
    return invalid_argument("bad_color {} has not {} channels of uint8", bad_color.str(), channels);
  const int64_t size = images.elements() / std::max<int64_t>(images.dim(0), 1);
  std::vector<uint8_t> pixels(static_cast<size_t>(size));
  for (int64_t i = 0; i < std::min(most, images.dim(0)); ++i) {
    with_type(images.dtype(), PictureTypes{},
              [&]<class T>() { to_bytes(images.data<T>() + i * size, channels, bad_color.data<uint8_t>(), pixels); });
    TROUPE_RETURN_IF_ERROR(add_image(most == 1 ? tag + "/image" : fmt::format("{}/image/{}", tag, i), pixels.data(),
                                     images.dim(1), images.dim(2), channels, out));
  }
  return {};
}

Status add_sounds(const std::string& tag, const Tensor& sounds, int64_t most, float rate, proto::Summary& out) {
  if (sounds.rank() != 2 && sounds.rank() != 3)
    return invalid_argument("tensor must be [batch,frames,channels] or [batch,frames], not {}", sounds.shape().str());
  if (!(rate > 0 && rate < 1e9f)) return invalid_argument("sample_rate must be above 0, not {}", rate);
  const int64_t frames = sounds.dim(1), channels = sounds.rank() == 3 ? sounds.dim(2) : 1;
  for (int64_t i = 0; i < std::min(most, sounds.dim(0)); ++i)
    TROUPE_RETURN_IF_ERROR(add_audio(most > 1 ? fmt::format("{}/audio/{}", tag, i) : tag + "/audio",
                                     sounds.data<float>() + i * frames * channels, frames, channels, rate, out));
  return {};
}

Status set_tensor(const Tensor& x, proto::Summary::Value& out) {
  if (x.dtype() == DType::kResource || x.dtype() == DType::kVariant)
    return invalid_argument("{} cannot be written as bytes", to_string(x.dtype()));
  proto::AttrValue value;
  to_proto(AttrValue(x), value);
  if (value.tensor().ByteSizeLong() > INT32_MAX / 2)
    return make_error(Code::kResourceExhausted, "{} takes {} bytes, more than a summary may have", x.shape().str(),
                      value.tensor().ByteSizeLong());
  out.set_tensor(value.tensor().SerializeAsString());
  return {};
}

}  // namespace troupe
