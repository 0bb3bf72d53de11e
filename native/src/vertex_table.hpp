// Numbers for lattice points, in order of first appearance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "key_table.hpp"
#include "simplex.hpp"

namespace densecrf {

inline constexpr int kKnownBits = 12;  // of the number of simplices whose corners are kept

// For any coordinates. The usual dimensions are known to the compiler, as D; 0 stands for any.
template <int D>
class AnyVertices {
 public:
  using Keys = std::vector<std::int32_t>;  // d for each vertex

  AnyVertices(int d, std::size_t expected)
      : any_(d),
        table_(d, expected),
        known_(static_cast<std::size_t>(2 * (d + 1)) << kKnownBits, kNone) {}

  // The numbers of a simplex's corners. Pixels near each other often share one: the corners of
  // those met before are kept, with their signature.
  template <class Enclosing>
  void number(const Enclosing& simplex, std::int32_t* corner) {
    const int corners = d() + 1;
    std::uint32_t hash = 0;
    for (int i = 0; i < corners; ++i)
      hash = (hash ^ static_cast<std::uint32_t>(simplex.signature(i))) * 0x9E3779B1u;
    std::int32_t* known = known_.data() + std::size_t{hash >> (32 - kKnownBits)} * 2 * corners;
    bool same = true;
    for (int i = 0; i < corners; ++i) same = same && known[i] == simplex.signature(i);
    if (!same) {
      std::int32_t key[kMaxDimension];
      for (int k = 0; k < corners; ++k) {
        known[k] = simplex.signature(k);
        simplex.key(k, key);
        known[corners + k] = table_.insert(key);
      }
    }
    std::copy_n(known + corners, corners, corner);
  }
  // Those of other keys.
  std::vector<std::int32_t> number(const Keys& keys) {
    std::vector<std::int32_t> numbers(keys.size() / static_cast<std::size_t>(d()));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = table_.insert(keys.data() + i * static_cast<std::size_t>(d()));
    return numbers;
  }
  // The next vertex along an axis, or size().
  std::int32_t next(std::int32_t vertex, int axis) const {
    std::int32_t key[kMaxDimension];
    const std::int32_t* own = table_.key(static_cast<std::size_t>(vertex));
    for (int i = 0; i < d(); ++i) key[i] = own[i] - 1;
    if (axis < d()) key[axis] += d() + 1;
    return table_.find(key, size());
  }
  std::int32_t size() const { return static_cast<std::int32_t>(table_.size()); }
  const Keys& keys() const { return table_.keys(); }

 private:
  static constexpr std::int32_t kNone = INT32_MAX;  // farther than any coordinate
  int d() const { return D > 0 ? D : any_; }

  int any_;
  KeyTable<D> table_;
  std::vector<std::int32_t> known_;  // signature and corners of each
};

// For the usual dimensions and coordinates that are not too large: a key is one number, the sum of
// coordinate i times 2^(kBits i). No coordinate leaves its kBits bits, so that keys of corners and
// neighbours are sums, too.
template <int D>
class PackedVertices {
 public:
  using Keys = std::vector<std::uint64_t>;

  PackedVertices(int, std::size_t expected) : known_(std::size_t{1} << kKnownBits, {kNone, {}}) {
    std::size_t capacity = 64;
    while (capacity < 2 * expected) capacity *= 2;
    slots_.assign(capacity, Slot{kNone, 0});
  }

  // Whether lattice points whose coordinates are at most so large can be numbered, together with
  // their neighbours.
  static bool hold(double coordinate) {
    return coordinate + 3 * (D + 1) < std::ldexp(1.0, std::min(kBits, 31) - 1);
  }

  template <class Enclosing>
  void number(const Enclosing& simplex, std::int32_t* corner) {
    std::uint64_t key = kMiddle, signature = kMiddle, of_rank[D + 1] = {};
    for (int i = 0; i < D; ++i) {
      key += unit(i) * static_cast<std::uint64_t>(simplex.zero(i));
      signature += unit(i) * static_cast<std::uint64_t>(simplex.signature(i));
      of_rank[simplex.rank(i)] = unit(i) * (D + 1);
    }
    Known& known = known_[hash(signature) >> (64 - kKnownBits)];
    if (known.signature != signature) {
      known.signature = signature;
      for (int k = 0; k <= D; ++k) {
        known.corner[k] = insert(key);
        key += kOnes - of_rank[D - k];
      }
    }
    std::copy_n(known.corner, D + 1, corner);
  }
  std::vector<std::int32_t> number(const Keys& keys) {
    std::vector<std::int32_t> numbers(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) numbers[i] = insert(keys[i]);
    return numbers;
  }
  std::int32_t next(std::int32_t vertex, int axis) const {
    const std::uint64_t key =
        keys_[static_cast<std::size_t>(vertex)] - kOnes + (axis < D ? unit(axis) * (D + 1) : 0);
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? slot.number : size();
  }
  std::int32_t size() const { return static_cast<std::int32_t>(keys_.size()); }
  const Keys& keys() const { return keys_; }

 private:
  static constexpr int kBits = 64 / D;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no coordinate is that large
  struct Slot {
    std::uint64_t key;
    std::int32_t number;
  };
  struct Known {
    std::uint64_t signature;
    std::int32_t corner[D + 1];
  };

  static constexpr std::uint64_t unit(int i) { return std::uint64_t{1} << (kBits * i); }
  static constexpr std::uint64_t ones() {
    std::uint64_t sum = 0;
    for (int i = 0; i < D; ++i) sum += unit(i);
    return sum;
  }
  static constexpr std::uint64_t kOnes = ones();
  static constexpr std::uint64_t kMiddle = kOnes << (kBits - 1);  // makes coordinates positive

  // Every bit of the key reaches every bit of the hash, so that regular grids do not cluster.
  static std::uint64_t hash(std::uint64_t key) {
    key ^= key >> 32;
    key *= 0xD6E8FEB86659FD93ull;
    key ^= key >> 32;
    key *= 0xD6E8FEB86659FD93ull;
    return key ^ key >> 32;
  }

  // Where the key is, or is to be put.
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash(key) & mask;
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & mask;
    return at;
  }

  std::int32_t insert(std::uint64_t key) {
    std::size_t at = place(key);
    if (slots_[at].key == kNone) {
      if (keys_.size() >= INT32_MAX - 1) throw std::bad_alloc();
      if (2 * (keys_.size() + 1) > slots_.size()) {
        grow();
        at = place(key);
      }
      slots_[at] = {key, size()};
      keys_.push_back(key);
    }
    return slots_[at].number;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), Slot{kNone, 0});
    for (std::size_t i = 0; i < keys_.size(); ++i)
      slots_[place(keys_[i])] = {keys_[i], static_cast<std::int32_t>(i)};
  }

  std::vector<Slot> slots_;
  Keys keys_;
  std::vector<Known> known_;
};

}  // namespace densecrf
