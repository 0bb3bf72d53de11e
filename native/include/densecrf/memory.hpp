// Cache-line aligned arrays that are not zeroed on allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace densecrf {

// Memory aligned to cache lines. A large array is mapped on its own, so that the system has it back
// as soon as it is released, and on large pages where there are any.
void* allocate(std::size_t bytes);
void release(void* data, std::size_t bytes) noexcept;

// Lets the system have what the C library keeps of released memory, where it can be told to.
void give_back_free_memory();

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) { reset(size); }

  // Throws std::bad_alloc also where the size in bytes would overflow.
  void reset(std::int64_t size) {
    if (size < 0 || static_cast<std::uint64_t>(size) > PTRDIFF_MAX / sizeof(T) - 64)
      throw std::bad_alloc();
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T) + 64;
    data_ = {static_cast<T*>(allocate(bytes)), Free{bytes}};
    size_ = size;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(T* p) const { release(p, bytes); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
};

// Where a call leaves its workspace for the next one: fresh memory would have to be cleared by the
// system first. Holds one array of moderate size; a second call at the same time gets its own.
// Without a lock, so that a child made by fork() cannot find it taken for ever.
class BufferCache {
 public:
  static constexpr std::int64_t kUsual = 16 << 20, kMost = 64 << 20;  // bytes that may lie here

  BufferCache() = default;
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;
  ~BufferCache() { delete held_.load(); }

  Buffer<float> take(std::int64_t size) {
    const std::unique_ptr<Buffer<float>> held(held_.exchange(nullptr));
    return held && held->size() >= size ? std::move(*held) : Buffer<float>(size);
  }

  void clear() noexcept { delete held_.exchange(nullptr); }

  // Where it has more than `most` bytes, or there is no memory to keep it, it is freed instead.
  void give_back(Buffer<float> buffer, std::int64_t most = kUsual) noexcept {
    if (4 * buffer.size() > most) return;
    if (auto* kept = new (std::nothrow) Buffer<float>(std::move(buffer)))
      delete held_.exchange(kept);
  }

 private:
  std::atomic<Buffer<float>*> held_{nullptr};
};

}  // namespace densecrf
