// SPDX-License-Identifier: Apache-2.0
#include "io/inflate.h"

#include <zlib.h>

#include <algorithm>

namespace troupe {

Result<std::string> inflated(std::string_view bytes, bool gzip, uint64_t most) {
  constexpr int kGzip = 16;  // added to the size of the window, as zlib wants it
  struct Stream {
    z_stream z = {};
    ~Stream() { inflateEnd(&z); }
  } stream;
  if (inflateInit2(&stream.z, MAX_WBITS + (gzip ? kGzip : 0)) != Z_OK)
    return make_error(Code::kResourceExhausted, "no memory to inflate {} bytes", bytes.size());
  constexpr size_t kPiece = size_t{1} << 16;
  std::string out;
  size_t taken = 0, made = 0;
  for (;;) {
    out.resize(made + kPiece);
    const auto give = static_cast<uInt>(std::min(bytes.size() - taken, size_t{1} << 30));
    stream.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));  // zlib does not write there
    stream.z.avail_in = give;
    stream.z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    stream.z.avail_out = kPiece;
    const int code = ::inflate(&stream.z, Z_NO_FLUSH);
    taken += give - stream.z.avail_in;
    made += kPiece - stream.z.avail_out;
    if (made > most) return make_error(Code::kResourceExhausted, "inflates to more than {} bytes", most);
    if (code == Z_STREAM_END) {
      if (!gzip || !bytes.substr(taken).starts_with("\x1f\x8b") || inflateReset(&stream.z) != Z_OK) break;
    } else if (code != Z_OK) {
      return make_error(Code::kDataLoss, "not {} data, or damaged, at byte {} of {}", gzip ? "gzip" : "zlib", taken,
                        bytes.size());
    }
  }
  out.resize(made);
  return out;
}

}  // namespace troupe
