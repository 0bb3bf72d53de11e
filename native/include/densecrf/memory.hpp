// Cache-line aligned arrays that are not zeroed on allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace densecrf {

inline constexpr std::size_t kHugePage = std::size_t{1} << 21;

// Asks for large pages where the system has them: rows of a large lattice are visited in random
// order, and with small pages every visit would also look up a page.
void advise_huge_pages(void* data, std::size_t bytes);

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) { reset(size); }

  // Throws std::bad_alloc also where the size in bytes would overflow.
  void reset(std::int64_t size) {
    if (size < 0 || static_cast<std::uint64_t>(size) > PTRDIFF_MAX / sizeof(T) - 64)
      throw std::bad_alloc();
    data_.reset(static_cast<T*>(
        ::operator new(static_cast<std::size_t>(size) * sizeof(T) + 64, std::align_val_t{64})));
    size_ = size;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    std::size_t alignment = 64;
    void operator()(T* p) const { ::operator delete(p, std::align_val_t{alignment}); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

// Keeps a few buffers for the next call, since fresh pages cost as much as filtering does. Safe to
// use from several threads, and after fork(): where the lock is taken, nothing is kept.
class BufferPool {
 public:
  Buffer<float> take(std::int64_t size);
  void give(Buffer<float> buffer);

 private:
  static constexpr std::size_t kMost = 4;
  std::mutex mutex_;
  std::vector<Buffer<float>> kept_;
};

// A buffer of a pool, given back at the end.
class Borrowed {
 public:
  Borrowed(BufferPool& pool, std::int64_t size) : pool_(pool), buffer_(pool.take(size)) {}
  ~Borrowed() { pool_.give(std::move(buffer_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  float* data() { return buffer_.data(); }

 private:
  BufferPool& pool_;
  Buffer<float> buffer_;
};

}  // namespace densecrf
