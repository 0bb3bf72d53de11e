#include "densecrf/rows.hpp"

#include <atomic>
#include <cstring>

namespace densecrf {

extern const Rows rows_baseline;
#if defined(DENSECRF_HAVE_AVX2)
extern const Rows rows_avx2;
#endif
#if defined(DENSECRF_HAVE_AVX512)
extern const Rows rows_avx512;
#endif

namespace {

const Rows* supported(const char* wanted) {
  const auto matches = [&](const char* isa) {
    return *wanted == '\0' || std::strcmp(wanted, isa) == 0;
  };
#if defined(DENSECRF_HAVE_AVX512)
  if (matches("avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    return &rows_avx512;
#endif
#if defined(DENSECRF_HAVE_AVX2)
  if (matches("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &rows_avx2;
#endif
  return matches("baseline") ? &rows_baseline : nullptr;
}

std::atomic<const Rows*> selected{nullptr};

}  // namespace

const Rows& rows() {
  const Rows* current = selected.load(std::memory_order_acquire);
  if (!current) selected.store(current = supported(""), std::memory_order_release);
  return *current;
}

bool select_rows(const char* isa) {
  const Rows* found = supported(isa);
  if (found) selected.store(found, std::memory_order_release);
  return found != nullptr;
}

}  // namespace densecrf
