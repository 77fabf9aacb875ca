// SPDX-License-Identifier: Apache-2.0
// Reading trusts the central directory only as far as it agrees with the archive's length; writing always uses the
// ZIP64 form, so that there is one path for all sizes.
#include "io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <exception>
#include <optional>

namespace troupe {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kLocator64Size = 20, kEnd64Size = 56;

/// Little-endian numbers at offsets that the caller has checked.
uint64_t number(std::string_view bytes, uint64_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}
uint32_t u16(std::string_view b, uint64_t at) { return static_cast<uint32_t>(number(b, at, 2)); }
uint32_t u32(std::string_view b, uint64_t at) { return static_cast<uint32_t>(number(b, at, 4)); }
uint64_t u64(std::string_view b, uint64_t at) { return number(b, at, 8); }

void put(std::string& out, uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i));
}

bool fits(std::string_view bytes, uint64_t at, uint64_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

struct Member {
  std::string name;
  uint32_t method = 0, crc = 0;
  uint64_t packed = 0, size = 0, local = 0;
};

/// A run of zlib, ended at the end of its scope. Buffers longer than zlib's 32-bit counts are handed over in pieces.
class Deflater {
 public:
  explicit Deflater(bool inflating) : inflating_(inflating) {
    const int code = inflating
                         ? inflateInit2(&stream_, -MAX_WBITS)
                         : deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    open_ = code == Z_OK;
  }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater() {
    if (open_) inflating_ ? inflateEnd(&stream_) : deflateEnd(&stream_);
  }

  /// Runs `in` through into `out`, which has room for the result: the bytes made, nothing when the stream is broken or
  /// does not end with the input.
  std::optional<uint64_t> run(std::string_view in, std::string& out) {
    if (!open_) return std::nullopt;
    constexpr uint64_t kPiece = 1u << 30;
    uint64_t taken = 0, made = 0;
    for (;;) {
      const auto give = static_cast<uInt>(std::min(kPiece, in.size() - taken));
      const auto room = static_cast<uInt>(std::min(kPiece, out.size() - made));
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data() + taken));  // zlib does not write there
      stream_.avail_in = give;
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + made);
      stream_.avail_out = room;
      const int flush = !inflating_ && taken + give == in.size() ? Z_FINISH : Z_NO_FLUSH;
      const int code = inflating_ ? ::inflate(&stream_, flush) : ::deflate(&stream_, flush);
      const uint64_t eaten = give - stream_.avail_in, grown = room - stream_.avail_out;
      taken += eaten;
      made += grown;
      if (code == Z_STREAM_END) return taken == in.size() ? std::optional(made) : std::nullopt;
      if (code != Z_OK || (eaten == 0 && grown == 0)) return std::nullopt;
    }
  }

 private:
  bool inflating_;
  bool open_ = false;
  z_stream stream_ = {};
};

uint32_t crc_of(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Reads one archive.
class ZipReader {
 public:
  ZipReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Result<ZipMembers> read() {
    TROUPE_RETURN_IF_ERROR(find_directory());
    ZipMembers out;
    uint64_t at = directory_, packed = 0;
    for (uint64_t i = 0; i < count_; ++i) {
      TROUPE_ASSIGN(const Member member, read_entry(at));
      // Members that share bytes would multiply what a small archive unpacks to.
      packed += member.packed;
      if (packed > bytes_.size()) return damaged("members overlap");
      TROUPE_ASSIGN(std::string data, unpack(member));
      out.emplace_back(member.name, std::move(data));
    }
    return out;
  }

 private:
  template <class... Args> Error damaged(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(Code::kDataLoss, "'{}' is not a sound zip archive: {}", path_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

  Status find_directory() {
    if (bytes_.size() < kEndSize) return damaged("{} bytes are too few", bytes_.size());
    const uint64_t last = bytes_.size() - kEndSize, first = last > 65535 ? last - 65535 : 0;
    uint64_t end = last + 1;
    do {
      if (end == first) return damaged("it has no end record: truncated?");
      --end;
    } while (u32(bytes_, end) != kEnd || end + kEndSize + u16(bytes_, end + 20) != bytes_.size());
    count_ = u16(bytes_, end + 10);
    directory_ = u32(bytes_, end + 16);
    if (end >= kLocator64Size && u32(bytes_, end - kLocator64Size) == kLocator64) {
      const uint64_t end64 = u64(bytes_, end - kLocator64Size + 8);
      if (!fits(bytes_, end64, kEnd64Size) || u32(bytes_, end64) != kEnd64) return damaged("broken ZIP64 end record");
      count_ = u64(bytes_, end64 + 32);
      directory_ = u64(bytes_, end64 + 48);
    }
    if (directory_ > end || count_ > (end - directory_) / kCentralSize)
      return damaged("a directory of {} members at offset {}", count_, directory_);
    return {};
  }

  /// The directory's entry at `at`, which moves on behind it.
  Result<Member> read_entry(uint64_t& at) const {
    if (!fits(bytes_, at, kCentralSize) || u32(bytes_, at) != kCentral)
      return damaged("no directory entry at offset {}", at);
    const uint64_t name_size = u16(bytes_, at + 28), extra_size = u16(bytes_, at + 30),
                   note_size = u16(bytes_, at + 32);
    if (!fits(bytes_, at + kCentralSize, name_size + extra_size + note_size))
      return damaged("truncated directory entry at offset {}", at);
    Member m;
    m.name = bytes_.substr(at + kCentralSize, name_size);
    if (u16(bytes_, at + 8) & 1)
      return make_error(Code::kUnimplemented, "'{}': member '{}' is encrypted", path_, m.name);
    m.method = u16(bytes_, at + 10);
    m.crc = u32(bytes_, at + 16);
    m.packed = u32(bytes_, at + 20);
    m.size = u32(bytes_, at + 24);
    m.local = u32(bytes_, at + 42);
    if (!read_extra(bytes_.substr(at + kCentralSize + name_size, extra_size), m))
      return damaged("broken ZIP64 field of '{}'", m.name);
    at += kCentralSize + name_size + extra_size + note_size;
    return m;
  }

  /// Takes the 64-bit values that stand in for those that are all ones.
  static bool read_extra(std::string_view extra, Member& m) {
    while (extra.size() >= 4) {
      const uint64_t id = u16(extra, 0), size = u16(extra, 2);
      if (!fits(extra, 4, size)) return false;
      std::string_view field = extra.substr(4, size);
      if (id == 1) {
        for (uint64_t* value : {&m.size, &m.packed, &m.local}) {
          if (*value != UINT32_MAX) continue;
          if (field.size() < 8) return false;
          *value = u64(field, 0);
          field.remove_prefix(8);
        }
      }
      extra.remove_prefix(4 + size);
    }
    return true;
  }

  Result<std::string> unpack(const Member& m) const {
    if (!fits(bytes_, m.local, kLocalSize) || u32(bytes_, m.local) != kLocal)
      return damaged("no member '{}' at offset {}", m.name, m.local);
    const uint64_t begin = m.local + kLocalSize + u16(bytes_, m.local + 26) + u16(bytes_, m.local + 28);
    if (!fits(bytes_, begin, m.packed)) return damaged("member '{}' of {} bytes is truncated", m.name, m.packed);
    const std::string_view packed = bytes_.substr(begin, m.packed);
    std::string data;
    if (m.method == 0) {
      data = packed;
    } else if (m.method == 8) {
      if (m.size / 1032 > m.packed)
        return damaged("member '{}' claims to unpack {} bytes to {}", m.name, m.packed, m.size);
      try {
        data.resize(m.size);
      } catch (const std::exception&) {
        return make_error(Code::kResourceExhausted, "'{}': no memory for the {} bytes of member '{}'", path_, m.size,
                          m.name);
      }
      const auto made = Deflater(true).run(packed, data);
      if (!made || *made != m.size) return damaged("member '{}' does not inflate to its {} bytes", m.name, m.size);
    } else {
      return make_error(Code::kUnimplemented, "'{}': member '{}' has compression method {}", path_, m.name, m.method);
    }
    if (data.size() != m.size) return damaged("member '{}' has {} bytes, not {}", m.name, data.size(), m.size);
    if (const uint32_t crc = crc_of(data); crc != m.crc)
      return damaged("the check sum of member '{}' is {:08x}, not {:08x}", m.name, crc, m.crc);
    return data;
  }

  std::string_view bytes_;
  const std::string& path_;
  uint64_t count_ = 0, directory_ = 0;
};

/// The fields that a member's local header and its directory entry share: from "version needed" to the extra's length.
void put_fields(std::string& out, const Member& m, uint64_t extra_size) {
  put(out, 45, 2);       // needs ZIP64
  put(out, 1 << 11, 2);  // the name is UTF-8
  put(out, m.method, 2);
  put(out, 0, 2);     // time
  put(out, 0x21, 2);  // 1 January 1980
  put(out, m.crc, 4);
  put(out, UINT32_MAX, 4);
  put(out, UINT32_MAX, 4);
  put(out, m.name.size(), 2);
  put(out, extra_size, 2);
}

}  // namespace

Result<ZipMembers> read_zip(std::string_view archive, const std::string& path) {
  return ZipReader(archive, path).read();
}

Result<std::string> write_zip(const ZipMembers& members, bool compress) {
  std::string out, directory;
  for (const auto& [name, data] : members) {
    if (name.size() > UINT16_MAX) return invalid_argument("a name of {} bytes in a zip archive", name.size());
    Member m{name, compress ? 8u : 0u, crc_of(data), data.size(), data.size(), out.size()};
    std::string packed;
    if (compress) {
      packed.resize(data.size() + data.size() / 1000 + 64);  // more than deflate's worst case
      const auto made = Deflater(false).run(data, packed);
      if (!made) return make_error(Code::kInternal, "zlib cannot deflate '{}'", name);
      packed.resize(*made);
      m.packed = *made;
    }
    put(out, kLocal, 4);
    put_fields(out, m, 20);
    out += name;
    put(out, 1, 2), put(out, 16, 2), put(out, m.size, 8), put(out, m.packed, 8);
    out += compress ? packed : data;

    put(directory, kCentral, 4);
    put(directory, 45, 2);
    put_fields(directory, m, 28);
    put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 4);
    put(directory, UINT32_MAX, 4);
    directory += name;
    put(directory, 1, 2), put(directory, 24, 2), put(directory, m.size, 8), put(directory, m.packed, 8);
    put(directory, m.local, 8);
  }
  const uint64_t begin = out.size();
  out += directory;
  const uint64_t end64 = out.size();
  put(out, kEnd64, 4), put(out, kEnd64Size - 12, 8), put(out, 45, 2), put(out, 45, 2), put(out, 0, 4), put(out, 0, 4);
  put(out, members.size(), 8), put(out, members.size(), 8), put(out, directory.size(), 8), put(out, begin, 8);
  put(out, kLocator64, 4), put(out, 0, 4), put(out, end64, 8), put(out, 1, 4);
  put(out, kEnd, 4), put(out, 0, 4), put(out, UINT16_MAX, 2), put(out, UINT16_MAX, 2);
  put(out, UINT32_MAX, 4), put(out, UINT32_MAX, 4), put(out, 0, 2);
  return out;
}

}  // namespace troupe
