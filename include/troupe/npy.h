// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy and .npz files. Implemented in io/npy.cpp and io/npz.cpp.
//
// Dtypes: float16/32/64, int8..int64, uint8..uint64, bool, complex64, complex128, and strings as NumPy's fixed-width
// bytes ('S'), or as objects ('O', which numpy.load takes with allow_pickle) where one ends in a zero byte, which 'S'
// drops; texts ('U') are read as UTF-8. Any thread. Errors name the file and what is wrong: kNotFound;
// kDataLoss for a damaged or truncated file; kUnimplemented for a dtype that is not ours; kInvalidArgument for a tensor
// that NumPy cannot hold (bfloat16, resources); kResourceExhausted for a full disk or too little memory (strings of 'S'
// all take the bytes of the longest), or objects that repeat texts beyond 1 GiB.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// Reads a .npy file of version 1 to 3, in either byte order; a Fortran-ordered array is transposed to row-major.
Result<Tensor> read_npy(const std::string& path);
/// Writes a .npy file, version 1.
Status write_npy(const std::string& path, const Tensor& tensor);

/// The arrays of a .npz file by their names (without ".npy"), stored or deflated; check sums are verified.
Result<std::map<std::string, Tensor>> read_npz(const std::string& path);
/// Writes a .npz file, as numpy.savez, or numpy.savez_compressed when `compress`.
Status write_npz(const std::string& path, const std::map<std::string, Tensor>& tensors, bool compress = false);

/// The bytes of a .npy file in memory; `name` stands in errors for the file's.
Result<Tensor> decode_npy(std::string_view bytes, const std::string& name);
Result<std::string> encode_npy(const Tensor& tensor, const std::string& name);

}  // namespace troupe
