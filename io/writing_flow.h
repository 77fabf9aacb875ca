// SPDX-License-Identifier: Apache-2.0
// WritingFlow: what gives a dataset's elements to those who ask, and files too.
#pragma once
#include "io/dataset_stages.h"

namespace troupe {

/// Gives what its input gives, and has each element kept. After an error nothing more is kept. What derives from it
/// calls end() in its destructor.
class WritingFlow : public Flow<Element> {
 public:
  explicit WritingFlow(FlowPtr<Element> from) : from_(std::move(from)) {}
  Result<std::optional<Element>> next() final {
    Result<std::optional<Element>> element = from_->next();
    if (ended_) return element;
    const Status kept = !element.ok() ? Status(element.error()) : *element ? keep(**element) : finish();
    if (!kept.ok()) {
      end();
      return kept.error();
    }
    ended_ = !*element;
    return element;
  }

 protected:
  virtual Status keep(const Element& element) = 0;
  /// The input has ended: what was kept becomes what others find.
  virtual Status finish() = 0;
  /// Takes away what was kept so far.
  virtual void give_up() = 0;
  /// Gives up, unless the input has ended.
  void end() {
    if (!std::exchange(ended_, true)) give_up();
  }

 private:
  const FlowPtr<Element> from_;
  bool ended_ = false;
};

}  // namespace troupe
