// SPDX-License-Identifier: Apache-2.0
// Labelled images as datasets of batches.
#pragma once
#include "options.h"
#include "troupe/dataset.h"
#include "troupe/idx.h"

/// What the training needs of the files.
struct Images {
  troupe::Tensor train_images, train_labels;  // uint8 [n, height, width, 1], int32 [n]
  troupe::Tensor test_images, test_labels;
};

/// Reads the four files; errors name the file.
troupe::Result<Images> load_images(const Options& options);

/// Batches of the training images from batch `first` on, for ever: each epoch in an order of its own, which depends
/// on the seed and the epoch alone. So a run that resumes sees the batches it would have seen.
troupe::Result<troupe::Dataset> training_batches(const Images& images, const Options& options, int64_t first);

/// The test images once, in order.
troupe::Result<troupe::Dataset> test_batches(const Images& images);
