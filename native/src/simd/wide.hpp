// Vectors of floats: arithmetic, groups of labels side by side, and planes turned into rows.
#pragma once

#include <cstring>
#include <utility>

#include "simd/isa.hpp"
#include "simd/row_kernels.hpp"

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than the ABI's never leave their file
#endif

namespace densecrf {
namespace {

// W numbers in a register (or several): GNU vectors where there are any, else an array that the
// compiler may vectorise.
template <int W, class Real = float>
struct Vec {
#if defined(__GNUC__) || defined(__clang__)
  typedef Real Native __attribute__((vector_size(W * sizeof(Real))));
  Native v;
  DENSECRF_INLINE static Vec fill(Real x) { return {x - Native{}}; }
  DENSECRF_INLINE friend Vec operator+(const Vec& a, const Vec& b) { return {a.v + b.v}; }
  DENSECRF_INLINE friend Vec operator-(const Vec& a, const Vec& b) { return {a.v - b.v}; }
  DENSECRF_INLINE friend Vec operator*(const Vec& a, const Vec& b) { return {a.v * b.v}; }
  DENSECRF_INLINE friend Vec clamp01(const Vec& a) {
    const Native zero = {}, one = fill(1).v;
    const Native positive = a.v > zero ? a.v : zero;
    return {positive < one ? positive : one};
  }
#else
  Real v[W];
  static Vec fill(Real x) {
    Vec r;
    for (Real& e : r.v) e = x;
    return r;
  }
  template <class F>
  static Vec zip(const Vec& a, const Vec& b, F f) {
    Vec r;
    for (int i = 0; i < W; ++i) r.v[i] = f(a.v[i], b.v[i]);
    return r;
  }
  friend Vec operator+(Vec a, Vec b) {
    return zip(a, b, [](Real x, Real y) { return x + y; });
  }
  friend Vec operator-(Vec a, Vec b) {
    return zip(a, b, [](Real x, Real y) { return x - y; });
  }
  friend Vec operator*(Vec a, Vec b) {
    return zip(a, b, [](Real x, Real y) { return x * y; });
  }
  friend Vec clamp01(Vec a) {
    return zip(a, a, [](Real x, Real) { return x < 0 ? Real{0} : x > 1 ? Real{1} : x; });
  }
#endif
  DENSECRF_INLINE static Vec load(const Real* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  DENSECRF_INLINE void store(Real* p) const { std::memcpy(p, &v, sizeof v); }
};

constexpr int kWide = RowKernels::kVector;
using Wide = Vec<kWide>;

// Element i of the result is number Source::of(i) of a followed by b.
template <class Source, int... I>
DENSECRF_INLINE Wide permute(const Wide& a, const Wide& b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return {__builtin_shufflevector(a.v, b.v, Source::of(I)...)};
#elif defined(__GNUC__)
  typedef int Indices __attribute__((vector_size(kWide * sizeof(int))));
  return {__builtin_shuffle(a.v, b.v, Indices{Source::of(I)...})};
#else
  Wide r;
  for (int i : {I...})
    r.v[i] = Source::of(i) < kWide ? a.v[Source::of(i)] : b.v[Source::of(i) - kWide];
  return r;
#endif
}
template <class Source>
DENSECRF_INLINE Wide permute(const Wide& a, const Wide& b) {
  return permute<Source>(a, b, std::make_integer_sequence<int, kWide>{});
}

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
// A vector twice.
template <int W, int... I>
DENSECRF_INLINE Vec<2 * W> doubled(const Vec<W>& a, std::integer_sequence<int, I...>) {
  return {__builtin_shufflevector(a.v, a.v, I..., I...)};
}
template <int W>
DENSECRF_INLINE Vec<2 * W> doubled(const Vec<W>& a) {
  return doubled(a, std::make_integer_sequence<int, W>{});
}
#endif

// A wide vector holds kWide / Lanes groups of Lanes labels.
template <int Lanes>
struct Groups {
  struct Repeat {
    static constexpr int of(int i) { return i % Lanes; }
  };
  struct Up {
    static constexpr int of(int i) { return i < Lanes ? kWide + i : i - Lanes; }
  };
  struct Down {
    static constexpr int of(int i) { return i + Lanes; }
  };

  // The labels at p, in each group. (Floats behind them may be read, and are dropped.)
  DENSECRF_INLINE static Wide repeat(const float* p) {
    if constexpr (Lanes == 1) return Wide::fill(*p);
    if constexpr (Lanes == kWide) return Wide::load(p);
#if defined(__clang__) || defined(__GNUC__)
    if constexpr (Lanes == 2) {  // both as one number
      typedef long long Pairs __attribute__((vector_size(kWide * sizeof(float))));
      long long pair;
      std::memcpy(&pair, p, sizeof pair);
      const Pairs pairs = pair + Pairs{};
      Wide wide;
      std::memcpy(&wide.v, &pairs, sizeof wide.v);
      return wide;
    }
#endif
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
    if constexpr (Lanes == 4)  // in two steps: in one, compilers go through memory
      return doubled(doubled(Vec<4>::load(p)));
    if constexpr (Lanes == 8) return doubled(Vec<8>::load(p));
#else
    const Wide some = Wide::load(p);
    return permute<Repeat>(some, some);
#endif
  }
  // Each group's number.
  DENSECRF_INLINE static Wide number() {
    float numbers[kWide];
    for (int i = 0; i < kWide; ++i) numbers[i] = static_cast<float>(i / Lanes);
    return Wide::load(numbers);
  }
  // Each group moves one up, or down; `first` is the new first group, zeros the new last.
  DENSECRF_INLINE static Wide up(const Wide& a, const Wide& first) { return permute<Up>(a, first); }
  DENSECRF_INLINE static Wide down(const Wide& a) { return permute<Down>(a, Wide::fill(0)); }
  // The sum of the groups, in the first.
  DENSECRF_INLINE static Wide sum(Wide a) {
    if constexpr (Lanes <= 8) a = a + permute<Half<8>>(a, a);
    if constexpr (Lanes <= 4) a = a + permute<Half<4>>(a, a);
    if constexpr (Lanes <= 2) a = a + permute<Half<2>>(a, a);
    if constexpr (Lanes <= 1) a = a + permute<Half<1>>(a, a);
    return a;
  }

 private:
  template <int Distance>
  struct Half {
    static constexpr int of(int i) { return (i + Distance) % kWide; }
  };
};

struct LowerHalves {  // of two vectors, element by element
  static constexpr int of(int i) { return i / 2 + i % 2 * kWide; }
};
struct UpperHalves {
  static constexpr int of(int i) { return kWide / 2 + LowerHalves::of(i); }
};
struct Even {
  static constexpr int of(int i) { return 2 * i; }
};
struct Odd {
  static constexpr int of(int i) { return 2 * i + 1; }
};

// Width planes of kWide pixels become the rows of these pixels. A step moves the highest bit of the
// vector's number into the lane's number, and the lane's highest bit into the vector's.
template <int Width>
DENSECRF_INLINE void planes_to_rows(Wide* v) {
  for (int step = 1; step < Width; step *= 2) {
    Wide next[Width];
    for (int i = 0; i < Width / 2; ++i) {
      next[2 * i] = permute<LowerHalves>(v[i], v[i + Width / 2]);
      next[2 * i + 1] = permute<UpperHalves>(v[i], v[i + Width / 2]);
    }
    for (int i = 0; i < Width; ++i) v[i] = next[i];
  }
}
template <int Width>
DENSECRF_INLINE void rows_to_planes(Wide* v) {
  for (int step = 1; step < Width; step *= 2) {
    Wide next[Width];
    for (int i = 0; i < Width / 2; ++i) {
      next[i] = permute<Even>(v[2 * i], v[2 * i + 1]);
      next[i + Width / 2] = permute<Odd>(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < Width; ++i) v[i] = next[i];
  }
}

template <int Width>
void to_rows_width(const float* planes, std::int64_t stride, int channels, float* out,
                   std::int64_t count) {
  std::int64_t a = 0;
  for (; a + kWide <= count; a += kWide) {
    Wide v[Width];
    for (int c = 0; c < Width; ++c)
      v[c] = c < channels ? Wide::load(planes + c * stride + a) : Wide::fill(0);
    planes_to_rows<Width>(v);
    for (int c = 0; c < Width; ++c) v[c].store(out + a * Width + c * kWide);
  }
  for (; a < count; ++a)
    for (int c = 0; c < Width; ++c)
      out[a * Width + c] = c < channels ? planes[c * stride + a] : 0.0f;
}

template <int Width>
void to_planes_width(const float* rows, int channels, float factor, bool accumulate, float* planes,
                     std::int64_t stride, std::int64_t count) {
  std::int64_t a = 0;
  for (; a + kWide <= count; a += kWide) {
    Wide v[Width];
    for (int c = 0; c < Width; ++c) v[c] = Wide::load(rows + a * Width + c * kWide);
    rows_to_planes<Width>(v);
    for (int c = 0; c < channels; ++c) {
      float* to = planes + c * stride + a;
      const Wide value = Wide::fill(factor) * v[c];
      (accumulate ? Wide::load(to) + value : value).store(to);
    }
  }
  for (; a < count; ++a)
    for (int c = 0; c < channels; ++c) {
      float& to = planes[c * stride + a];
      to = (accumulate ? to : 0.0f) + factor * rows[a * Width + c];
    }
}

void to_rows(const float* planes, std::int64_t stride, int channels, int width, float* out,
             std::int64_t count) {
  auto* chosen = width == 1   ? to_rows_width<1>
                 : width == 2 ? to_rows_width<2>
                 : width == 4 ? to_rows_width<4>
                 : width == 8 ? to_rows_width<8>
                              : to_rows_width<16>;
  chosen(planes, stride, channels, out, count);
}

void to_planes(const float* rows, int channels, int width, float factor, bool accumulate,
               float* planes, std::int64_t stride, std::int64_t count) {
  auto* chosen = width == 1   ? to_planes_width<1>
                 : width == 2 ? to_planes_width<2>
                 : width == 4 ? to_planes_width<4>
                 : width == 8 ? to_planes_width<8>
                              : to_planes_width<16>;
  chosen(rows, channels, factor, accumulate, planes, stride, count);
}

}  // namespace
}  // namespace densecrf
