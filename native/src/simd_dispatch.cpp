#include "simd/row_kernels.hpp"

#include <atomic>
#include <cstring>

#include "simd/pixel_kernels.hpp"
#include "simd/simplex_kernels.hpp"

#if defined(_MSC_VER)
#include <windows.h>
#endif

namespace densecrf {

#if defined(DENSECRF_HAVE_SSE2)
extern const RowKernels row_kernels_sse2;
extern const PixelKernels pixel_kernels_sse2;
extern const SimplexKernels simplex_kernels_sse2;
#else
extern const RowKernels row_kernels_base;
extern const PixelKernels pixel_kernels_base;
extern const SimplexKernels simplex_kernels_base;
#endif
#if defined(DENSECRF_HAVE_AVX2)
extern const RowKernels row_kernels_avx2;
extern const PixelKernels pixel_kernels_avx2;
extern const SimplexKernels simplex_kernels_avx2;
#endif
#if defined(DENSECRF_HAVE_AVX512)
extern const RowKernels row_kernels_avx512;
extern const PixelKernels pixel_kernels_avx512;
extern const SimplexKernels simplex_kernels_avx512;
#endif

namespace {

#if defined(DENSECRF_HAVE_AVX2) && defined(_MSC_VER) && !defined(__clang__)
bool has_avx2() {
  return IsProcessorFeaturePresent(PF_AVX2_INSTRUCTIONS_AVAILABLE);
}
bool has_avx512() {
  return IsProcessorFeaturePresent(PF_AVX512F_INSTRUCTIONS_AVAILABLE);
}
#elif defined(DENSECRF_HAVE_AVX2)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
#endif

// The loops of one instruction set.
struct Kernels {
  const RowKernels& rows;
  const PixelKernels& pixels;
  const SimplexKernels& simplices;
};

#if defined(DENSECRF_HAVE_SSE2)
constexpr Kernels kEverywhere{row_kernels_sse2, pixel_kernels_sse2, simplex_kernels_sse2};
#else
constexpr Kernels kEverywhere{row_kernels_base, pixel_kernels_base, simplex_kernels_base};
#endif
#if defined(DENSECRF_HAVE_AVX2)
constexpr Kernels kAvx2{row_kernels_avx2, pixel_kernels_avx2, simplex_kernels_avx2};
#endif
#if defined(DENSECRF_HAVE_AVX512)
constexpr Kernels kAvx512{row_kernels_avx512, pixel_kernels_avx512, simplex_kernels_avx512};
#endif

const Kernels* supported(const char* wanted) {
  const auto matches = [&](const char* isa) {
    return *wanted == '\0' || std::strcmp(wanted, isa) == 0;
  };
#if defined(DENSECRF_HAVE_AVX512)
  if (matches("avx512") && has_avx512()) return &kAvx512;
#endif
#if defined(DENSECRF_HAVE_AVX2)
  if (matches("avx2") && has_avx2()) return &kAvx2;
#endif
  return matches(kEverywhere.rows.isa) ? &kEverywhere : nullptr;
}

std::atomic<const Kernels*> selected{nullptr};

const Kernels& kernels() {
  const Kernels* current = selected.load(std::memory_order_acquire);
  if (!current) selected.store(current = supported(""), std::memory_order_release);
  return *current;
}

}  // namespace

const RowKernels& row_kernels() {
  return kernels().rows;
}

const PixelKernels& pixel_kernels() {
  return kernels().pixels;
}

const SimplexKernels& simplex_kernels() {
  return kernels().simplices;
}

bool select_isa(const char* isa) {
  const Kernels* found = supported(isa);
  if (found) selected.store(found, std::memory_order_release);
  return found != nullptr;
}

}  // namespace densecrf
