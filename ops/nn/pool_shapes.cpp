// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/pool_shapes.h"

namespace troupe {
namespace {

Result<PartialShape> checked_pool(ShapeContext& c, PoolOf pool, const PartialShape& input, int first, int last) {
  TROUPE_ASSIGN(PartialShape out, pool(c.attrs(), input));
  for (int i = first; i <= last; ++i)
    if (!out.compatible(c.input(i)))
      return invalid_argument("input {} of shape {} is not the pool {} of input {}", i, c.input(i).str(), out.str(),
                              input.str());
  return out;
}

}  // namespace

Status set_pool_shape(ShapeContext& c, PoolOf pool) {
  TROUPE_ASSIGN(PartialShape out, pool(c.attrs(), c.input(0)));
  c.set_output(0, std::move(out));
  return {};
}

Status set_pool_grad_shape(ShapeContext& c, PoolOf pool, const PartialShape& input, int first, int last) {
  TROUPE_RETURN_IF_ERROR(checked_pool(c, pool, input, first, last).status());
  c.set_output(0, input);
  return {};
}

Status set_pool_grad_grad_shape(ShapeContext& c, PoolOf pool) {
  TROUPE_ASSIGN(const PartialShape like, PartialShape::merge(c.input(0), c.input(2)));
  TROUPE_ASSIGN(PartialShape out, checked_pool(c, pool, like, 1, 1));
  TROUPE_ASSIGN(out, PartialShape::merge(out, c.input(1)));
  c.set_output(0, std::move(out));
  return {};
}

Attrs pool_attrs(GradientContext& c) {
  Attrs out;
  for (const char* name : {"ksize", "strides", "padding", "data_format"})
    if (const AttrValue* v = c.node().attrs().find(name)) out.set(name, *v);
  return out;
}

}  // namespace troupe
