// SPDX-License-Identifier: Apache-2.0
// ByAddress: what was found last, by the address of what it was looked up with. A look costs a few instructions; of two
// addresses that share a place the later stays.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Of up to kPlaces keys, a power of two. A key's address may have become that of another one: who finds a value checks
/// that it is the right one. Not thread-safe.
template <class Key, class Value, size_t kPlaces = 256> class ByAddress {
 public:
  /// nullptr: not among them.
  Value* find(const Key& key) const {
    const Place& place = places_[place_of(key)];
    return place.key == &key ? place.value : nullptr;
  }
  /// The value stays where it is until clear().
  void keep(const Key& key, Value& value) { places_[place_of(key)] = {&key, &value}; }
  void clear() { places_.fill({}); }

 private:
  static_assert(kPlaces > 1 && (kPlaces & (kPlaces - 1)) == 0);
  struct Place {
    const Key* key = nullptr;
    Value* value = nullptr;
  };
  static size_t place_of(const Key& key) {
    return (reinterpret_cast<uintptr_t>(&key) * 0x9e3779b97f4a7c15) >> (64 - __builtin_ctzll(kPlaces));
  }
  std::array<Place, kPlaces> places_;
};

}  // namespace troupe
