// SPDX-License-Identifier: Apache-2.0
// Grids of devices.
#include "troupe/device_mesh.h"

#include <algorithm>

namespace troupe::nn {

Result<DeviceMesh> DeviceMesh::create(std::vector<std::string> devices, std::vector<Axis> axes) {
  DeviceMesh mesh(std::move(devices), std::move(axes));
  if (mesh.axes_.empty()) return invalid_argument("a mesh of {} devices has no axis", mesh.devices_.size());
  const auto count = static_cast<int64_t>(mesh.devices_.size());
  int64_t places = 1;
  for (size_t i = 0; i < mesh.axes_.size(); ++i) {
    const Axis& axis = mesh.axes_[i];
    if (axis.name.empty()) return invalid_argument("mesh {}: axis {} has no name", mesh.str(), i);
    if (axis.size < 1) return invalid_argument("mesh {}: axis '{}' has size {}", mesh.str(), axis.name, axis.size);
    for (size_t j = 0; j < i; ++j)
      if (mesh.axes_[j].name == axis.name)
        return invalid_argument("mesh {}: two axes are called '{}'", mesh.str(), axis.name);
    // Beyond the count it is wrong anyway, and does not grow on.
    places = axis.size > count || places > count ? count + 1 : places * axis.size;
  }
  if (places != count) return invalid_argument("mesh {} over {} devices", mesh.str(), count);
  return mesh;
}

Result<std::vector<int64_t>> DeviceMesh::held(const std::vector<Coordinate>& where) const {
  std::vector<int64_t> result(axes_.size(), -1);
  for (const Coordinate& c : where) {
    const auto axis = std::ranges::find(axes_, c.axis, &Axis::name);
    if (axis == axes_.end()) return make_error(Code::kNotFound, "no axis '{}' in mesh {}", c.axis, str());
    if (c.index < 0 || c.index >= axis->size)
      return invalid_argument("axis '{}' of mesh {} has no place {}", c.axis, str(), c.index);
    int64_t& place = result[static_cast<size_t>(axis - axes_.begin())];
    if (place >= 0) return invalid_argument("axis '{}' of mesh {} given twice", c.axis, str());
    place = c.index;
  }
  return result;
}

std::vector<std::string> DeviceMesh::matching(const std::vector<int64_t>& held) const {
  std::vector<std::string> result;
  for (size_t i = 0; i < devices_.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    bool matches = true;
    for (size_t axis = axes_.size(); axis-- > 0;) {
      matches &= held[axis] < 0 || held[axis] == rest % axes_[axis].size;
      rest /= axes_[axis].size;
    }
    if (matches) result.push_back(devices_[i]);
  }
  return result;
}

Result<std::string> DeviceMesh::at(const std::vector<Coordinate>& where) const {
  TROUPE_ASSIGN(const auto places, held(where));
  for (size_t i = 0; i < axes_.size(); ++i)
    if (places[i] < 0) return invalid_argument("mesh {}: no place along axis '{}'", str(), axes_[i].name);
  return matching(places)[0];
}

Result<std::vector<std::string>> DeviceMesh::along(std::string_view axis, const std::vector<Coordinate>& where) const {
  TROUPE_RETURN_IF_ERROR(size(axis).status());
  TROUPE_ASSIGN(const auto places, held(where));
  for (size_t i = 0; i < axes_.size(); ++i)
    if ((places[i] < 0) != (axes_[i].name == axis))
      return invalid_argument("mesh {}: {} along axis '{}' for the devices along '{}'", str(),
                              places[i] < 0 ? "no place" : "a place", axes_[i].name, axis);
  return matching(places);
}

Result<DeviceMesh> DeviceMesh::slice(const std::vector<Coordinate>& where) const {
  TROUPE_ASSIGN(const auto places, held(where));
  std::vector<Axis> left;
  for (size_t i = 0; i < axes_.size(); ++i)
    if (places[i] < 0) left.push_back(axes_[i]);
  if (left.empty()) return invalid_argument("mesh {}: a slice at one place of every axis", str());
  return create(matching(places), std::move(left));
}

Result<int64_t> DeviceMesh::size(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  if (found == axes_.end()) return make_error(Code::kNotFound, "no axis '{}' in mesh {}", axis, str());
  return found->size;
}

std::string DeviceMesh::str() const {
  std::string text;
  for (const Axis& axis : axes_) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis.name, axis.size);
  return text;
}

}  // namespace troupe::nn
