// SPDX-License-Identifier: Apache-2.0
// .npz files: zip archives of .npy files.
#include "io/whole_file.h"
#include "io/zip.h"
#include "troupe/npy.h"

namespace troupe {

Result<std::map<std::string, Tensor>> read_npz(const std::string& path) {
  TROUPE_ASSIGN(const std::string bytes, read_file(path));
  if (bytes.starts_with("\x93NUMPY"))
    return invalid_argument("'{}' is one NumPy array (.npy), not a .npz file of arrays by name", path);
  TROUPE_ASSIGN(const ZipMembers members, read_zip(bytes, path));
  std::map<std::string, Tensor> out;
  for (const auto& [member, data] : members) {
    if (!member.ends_with(".npy"))
      return make_error(Code::kDataLoss, "'{}': member '{}' is not a .npy file", path, member);
    std::string name = member.substr(0, member.size() - 4);
    TROUPE_ASSIGN(Tensor tensor, decode_npy(data, path + ":" + member));
    if (!out.emplace(name, std::move(tensor)).second)
      return make_error(Code::kDataLoss, "'{}': member '{}' comes twice", path, member);
  }
  return out;
}

Status write_npz(const std::string& path, const std::map<std::string, Tensor>& tensors, bool compress) {
  ZipMembers members;
  for (const auto& [name, tensor] : tensors) {
    const std::string member = name + ".npy";
    TROUPE_ASSIGN(std::string bytes, encode_npy(tensor, path + ":" + member));
    members.emplace_back(member, std::move(bytes));
  }
  auto archive = write_zip(members, compress);
  if (!archive.ok()) {
    archive.error().message = fmt::format("'{}': {}", path, archive.error().message);
    return std::move(archive).failure();
  }
  return write_file(path, *archive);
}

}  // namespace troupe
