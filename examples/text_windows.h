// SPDX-License-Identifier: Apache-2.0
// Text as windows of characters to learn from.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "troupe/dataset.h"

/// What one step sees: from `rows` places in the text, `length` characters each.
struct Window {
  int64_t rows = 0, length = 0;
};

/// Characters as numbers from 0 on, in the order in which they first come.
struct Text {
  std::vector<int32_t> characters;
  int64_t kinds = 0;
};

/// Reads a file, plain or gzip. Errors: those of reading; a text that is no longer than a window.
inline troupe::Result<Text> read_text(const std::string& path, const Window& window) {
  TROUPE_ASSIGN(const troupe::Dataset lines, troupe::Dataset::from_text_lines({path}));
  TROUPE_ASSIGN(auto next, lines.iterate());
  Text text;
  std::vector<int32_t> number(256, -1);
  while (true) {
    TROUPE_ASSIGN(const std::optional<troupe::Element> line, next->next());
    if (!line) break;
    for (const char c : (*line)[0].values<std::string>()[0] + "\n") {
      int32_t& known = number[static_cast<unsigned char>(c)];
      if (known < 0) known = static_cast<int32_t>(text.kinds++);
      text.characters.push_back(known);
    }
  }
  if (std::ssize(text.characters) <= window.rows * (window.length + 2))
    return troupe::invalid_argument("{}: {} characters are too few", path, text.characters.size());
  return text;
}

/// The window of step `step`, and the characters that follow each of it: row i goes through the i-th part of the text.
inline std::pair<troupe::Tensor, troupe::Tensor> window_of(const Text& text, const Window& window, int step) {
  const int64_t part = (std::ssize(text.characters) - 1) / window.rows;
  const int64_t begin = step * window.length % (part - window.length + 1);
  std::vector<int32_t> xs, ys;
  for (int64_t row = 0; row < window.rows; ++row) {
    const auto from = text.characters.begin() + row * part + begin;
    xs.insert(xs.end(), from, from + window.length);
    ys.insert(ys.end(), from + 1, from + 1 + window.length);
  }
  const troupe::Shape shape = {window.rows, window.length};
  return {troupe::Tensor::of<int32_t>(xs, shape), troupe::Tensor::of<int32_t>(ys, shape)};
}
