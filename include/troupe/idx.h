// SPDX-License-Identifier: Apache-2.0
// Reads the idx files of MNIST and Fashion-MNIST. Implemented in io/idx.cpp.
#pragma once
#include <string>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// The tensor of one idx file, plain or gzip (recognised by its contents): uint8, int8, int16, int32, float32
/// or float64, in the shape its header declares. Any thread. Errors name the file: kNotFound when there is
/// none; kDataLoss when it is truncated, longer than its header says, not idx, or its gzip stream is broken;
/// kInvalidArgument for more than kMaxRank dimensions. A header's sizes are never trusted beyond the file's
/// length. Source: http://yann.lecun.com/exdb/mnist
Result<Tensor> read_idx(const std::string& path);

/// A data set of labelled grey images, as published in MNIST's four files.
struct ImageData {
  Tensor train_images;  // uint8 [n, height, width]
  Tensor train_labels;  // uint8 [n], each below 10
  Tensor test_images;   // uint8 [m, height, width]
  Tensor test_labels;   // uint8 [m], each below 10
};

/// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte
/// from `directory`, each with or without ".gz". Any thread. Errors: those of read_idx; kNotFound naming the
/// missing file; kDataLoss naming file and values when images and labels differ in number, images are not
/// uint8 of rank 3 and one size, or a label is not below 10.
Result<ImageData> read_mnist(const std::string& directory);

}  // namespace troupe
