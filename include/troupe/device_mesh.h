// SPDX-License-Identifier: Apache-2.0
// DeviceMesh: devices in a grid with named axes, one for each way a model is spread. Implemented in
// train/device_mesh.cpp.
//
//   auto mesh = nn::DeviceMesh::create(engine->devices(), {{"data", 2}, {"pipeline", 2}, {"tensor", 2}});
//   mesh->along("tensor", {{"data", 1}, {"pipeline", 0}})   the devices that share the layers of replica 1's stage 0
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "troupe/error.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {
namespace nn {

/// A value: names of devices and where they are. It knows nothing of an engine; scopes are made of the names.
/// Source: Shazeer et al., "Mesh-TensorFlow", 2018.
class DeviceMesh {
 public:
  struct Axis {
    std::string name;
    int64_t size = 1;
  };
  /// A place along one axis.
  struct Coordinate {
    std::string axis;
    int64_t index = 0;
  };

  /// The devices in order, the last axis running fastest: of {{"data", 2}, {"tensor", 3}} devices 0 to 2 are those of
  /// data 0. A device may be named more than once, and then does the work of several. Errors: no axis; an axis without
  /// a name, named twice or of a size below 1; as many devices as the sizes' product are needed.
  static Result<DeviceMesh> create(std::vector<std::string> devices, std::vector<Axis> axes);

  /// The device at these places, one for each axis in any order. Errors, which list the axes: one that there is not,
  /// one twice or missing, an index out of range.
  Result<std::string> at(const std::vector<Coordinate>& where) const;
  /// The devices along `axis` at these places of all others. Errors as of at().
  Result<std::vector<std::string>> along(std::string_view axis, const std::vector<Coordinate>& where) const;
  /// The mesh of the axes that are left at these places of the others: of data 1 a mesh pipeline x tensor. Errors as of
  /// at(); none left.
  Result<DeviceMesh> slice(const std::vector<Coordinate>& where) const;

  /// How many places an axis has. Error: there is none of that name.
  Result<int64_t> size(std::string_view axis) const;
  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<std::string>& devices() const { return devices_; }
  /// "data 2 x pipeline 2 x tensor 2".
  std::string str() const;

 private:
  DeviceMesh(std::vector<std::string> devices, std::vector<Axis> axes)
      : devices_(std::move(devices)), axes_(std::move(axes)) {}
  /// Where each axis is held, -1 for those that `where` does not name.
  Result<std::vector<int64_t>> held(const std::vector<Coordinate>& where) const;
  /// The devices at places that agree with held(), in order.
  std::vector<std::string> matching(const std::vector<int64_t>& held) const;

  std::vector<std::string> devices_;
  std::vector<Axis> axes_;
};

}  // namespace nn
}  // namespace troupe
