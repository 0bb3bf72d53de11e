// Compiled once for each instruction set; DENSECRF_ISA names the variant. Nothing here may use an
// inline function that other files use too: the linker would merge the copies, and the wide one
// might win. Hence plain pointers (LatticeView) and an unnamed namespace.
#include <cstring>

#include "densecrf/rows.hpp"

#if defined(__GNUC__) || defined(__clang__)
#define DENSECRF_INLINE __attribute__((always_inline)) inline
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than the ABI's never leave this file
#else
#define DENSECRF_INLINE inline
#endif
#define DENSECRF_STRING_(x) #x
#define DENSECRF_STRING(x) DENSECRF_STRING_(x)
#define DENSECRF_CONCAT_(a, b) a##b
#define DENSECRF_CONCAT(a, b) DENSECRF_CONCAT_(a, b)

namespace densecrf {
namespace {

// W floats in a register (or several): GNU vectors where there are any, else an array that the
// compiler may vectorise.
template <int W>
struct Vec {
#if defined(__GNUC__) || defined(__clang__)
  typedef float Native __attribute__((vector_size(W * sizeof(float))));
  Native v;
  DENSECRF_INLINE static Vec fill(float x) { return {x - Native{}}; }
  DENSECRF_INLINE friend Vec operator+(const Vec& a, const Vec& b) { return {a.v + b.v}; }
  DENSECRF_INLINE friend Vec operator-(const Vec& a, const Vec& b) { return {a.v - b.v}; }
  DENSECRF_INLINE friend Vec operator*(const Vec& a, const Vec& b) { return {a.v * b.v}; }
  DENSECRF_INLINE friend Vec clamp01(const Vec& a) {
    const Native zero = {}, one = fill(1.0f).v;
    const Native positive = a.v > zero ? a.v : zero;
    return {positive < one ? positive : one};
  }
#else
  float v[W];
  static Vec fill(float x) {
    Vec r;
    for (float& e : r.v) e = x;
    return r;
  }
  template <class F>
  static Vec zip(const Vec& a, const Vec& b, F f) {
    Vec r;
    for (int i = 0; i < W; ++i) r.v[i] = f(a.v[i], b.v[i]);
    return r;
  }
  friend Vec operator+(Vec a, Vec b) {
    return zip(a, b, [](float x, float y) { return x + y; });
  }
  friend Vec operator-(Vec a, Vec b) {
    return zip(a, b, [](float x, float y) { return x - y; });
  }
  friend Vec operator*(Vec a, Vec b) {
    return zip(a, b, [](float x, float y) { return x * y; });
  }
  friend Vec clamp01(Vec a) {
    return zip(a, a, [](float x, float) { return x < 0 ? 0.0f : x > 1 ? 1.0f : x; });
  }
#endif
  DENSECRF_INLINE static Vec load(const float* p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof r.v);
    return r;
  }
  DENSECRF_INLINE void store(float* p) const { std::memcpy(p, &v, sizeof v); }
  static Vec counting(float first) {
    float values[W];
    for (int i = 0; i < W; ++i) values[i] = first + static_cast<float>(i);
    return load(values);
  }
};

constexpr std::int64_t kPrefetch = 12;  // rows ahead

inline void prefetch(const float* p) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(p);
#else
  (void)p;
#endif
}

template <int W>
void splat_blocks(const LatticeView& t, const float* in, float* out, int width, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t v = begin; v < end; ++v) {
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::fill(0);
      for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e)
        sum = sum + Vec<W>::fill(t.entry_weight[e]) *
                        Vec<W>::load(in + static_cast<std::int64_t>(t.entry_pixel[e]) * width + at);
      sum.store(out + v * width + at);
    }
  }
}

template <int W>
void splat_levels_blocks(const LatticeView& t, const float* level, float* out, int width,
                         std::int64_t begin, std::int64_t end) {
  const std::int32_t* pixel = t.entry_pixel;
  const float* weight = t.entry_weight;
  for (std::int64_t v = begin; v < end; ++v) {
    const std::int64_t first = t.row_begin[v], last = t.row_begin[v + 1];
    for (int at = 0; at < width; at += W) {
      const Vec<W> floor = Vec<W>::counting(static_cast<float>(at));
      Vec<W> even = Vec<W>::fill(0), odd = Vec<W>::fill(0);  // two chains hide the adder's latency
      std::int64_t e = first;
      for (; e + 1 < last; e += 2) {
        even = even + Vec<W>::fill(weight[e]) * clamp01(Vec<W>::fill(level[pixel[e]]) - floor);
        odd =
            odd + Vec<W>::fill(weight[e + 1]) * clamp01(Vec<W>::fill(level[pixel[e + 1]]) - floor);
      }
      if (e < last)
        even = even + Vec<W>::fill(weight[e]) * clamp01(Vec<W>::fill(level[pixel[e]]) - floor);
      (even + odd).store(out + v * width + at);
    }
  }
}

template <int W>
void blur_blocks(const std::int32_t* axis, const float* in, const float* add, float* out, int width,
                 std::int64_t begin, std::int64_t end) {
  const Vec<W> half = Vec<W>::fill(0.5f);
  for (std::int64_t v = begin; v < end; ++v) {
    const std::int64_t ahead = v + kPrefetch < end ? v + kPrefetch : v;
    const float* next = in + static_cast<std::int64_t>(axis[2 * v]) * width;
    const float* previous = in + static_cast<std::int64_t>(axis[2 * v + 1]) * width;
    prefetch(in + static_cast<std::int64_t>(axis[2 * ahead]) * width);
    prefetch(in + static_cast<std::int64_t>(axis[2 * ahead + 1]) * width);
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::load(in + v * width + at) +
                   half * (Vec<W>::load(next + at) + Vec<W>::load(previous + at));
      if (add) sum = sum + Vec<W>::load(add + v * width + at);
      sum.store(out + v * width + at);
    }
  }
}

template <int W>
void slice_blocks(const LatticeView& t, const float* in, float scale, float* out, int width,
                  std::int64_t begin, std::int64_t end) {
  const std::int64_t n = t.pixels;
  for (std::int64_t a = begin; a < end; ++a) {
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::fill(0);
      for (int k = 0; k <= t.dimension; ++k)
        sum = sum +
              Vec<W>::fill(t.corner_weight[k * n + a]) *
                  Vec<W>::load(in + static_cast<std::int64_t>(t.corner[k * n + a]) * width + at);
      (sum * Vec<W>::fill(scale)).store(out + (a - begin) * width + at);
    }
  }
}

// With C_l the filtered mass at or above level l (C_0 the pixel's total mass, C_levels = 0) the
// signed mass at a whole level h is (C_0 - C_h) - C_{h+1}; at t = h + f, interpolated:
//   C_0 - [(1-f) C_h + C_{h+1} + f C_{h+2}].
// Slot l-1 of a row holds C_l, so one unaligned load of four floats from slot h-1 has all three.
template <int Corners>
void slice_levels_corners(const LatticeView& t, const float* in, const float* level,
                          const float* mass, int levels, float scale, float factor, bool accumulate,
                          float* out, int width, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  const std::int32_t* corner = t.corner;
  const float* weight = t.corner_weight;
  for (std::int64_t a = begin; a < end; ++a) {
    const int h = static_cast<int>(level[a]);
    const float f = level[a] - static_cast<float>(h);
    Vec<4> sum = Vec<4>::fill(0);
    const float* base = in + h - 1;
    for (int k = 0; k < corners; ++k)
      sum = sum + Vec<4>::fill(weight[k * n + a]) *
                      Vec<4>::load(base + static_cast<std::int64_t>(corner[k * n + a]) * width);
    const float at_h = h > 0 ? scale * sum.v[0] : mass[a];
    const float at_next = h + 1 < levels ? scale * sum.v[1] : 0.0f;
    const float at_second = h + 2 < levels ? scale * sum.v[2] : 0.0f;
    const float signed_mass = mass[a] - ((1 - f) * at_h + at_next + f * at_second);
    out[a] = accumulate ? out[a] + factor * signed_mass : factor * signed_mass;
  }
}

// Picks the block that divides the row.
template <class Function>
Function* by_width(int width, Function* four, Function* eight, Function* sixteen) {
  return width % 16 == 0 ? sixteen : width % 8 == 0 ? eight : four;
}

void splat(const LatticeView& t, const float* in, float* out, int width, std::int64_t begin,
           std::int64_t end) {
  by_width(width, splat_blocks<4>, splat_blocks<8>, splat_blocks<16>)(t, in, out, width, begin,
                                                                      end);
}

void splat_levels(const LatticeView& t, const float* level, float* out, int width,
                  std::int64_t begin, std::int64_t end) {
  by_width(width, splat_levels_blocks<4>, splat_levels_blocks<8>, splat_levels_blocks<16>)(
      t, level, out, width, begin, end);
}

void blur(const std::int32_t* axis, const float* in, const float* add, float* out, int width,
          std::int64_t begin, std::int64_t end) {
  by_width(width, blur_blocks<4>, blur_blocks<8>, blur_blocks<16>)(axis, in, add, out, width, begin,
                                                                   end);
}

void slice(const LatticeView& t, const float* in, float scale, float* out, int width,
           std::int64_t begin, std::int64_t end) {
  by_width(width, slice_blocks<4>, slice_blocks<8>, slice_blocks<16>)(t, in, scale, out, width,
                                                                      begin, end);
}

void slice_levels(const LatticeView& t, const float* in, const float* level, const float* mass,
                  int levels, float scale, float factor, bool accumulate, float* out, int width,
                  std::int64_t begin, std::int64_t end) {
  auto* unrolled = slice_levels_corners<0>;
  if (t.dimension == 2) unrolled = slice_levels_corners<3>;
  if (t.dimension == 3) unrolled = slice_levels_corners<4>;
  if (t.dimension == 5) unrolled = slice_levels_corners<6>;
  unrolled(t, in, level, mass, levels, scale, factor, accumulate, out, width, begin, end);
}

}  // namespace

extern const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA);
const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA) = {
    DENSECRF_STRING(DENSECRF_ISA), splat, splat_levels, blur, slice, slice_levels};

}  // namespace densecrf
