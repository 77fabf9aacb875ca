// SPDX-License-Identifier: Apache-2.0
// Lists of tensors come out as they went in, and no form makes anything else of bytes.
#include "net/packed.h"

#include <catch2/catch.hpp>

#include <random>

#include "troupe/tensor_list.h"

using namespace troupe;
using namespace troupe::net;

namespace {

Tensor sample() {
  TensorList inner{DType::kFloat32, PartialShape{-1}, 3, {Tensor::of<float>({1, 2}), Tensor(), Tensor::of<float>({})}};
  TensorList outer{DType::kVariant, PartialShape::unknown(), -1, {list_tensor(inner), list_tensor({})}};
  Tensor out = *Tensor::make(DType::kVariant, Shape{2});
  out.mutable_data<TensorListRef>()[1] = std::make_shared<TensorList>(outer);
  return out;
}

}  // namespace

TEST_CASE("lists of tensors, and lists within them, come out as they went in") {
  const auto packed = pack(sample());
  REQUIRE(packed.ok());
  REQUIRE(packed->tensors.size() == 3);
  const auto out = unpack(packed->form, packed->tensors);
  INFO((out.ok() ? "" : out.error().str()));
  REQUIRE(out.ok());
  CHECK(out->shape() == Shape{2});
  const auto* lists = out->data<TensorListRef>();
  CHECK_FALSE(lists[0]);
  REQUIRE(lists[1]->elements.size() == 2);
  const TensorList& inner = *lists[1]->elements[0].data<TensorListRef>()[0];
  CHECK(inner.dtype == DType::kFloat32);
  CHECK(inner.shape == PartialShape{-1});
  CHECK(inner.most == 3);
  CHECK(inner.elements[0].identical(Tensor::of<float>({1, 2})));
  CHECK_FALSE(inner.elements[1].defined());
  const auto plain = pack(Tensor::scalar(3.f));
  REQUIRE(plain.ok());
  CHECK(plain->form.empty());
  CHECK(unpack({}, plain->tensors)->identical(Tensor::scalar(3.f)));
}

TEST_CASE("forms that are cut, changed or of other tensors are errors or tensors, never more") {
  const auto packed = pack(sample());
  REQUIRE(packed.ok());
  for (size_t n = 1; n < packed->form.size(); ++n)
    CHECK_FALSE(unpack(std::string_view(packed->form).substr(0, n), packed->tensors).ok());
  CHECK_FALSE(unpack(packed->form, {}).ok());
  CHECK_FALSE(unpack({}, packed->tensors).ok());
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string form = packed->form;
    for (int k = 0; k < 3; ++k) form[random() % form.size()] = static_cast<char>(random());
    (void)unpack(form, packed->tensors).ok();
  }
  Tensor deep = Tensor::scalar(1.f);
  for (int i = 0; i < kMostNestedLists + 1; ++i)
    deep = list_tensor({deep.dtype(), PartialShape::unknown(), -1, {deep}});
  CHECK_FALSE(pack(deep).ok());
}
