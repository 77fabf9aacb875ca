// SPDX-License-Identifier: Apache-2.0
// The SavedModel of saved_model_text.h in a folder, with its checkpoint and its asset.
#pragma once
#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "graph/graph_def/saved_model.pb.h"
#include "io/tensor_bundle.h"
#include "tests/graph/saved_model_text.h"
#include "tests/io/temporary_directory.h"

namespace troupe::testing {

/// `text` with the first `from`, which must be there, as `to`.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// A message's wire bytes from its text.
template <class Message> std::string wire_bytes(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message.SerializeAsString();
}

/// A SavedModel's folder: `name` in a directory of the test's.
struct SampleModel : TemporaryDirectory {
  explicit SampleModel(const std::string& meta_graph = sample_meta_graph(), float w = 3) {
    for (const char* folder : {"model", "model/variables", "model/assets"})
      std::filesystem::create_directory(file(folder));
    write("model/saved_model.pb", wire_bytes<proto::SavedModel>(saved_model_text(meta_graph)));
    write("model/assets/words.txt", "one two");
    write_weights("model/variables/variables", w);
  }
  std::string folder() const { return file("model"); }
  void write_weights(const std::string& prefix, float w) const {
    const std::vector<TensorToSave> tensors = {
        {"w", DType::kFloat32, Shape{}, {}, [w]() -> Result<Tensor> { return Tensor::scalar(w); }}};
    REQUIRE(write_bundle({}, file(prefix), tensors).ok());
  }
};

}  // namespace troupe::testing
