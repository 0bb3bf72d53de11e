#include "densecrf/memory.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace densecrf {

void advise_huge_pages(void* data, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  (void)madvise(data, bytes, MADV_HUGEPAGE);  // a wish: nothing depends on its being granted
#else
  (void)data;
  (void)bytes;
#endif
}

Buffer<float> BufferPool::take(std::int64_t size) {
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) {
    for (auto& buffer : kept_) {
      if (buffer.size() < size || buffer.size() > 2 * size) continue;
      std::swap(buffer, kept_.back());
      Buffer<float> found = std::move(kept_.back());
      kept_.pop_back();
      return found;
    }
  }
  return Buffer<float>(size);
}

void BufferPool::give(Buffer<float> buffer) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (kept_.size() >= kMost) kept_.erase(kept_.begin());
  kept_.push_back(std::move(buffer));
}

}  // namespace densecrf
