// A hash table from integer keys of fixed length to consecutive ids, in order of insertion.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace densecrf {

// The usual lengths are known to the compiler, as Length; 0 stands for any.
template <int Length>
class KeyTable {
 public:
  explicit KeyTable(int length, std::size_t expected = 64) : any_(length) {
    std::size_t capacity = 64;
    while (capacity < 2 * expected) capacity *= 2;
    slots_.assign(capacity, Slot{0, kEmpty});
  }

  // Every bit of every coordinate reaches every bit of the hash (multiply-fold, as in wyhash), so
  // regular grids of keys do not cluster.
  std::uint64_t hash(const std::int32_t* key) const {
    std::uint64_t h = 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < length(); ++i) {
      h ^= static_cast<std::uint32_t>(key[i]);
      h *= 0xD6E8FEB86659FD93ull;
      h ^= h >> 32;
    }
    return h;
  }

  std::int32_t insert(const std::int32_t* key) {
    if (2 * (size() + 1) > slots_.size()) grow();
    const std::uint64_t h = hash(key);
    std::size_t at = locate(key, h);
    if (slots_[at].id == kEmpty) {
      if (size() >= INT32_MAX - 1) throw std::bad_alloc();
      slots_[at] = {static_cast<std::uint32_t>(h), static_cast<std::int32_t>(size())};
      keys_.insert(keys_.end(), key, key + length());
    }
    return slots_[at].id;
  }

  // The key's id, or `absent`.
  std::int32_t find(const std::int32_t* key, std::int32_t absent) const {
    const Slot& slot = slots_[locate(key, hash(key))];
    return slot.id == kEmpty ? absent : slot.id;
  }

  std::size_t size() const { return keys_.size() / static_cast<std::size_t>(length()); }
  const std::int32_t* key(std::size_t id) const { return keys_.data() + id * length(); }
  const std::vector<std::int32_t>& keys() const { return keys_; }
  void clear() {
    std::fill(slots_.begin(), slots_.end(), Slot{0, kEmpty});
    keys_.clear();
  }

 private:
  static constexpr std::int32_t kEmpty = -1;
  struct Slot {
    std::uint32_t tag;  // low bits of the hash: most mismatches never touch the key
    std::int32_t id;
  };

  int length() const { return Length > 0 ? Length : any_; }

  bool same(const std::int32_t* a, const std::int32_t* b) const {
    std::int32_t different = 0;
    for (int i = 0; i < length(); ++i) different |= a[i] ^ b[i];
    return different == 0;
  }

  std::size_t locate(const std::int32_t* wanted, std::uint64_t h) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (h >> 20) & mask;
    const auto tag = static_cast<std::uint32_t>(h);
    while (slots_[at].id != kEmpty) {
      if (slots_[at].tag == tag && same(wanted, key(slots_[at].id))) break;
      at = (at + 1) & mask;
    }
    return at;
  }

  void grow() {
    std::vector<Slot> larger(2 * slots_.size(), Slot{0, kEmpty});
    const std::size_t mask = larger.size() - 1;
    for (std::size_t id = 0; id < size(); ++id) {
      const std::uint64_t h = hash(key(id));
      std::size_t at = (h >> 20) & mask;
      while (larger[at].id != kEmpty) at = (at + 1) & mask;
      larger[at] = {static_cast<std::uint32_t>(h), static_cast<std::int32_t>(id)};
    }
    slots_.swap(larger);
  }

  int any_;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> keys_;
};

}  // namespace densecrf
