// SPDX-License-Identifier: Apache-2.0
// Hash functions of strings that TensorFlow fixed for all time, so that buckets mean the same here: FarmHash's 64-bit
// fingerprint, SipHash-2-4 and MurmurHash64A. Ops: StringToHashBucketFast, StringToHashBucketStrong,
// StringToHashBucket, Fingerprint.
#include "ops/text/string_hash.h"
#include "ops/text/register.h"

#include <bit>
#include <cstring>

#include "base/murmur.h"
#include "ops/parts/type_dispatch.h"
#include "ops/text/string_map.h"

namespace troupe {
namespace {

uint64_t load64(const char* s) {
  uint64_t out;
  std::memcpy(&out, s, 8);
  return out;
}
uint64_t load32(const char* s) {
  uint32_t out;
  std::memcpy(&out, s, 4);
  return out;
}
/// The n < 8 bytes of s, the first lowest.
uint64_t load_tail(const char* s, size_t n) {
  uint64_t out = 0;
  std::memcpy(&out, s, n);
  return out;
}

// -- FarmHash (farmhashna) --------------------------------------------------------------------------------------------

constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127, kFarm1 = 0xb492b66fbe98f273, kFarm2 = 0x9ae16a3b2f90404f;

uint64_t mix_shift(uint64_t x) { return x ^ (x >> 47); }

uint64_t mix_two(uint64_t u, uint64_t v, uint64_t mul) { return mix_shift((v ^ mix_shift((u ^ v) * mul)) * mul) * mul; }

uint64_t farm_short(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2;
  if (n >= 8) {
    const uint64_t a = load64(s) + kFarm2, b = load64(s + n - 8);
    return mix_two(std::rotr(b, 37) * mul + a, (std::rotr(a, 25) + b) * mul, mul);
  }
  if (n >= 4) return mix_two(n + (load32(s) << 3), load32(s + n - 4), mul);
  if (n == 0) return kFarm2;
  const auto byte = [s](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
  const uint32_t y = byte(0) + (byte(n >> 1) << 8), z = static_cast<uint32_t>(n) + (byte(n - 1) << 2);
  return mix_shift(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

uint64_t farm_17_to_64(const char* s, size_t n) {
  const uint64_t mul = kFarm2 + n * 2, a = load64(s) * (n > 32 ? kFarm2 : kFarm1), b = load64(s + 8),
                 c = load64(s + n - 8) * mul, d = load64(s + n - 16) * kFarm2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d,
                 z = mix_two(y, a + std::rotr(b + kFarm2, 18) + c, mul);
  if (n <= 32) return z;
  const uint64_t e = load64(s + 16) * mul, f = load64(s + 24), g = (y + load64(s + n - 32)) * mul,
                 h = (z + load64(s + n - 24)) * mul;
  return mix_two(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, mul);
}

struct FarmState {
  uint64_t x = 81, y = 81 * kFarm1 + 113, z = mix_shift((81 * kFarm1 + 113) * kFarm2 + 113) * kFarm2;
  uint64_t v[2] = {0, 0}, w[2] = {0, 0};

  static void weak(const char* s, uint64_t a, uint64_t b, uint64_t* out) {
    a += load64(s);
    b = std::rotr(b + a + load64(s + 24), 21);
    const uint64_t c = a;
    a += load64(s + 8) + load64(s + 16);
    b += std::rotr(a, 44);
    out[0] = a + load64(s + 24);
    out[1] = b + c;
  }
  /// 64 bytes; the last ones count differently.
  void take(const char* s, uint64_t mul, uint64_t weight) {
    x = std::rotr(x + y + v[0] + load64(s + 8), 37) * mul;
    y = std::rotr(y + v[1] + load64(s + 48), 42) * mul;
    x ^= w[1] * weight;
    y += v[0] * weight + load64(s + 40);
    z = std::rotr(z + w[0], 33) * mul;
    weak(s, v[1] * mul, x + w[0], v);
    weak(s + 32, z + w[1], y + load64(s + 16), w);
    std::swap(z, x);
  }
};

}  // namespace

uint64_t farm_fingerprint(std::string_view text) {
  const char* s = text.data();
  const size_t n = text.size();
  if (n <= 16) return farm_short(s, n);
  if (n <= 64) return farm_17_to_64(s, n);
  FarmState f;
  f.x = f.x * kFarm2 + load64(s);
  const size_t left = (n - 1) & 63;
  const char* end = s + (n - 1) / 64 * 64;
  for (; s != end; s += 64) f.take(s, kFarm1, 1);
  const uint64_t mul = kFarm1 + ((f.z & 0xff) << 1);
  f.w[0] += left;
  f.v[0] += f.w[0];
  f.w[0] += f.v[0];
  f.take(end + left - 63, mul, 9);
  return mix_two(mix_two(f.v[0], f.w[0], mul) + mix_shift(f.y) * kFarm0 + f.z, mix_two(f.v[1], f.w[1], mul) + f.x, mul);
}

// -- SipHash-2-4 ------------------------------------------------------------------------------------------------------

uint64_t sip_hash(std::string_view text, uint64_t key0, uint64_t key1) {
  uint64_t v[4] = {key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
                   key1 ^ 0x7465646279746573};
  const auto round = [&v](int times) {
    for (int i = 0; i < times; ++i) {
      v[0] += v[1], v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0], v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[1], v[0] += v[3];
      v[1] = std::rotl(v[1], 17) ^ v[2], v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  };
  const auto take = [&](uint64_t word) {
    v[3] ^= word;
    round(2);
    v[0] ^= word;
  };
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) take(load64(text.data() + at));
  take(load_tail(text.data() + at, text.size() - at) | static_cast<uint64_t>(text.size()) << 56);
  v[2] ^= 0xff;
  round(4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

namespace {

/// The bucket that a hash falls in.
struct Buckets {
  explicit Buckets(const KernelInit& init) : number(static_cast<uint64_t>(init.attr<int64_t>("num_buckets"))) {}
  Status set(uint64_t hash, int64_t& bucket) const {
    bucket = static_cast<int64_t>(hash % number);
    return {};
  }
  const uint64_t number;
};
struct FastBucket : Buckets {
  using Buckets::Buckets;
  Status operator()(const std::string& x, int64_t& y) const { return set(farm_fingerprint(x), y); }
};
struct OldBucket : Buckets {
  using Buckets::Buckets;
  Status operator()(const std::string& x, int64_t& y) const { return set(murmur(x), y); }
};
struct StrongBucket : Buckets {
  explicit StrongBucket(const KernelInit& init) : Buckets(init) {
    const auto& key = init.attr<std::vector<int64_t>>("key");
    for (size_t i = 0; i < 2 && key.size() == 2; ++i) keys[i] = static_cast<uint64_t>(key[i]);
  }
  Status operator()(const std::string& x, int64_t& y) const { return set(sip_hash(x, keys[0], keys[1]), y); }
  uint64_t keys[2] = {0, 0};
};

Status strong_shape(ShapeContext& c) {
  if (const auto& key = c.attr<std::vector<int64_t>>("key"); key.size() != 2)
    return invalid_argument("key must be two numbers, got {}", key.size());
  return unchanged_shape(c);
}

/// The lowest byte first.
void append_bytes(uint64_t number, std::string& out) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

class Fingerprint final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    if (x.rank() == 0) return invalid_argument("data must have rank 1 or more, but its shape is []");
    TROUPE_ASSIGN(const std::string method, one_string(c.input(1), "method"));
    if (method != "farmhash64") return invalid_argument("method must be 'farmhash64', not '{}'", method);
    const int64_t rows = x.dim(0), each = rows > 0 ? x.elements() / rows : 0;
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kUInt8, Shape{rows, 8}));
    for (int64_t i = 0; i < rows; ++i) {
      std::string out;
      append_bytes(of_row(x, i * each, each), out);
      std::memcpy(y.mutable_data<uint8_t>() + i * 8, out.data(), 8);
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  /// Of the elements' bytes; of several strings that of their fingerprints.
  static uint64_t of_row(const Tensor& x, int64_t first, int64_t count) {
    if (x.dtype() != DType::kString) {
      const size_t size = size_of(x.dtype());
      const char* bytes = static_cast<const char*>(x.raw());
      return farm_fingerprint({bytes + static_cast<size_t>(first) * size, static_cast<size_t>(count) * size});
    }
    const std::string* strings = x.data<std::string>() + first;
    if (count == 1) return farm_fingerprint(*strings);
    std::string all;
    for (int64_t k = 0; k < count; ++k) append_bytes(farm_fingerprint(strings[k]), all);
    return farm_fingerprint(all);
  }
};

Status fingerprint_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0).status());
  c.set_output(0, PartialShape{x.has_rank() ? x.dim(0) : -1, 8});
  return {};
}

}  // namespace

void register_string_hash_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto op = [](const char* name, const char* input) {
    OpDef out(name);
    return out.input(input).output("output: int64").attr("num_buckets: int >= 1").shape(unchanged_shape);
  };
  ops.add(op("StringToHashBucketFast", "input: string")
              .doc("The string's FarmHash fingerprint modulo `num_buckets`: the same everywhere and for ever."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<StringMap<int64_t, FastBucket>>("StringToHashBucketFast", DeviceKind::kCpu, {});
  ops.add(
      op("StringToHashBucketStrong", "input: string")
          .attr("key: list(int)")
          .shape(strong_shape)
          .doc("The string's SipHash by the two numbers of `key` modulo `num_buckets`: whoever does not know the key "
               "cannot choose strings that fall together."),
      not_differentiable(kNoGradientOfStrings));
  kernels.add<StringMap<int64_t, StrongBucket>>("StringToHashBucketStrong", DeviceKind::kCpu, {});
  ops.add(op("StringToHashBucket", "string_tensor: string").doc("The string's MurmurHash64A modulo `num_buckets`."),
          not_differentiable(kNoGradientOfStrings));
  kernels.add<StringMap<int64_t, OldBucket>>("StringToHashBucket", DeviceKind::kCpu, {});
  const auto types = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, bool, complex64, complex128, std::string>{};
  ops.add(OpDef("Fingerprint")
              .input("data: T")
              .input("method: string")
              .output("fingerprint: uint8")
              .attr(type_attr("T", types))
              .shape(fingerprint_shape)
              .doc("The FarmHash fingerprint of the bytes of each row of data, the lowest byte first; of a row of "
                   "several strings that of their fingerprints. method must be 'farmhash64'."),
          not_differentiable("it gives hashes"));
  kernels.add<Fingerprint>("Fingerprint", DeviceKind::kCpu, {});
}

}  // namespace troupe
