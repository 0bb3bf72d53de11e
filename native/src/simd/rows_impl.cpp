// Compiled once for each instruction set; DENSECRF_ISA names the variant. Nothing here may use an
// inline function that other files use too: the linker would merge the copies, and the wide one
// might win. Hence plain pointers (LatticeView) and an unnamed namespace.
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

// Spreads a pixel's levels t[0..7] over the lanes of a vector: lane l gets t[label_l].
template <int W>
struct Spread {
#if defined(__AVX512F__)
  __m512i index;
  DENSECRF_INLINE explicit Spread(const std::int32_t* label) : index(_mm512_loadu_si512(label)) {}
  DENSECRF_INLINE Vec<W> operator()(const float* t) const {
    const __m512 row = _mm512_castps256_ps512(_mm256_loadu_ps(t));
    const __m512 spread = _mm512_permutexvar_ps(index, row);
    Vec<W> out;
    std::memcpy(&out.v, &spread, sizeof out.v);
    return out;
  }
#elif defined(__AVX2__)
  __m256i index[W > 8 ? W / 8 : 1];
  DENSECRF_INLINE explicit Spread(const std::int32_t* label) {
    for (int i = 0; i < W / 8; ++i)
      index[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(label + 8 * i));
  }
  DENSECRF_INLINE Vec<W> operator()(const float* t) const {
    const __m256 row = _mm256_loadu_ps(t);
    __m256 spread[W / 8];
    for (int i = 0; i < W / 8; ++i) spread[i] = _mm256_permutevar8x32_ps(row, index[i]);
    Vec<W> out;
    std::memcpy(&out.v, spread, sizeof out.v);
    return out;
  }
#else
  const std::int32_t* index;
  DENSECRF_INLINE explicit Spread(const std::int32_t* label) : index(label) {}
  DENSECRF_INLINE Vec<W> operator()(const float* t) const {
    float spread[W];
    for (int l = 0; l < W; ++l) spread[l] = t[index[l]];
    return Vec<W>::load(spread);
  }
#endif
};

// `Blocks` vectors of 16 lanes at once, from lane `at` on: their sums stay in registers.
template <int Blocks>
void splat_levels_lanes(const LatticeView& t, const LevelBlock& block, const float* level,
                        float* out, int at, std::int64_t begin, std::int64_t end) {
  using V = Vec<16>;
  constexpr int kRow = LevelBlock::kLabels;
  for (std::int64_t v = begin; v < end; ++v) {
    V sum[Blocks];
    for (int k = 0; k < Blocks; ++k) sum[k] = V::fill(0);
    for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
      const float* row = level + static_cast<std::int64_t>(t.entry_pixel[e]) * kRow;
      const V weight = V::fill(t.entry_weight[e]);
      for (int k = 0; k < Blocks; ++k) {
        const int lane = at + 16 * k;
        const V above = Spread<16>(block.lane_label + lane)(row) - V::load(block.lane_floor + lane);
        sum[k] = sum[k] + weight * clamp01(above);
      }
    }
    for (int k = 0; k < Blocks; ++k) sum[k].store(out + v * block.width + at + 16 * k);
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
//
// Four labels at a time: sum[g] holds (C_h, C_{h+1}, C_{h+2}, -) of label g; `out` gets their
// values.
DENSECRF_INLINE void signed_masses(const Vec<4>* sum, const float* level, float mass, int levels,
                                   float scale, float* out) {
#if defined(__GNUC__) && __has_builtin(__builtin_shufflevector)
  using F = Vec<4>::Native;
  typedef std::int32_t I __attribute__((vector_size(16)));
  const F low01 = __builtin_shufflevector(sum[0].v, sum[1].v, 0, 4, 1, 5);
  const F low23 = __builtin_shufflevector(sum[2].v, sum[3].v, 0, 4, 1, 5);
  const F high01 = __builtin_shufflevector(sum[0].v, sum[1].v, 2, 6, 3, 7);
  const F high23 = __builtin_shufflevector(sum[2].v, sum[3].v, 2, 6, 3, 7);
  const F zero = {}, all = zero + mass;
  const F t = Vec<4>::load(level).v;
  const I h = __builtin_convertvector(t, I);
  const F f = t - __builtin_convertvector(h, F);
  const F at_h = h > 0 ? scale * __builtin_shufflevector(low01, low23, 0, 1, 4, 5) : all;
  const F at_next =
      h + 1 < levels ? scale * __builtin_shufflevector(low01, low23, 2, 3, 6, 7) : zero;
  const F at_second =
      h + 2 < levels ? scale * __builtin_shufflevector(high01, high23, 0, 1, 4, 5) : zero;
  Vec<4>{all - ((1 - f) * at_h + at_next + f * at_second)}.store(out);
#else
  for (int g = 0; g < 4; ++g) {
    const int h = static_cast<int>(level[g]);
    const float f = level[g] - static_cast<float>(h);
    const float at_h = h > 0 ? scale * sum[g].v[0] : mass;
    const float at_next = h + 1 < levels ? scale * sum[g].v[1] : 0.0f;
    const float at_second = h + 2 < levels ? scale * sum[g].v[2] : 0.0f;
    out[g] = mass - ((1 - f) * at_h + at_next + f * at_second);
  }
#endif
}

template <int Corners>
void slice_levels_corners(const LatticeView& t, const LevelBlock& block, const float* in,
                          const float* level, const float* mass, float scale, float factor,
                          bool accumulate, float* const* out, std::int64_t begin,
                          std::int64_t end) {
  constexpr int kRow = LevelBlock::kLabels;
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  const int channels = block.levels - 1;
  for (std::int64_t a = begin; a < end; ++a) {
    const float* own = level + a * kRow;
    Vec<4> sum[kRow] = {};
    std::int64_t offset[kRow];
    for (int g = 0; g < block.labels; ++g) offset[g] = g * channels + static_cast<int>(own[g]) - 1;
    for (int k = 0; k < corners; ++k) {
      const Vec<4> weight = Vec<4>::fill(t.corner_weight[k * n + a]);
      const float* row = in + static_cast<std::int64_t>(t.corner[k * n + a]) * block.width;
      for (int g = 0; g < block.labels; ++g)
        sum[g] = sum[g] + weight * Vec<4>::load(row + offset[g]);
    }
    float values[kRow];
    for (int g = 0; g < block.labels; g += 4)
      signed_masses(sum + g, own + g, mass[a], block.levels, scale, values + g);
    for (int g = 0; g < block.labels; ++g)
      out[g][a] = accumulate ? out[g][a] + factor * values[g] : factor * values[g];
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

void splat_levels(const LatticeView& t, const LevelBlock& block, const float* level, float* out,
                  std::int64_t begin, std::int64_t end) {
  for (int at = 0; at < block.width; at += 64) {
    switch (block.width - at >= 64 ? 4 : (block.width - at) / 16) {
      case 4:
        splat_levels_lanes<4>(t, block, level, out, at, begin, end);
        break;
      case 3:
        splat_levels_lanes<3>(t, block, level, out, at, begin, end);
        break;
      case 2:
        splat_levels_lanes<2>(t, block, level, out, at, begin, end);
        break;
      default:
        splat_levels_lanes<1>(t, block, level, out, at, begin, end);
        break;
    }
  }
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

void slice_levels(const LatticeView& t, const LevelBlock& block, const float* in,
                  const float* level, const float* mass, float scale, float factor, bool accumulate,
                  float* const* out, std::int64_t begin, std::int64_t end) {
  auto* unrolled = slice_levels_corners<0>;
  if (t.dimension == 2) unrolled = slice_levels_corners<3>;
  if (t.dimension == 3) unrolled = slice_levels_corners<4>;
  if (t.dimension == 5) unrolled = slice_levels_corners<6>;
  unrolled(t, block, in, level, mass, scale, factor, accumulate, out, begin, end);
}

}  // namespace

extern const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA);
const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA) = {
    DENSECRF_STRING(DENSECRF_ISA), splat, splat_levels, blur, slice, slice_levels};

}  // namespace densecrf
