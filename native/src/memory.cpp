#include "densecrf/memory.hpp"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define DENSECRF_MAPS 1
#endif

namespace densecrf {

namespace {

constexpr std::align_val_t kLine{64};
#if defined(DENSECRF_MAPS)
constexpr std::size_t kMapped = std::size_t{8} << 20;  // bytes from which arrays are mapped
#endif

}  // namespace

void* allocate(std::size_t bytes) {
#if defined(DENSECRF_MAPS)
  if (bytes >= kMapped) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    // Touching it for the first time is then several times faster, and so is walking through it in
    // no order. A hint: results do not depend on it.
    madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return data;
  }
#endif
  return ::operator new(bytes, kLine);
}

void release(void* data, std::size_t bytes) noexcept {
#if defined(DENSECRF_MAPS)
  if (bytes >= kMapped) {
    munmap(data, bytes);
    return;
  }
#endif
  (void)bytes;
  ::operator delete(data, kLine);
}

void give_back_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace densecrf
