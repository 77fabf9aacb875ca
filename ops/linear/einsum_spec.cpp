// SPDX-License-Identifier: Apache-2.0
// Equations of Einsum, parsed and fitted to shapes.
#include "ops/linear/einsum_spec.h"

#include <algorithm>
#include <map>

namespace troupe {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Result<std::string> subscripts(const std::string& text, const std::string& equation) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "...") == 0) {
      if (out.find(EinsumSpec::kEllipsis) != std::string::npos)
        return invalid_argument("two ellipses in '{}' of equation '{}'", text, equation);
      out += EinsumSpec::kEllipsis;
      i += 2;
    } else if (is_letter(text[i])) {
      out += text[i];
    } else {
      return invalid_argument("'{}' in equation '{}' is neither a letter nor an ellipsis", text[i], equation);
    }
  }
  return out;
}

}  // namespace

Result<EinsumSpec> EinsumSpec::parse(const std::string& equation, int n) {
  std::string text;
  std::ranges::copy_if(equation, std::back_inserter(text), [](char c) { return c != ' '; });
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos || text.find("->", arrow + 2) != std::string::npos)
    return invalid_argument("equation '{}' must have one '->'", equation);
  EinsumSpec spec;
  for (size_t begin = 0; begin <= arrow;) {
    const size_t end = std::min(text.find(',', begin), arrow);
    TROUPE_ASSIGN(std::string operand, subscripts(text.substr(begin, end - begin), equation));
    spec.inputs.push_back(std::move(operand));
    begin = end + 1;
  }
  if (static_cast<int>(spec.inputs.size()) != n)
    return invalid_argument("equation '{}' is for {} operands, not {}", equation, spec.inputs.size(), n);
  TROUPE_ASSIGN(spec.output, subscripts(text.substr(arrow + 2), equation));
  for (char c : spec.output)
    if (std::ranges::none_of(spec.inputs, [c](const std::string& s) { return s.find(c) != std::string::npos; }))
      return invalid_argument("'{}' of the result of equation '{}' is in no operand", c, equation);
  return spec;
}

Result<EinsumLabels> EinsumLabels::resolve(const EinsumSpec& spec, const std::vector<PartialShape>& shapes) {
  // Dimensions under an ellipsis, aligned at the last.
  std::vector<int> under;
  int widest = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool ellipsis = spec.inputs[i].find(EinsumSpec::kEllipsis) != std::string::npos;
    const int named = static_cast<int>(spec.inputs[i].size()) - ellipsis;
    under.push_back(shapes[i].rank() - named);
    if (under.back() < 0 || (!ellipsis && under.back() > 0))
      return invalid_argument("operand {} of shape {} does not fit the subscripts '{}'", i, shapes[i].str(),
                              spec.inputs[i]);
    widest = std::max(widest, under.back());
  }
  if (widest > 0 && spec.output.find(EinsumSpec::kEllipsis) == std::string::npos)
    return invalid_argument("the result must have an ellipsis for the {} dimensions under those of operands", widest);
  EinsumLabels out;
  out.sizes.assign(static_cast<size_t>(widest), 1);
  out.broadcasts.assign(static_cast<size_t>(widest), true);
  std::map<char, int> numbers;
  const auto number = [&](const std::string& subscripts, int ellipsis) {
    std::vector<int> labels;
    for (char c : subscripts) {
      if (c == EinsumSpec::kEllipsis) {
        for (int k = widest - ellipsis; k < widest; ++k) labels.push_back(k);
        continue;
      }
      const auto [at, added] = numbers.try_emplace(c, static_cast<int>(out.sizes.size()));
      if (added) {
        out.sizes.push_back(-1);
        out.broadcasts.push_back(false);
      }
      labels.push_back(at->second);
    }
    return labels;
  };
  std::vector<bool> open(static_cast<size_t>(widest), false);  // a broadcasting size that may be more than is known
  for (size_t i = 0; i < shapes.size(); ++i) {
    out.inputs.push_back(number(spec.inputs[i], under[i]));
    for (int d = 0; d < shapes[i].rank(); ++d) {
      const int label = out.inputs[i][d];
      const int64_t n = shapes[i][d];
      int64_t& size = out.sizes[label];
      const bool grows = out.broadcasts[label];
      if (n < 0) {
        if (grows) open[label] = true;
      } else if (grows ? size == 1 : size < 0) {
        size = n;
      } else if (n != size && !(grows && n == 1)) {
        return invalid_argument("operand {} of shape {} has size {} where another has {}", i, shapes[i].str(), n, size);
      }
    }
  }
  for (int k = 0; k < widest; ++k)
    if (open[k] && out.sizes[k] == 1) out.sizes[k] = -1;
  out.output = number(spec.output, widest);
  return out;
}

Result<PartialShape> EinsumLabels::result() const {
  std::vector<int64_t> dims;
  for (int label : output) dims.push_back(sizes[label]);
  return PartialShape::make(dims);
}

}  // namespace troupe
