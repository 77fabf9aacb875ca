// SPDX-License-Identifier: Apache-2.0
// TensorFlow's checkpoints of the second format ("tensor bundles"): PREFIX.index, a sorted table that says of each
// tensor its type, shape and place, and the data in PREFIX.data-00000-of-00002, ...
//
// The index has the key "" for a BundleHeader and names for BundleEntries. A tensor in parts has an entry without data
// that lists the parts; each part has an entry under key_of_part(). Data: the elements' bytes; of texts their lengths
// as varints, the masked CRC-32C of the lengths, their bytes.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/saved_parts.h"

namespace troupe {

/// "model" to "model.index".
std::string bundle_index(const std::string& prefix);
/// "model" to "model.data-00001-of-00002".
std::string bundle_data(const std::string& prefix, int64_t shard, int64_t shards);
/// The prefix of a path of an index or of data; "" for another path.
std::string bundle_prefix(const std::string& path);

/// Opens a bundle by its prefix. The index is checked, the data as they are read. Errors: kNotFound; kDataLoss;
/// kUnimplemented for bundles of big-endian machines and of later versions of the format.
Result<std::unique_ptr<PartSource>> open_bundle(const FileAccess& access, const std::string& prefix);

/// Writes a bundle of one shard. Values are asked for one after another, in order. An older bundle of the prefix stays
/// until the new one is whole and on the disk: the data get a name of their own first (..-of-00002 where -of-00001 is
/// there), and the index, which is replaced in one step, says which. Errors: kInvalidArgument for a name given twice,
/// the name
/// "", parts that overlap or disagree, and types that have no place in a file; what values and the system say. On an
/// error nothing has changed.
Status write_bundle(const FileAccess& access, const std::string& prefix, std::span<const TensorToSave> tensors);

/// Makes one bundle of several, whose data stay as they are: they get other names, or are copied where the file system
/// cannot name a file twice. Parts of a tensor come together. Then the several go, also those that are the result's
/// former self. With `may_miss` some of them need not be there, but one. Errors: those of open_bundle();
/// kInvalidArgument for a tensor that two have, or whose parts disagree. On an error nothing has changed.
Status merge_bundles(const FileAccess& access, std::span<const std::string> prefixes, const std::string& destination,
                     bool may_miss);

}  // namespace troupe
