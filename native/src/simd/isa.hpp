// What the files of this folder share, which are compiled once for each instruction set;
// DENSECRF_ISA names it. Nothing here or there may be an inline function that other files use too:
// the linker would merge the copies, and the wide one might win. Hence unnamed namespaces.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define DENSECRF_INLINE __attribute__((always_inline)) inline
#else
#define DENSECRF_INLINE inline
#endif
#define DENSECRF_STRING_(x) #x
#define DENSECRF_STRING(x) DENSECRF_STRING_(x)
#define DENSECRF_CONCAT_(a, b) a##b
#define DENSECRF_CONCAT(a, b) DENSECRF_CONCAT_(a, b)

// A loop over pixels, whose iterations do not depend on each other, whatever the pointers.
#if defined(__clang__)
#define DENSECRF_EACH(a, count) \
  _Pragma("clang loop vectorize(assume_safety)") for (int a = 0; a < (count); ++a)
#elif defined(__GNUC__)
#define DENSECRF_EACH(a, count) _Pragma("GCC ivdep") for (int a = 0; a < (count); ++a)
#else
#define DENSECRF_EACH(a, count) for (int a = 0; a < (count); ++a)
#endif
