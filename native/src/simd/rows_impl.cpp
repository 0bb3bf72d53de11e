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
};

constexpr std::int64_t kPrefetch = 256;  // floats ahead

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
      sum.store(out + (v - begin) * width + at);
    }
  }
}

// `Slots` accumulators of W labels at a time, as many as there are registers for.
template <int W, int Slots>
void splat_slots(const LatticeView& t, const float* level, float* out, int width, int first_slot,
                 std::int64_t begin, std::int64_t end) {
  const std::int32_t* pixel = t.entry_pixel;
  const float* weight = t.entry_weight;
  for (std::int64_t v = begin; v < end; ++v) {
    Vec<W> sum[Slots];
    for (Vec<W>& slot : sum) slot = Vec<W>::fill(0);
    const std::int64_t last = t.row_begin[v + 1];
    for (std::int64_t e = t.row_begin[v]; e < last; ++e) {
      const Vec<W> w = Vec<W>::fill(weight[e]);
      const Vec<W> own = Vec<W>::load(level + static_cast<std::int64_t>(pixel[e]) * W);
      for (int l = 0; l < Slots; ++l)
        sum[l] = sum[l] + w * clamp01(own - Vec<W>::fill(static_cast<float>(first_slot + l)));
    }
    for (int l = 0; l < Slots; ++l) sum[l].store(out + (v - begin) * width + (first_slot + l) * W);
  }
}

template <int W>
void splat_levels_lanes(const LatticeView& t, const float* level, float* out, int slots,
                        std::int64_t begin, std::int64_t end) {
  using Splat =
      void (*)(const LatticeView&, const float*, float*, int, int, std::int64_t, std::int64_t);
  constexpr int kMost = 9;
  static constexpr Splat by_slots[kMost] = {
      splat_slots<W, 1>, splat_slots<W, 2>, splat_slots<W, 3>, splat_slots<W, 4>, splat_slots<W, 5>,
      splat_slots<W, 6>, splat_slots<W, 7>, splat_slots<W, 8>, splat_slots<W, 9>};
  const int groups = (slots + kMost - 1) / kMost;
  for (int g = 0; g < groups; ++g) {
    const int first = slots * g / groups;
    by_slots[slots * (g + 1) / groups - first - 1](t, level, out, slots * W, first, begin, end);
  }
}

// Where all rows are kept, the missing neighbour's row of zeros lies behind the last; in a window
// it lies elsewhere.
template <int W, bool Window>
void blur_rows(const std::int32_t* axis, std::int32_t vertices, RowsView in, const float* zeros,
               const float* own, const float* add, float* out, int width, std::int64_t begin,
               std::int64_t end) {
  const Vec<W> half = Vec<W>::fill(0.5f);
  const auto row = [&](std::int64_t v) {
    if (Window && v == vertices) return zeros;
    return in.rows + (Window ? v & in.mask : v) * width;
  };
  const std::int64_t distance = kPrefetch > width ? kPrefetch / width : 1;
  for (std::int64_t v = begin; v < end; ++v) {
    const float* next = row(axis[2 * v]);
    const float* previous = row(axis[2 * v + 1]);
    if (!Window && v + distance < end) {
      const float* later[2] = {row(axis[2 * (v + distance)]), row(axis[2 * (v + distance) + 1])};
      for (int at = 0; at < width; at += 16) {
        prefetch(later[0] + at);
        prefetch(later[1] + at);
      }
    }
    const std::int64_t offset = (v - begin) * width;
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::load(own + offset + at) +
                   half * (Vec<W>::load(next + at) + Vec<W>::load(previous + at));
      if (add) sum = sum + Vec<W>::load(add + offset + at);
      sum.store(out + offset + at);
    }
  }
}

template <int W>
void blur_blocks(const std::int32_t* axis, std::int32_t vertices, RowsView in, const float* zeros,
                 const float* own, const float* add, float* out, int width, std::int64_t begin,
                 std::int64_t end) {
  (in.mask < vertices ? blur_rows<W, true> : blur_rows<W, false>)(axis, vertices, in, zeros, own,
                                                                  add, out, width, begin, end);
}

template <int W>
void slice_blocks(const LatticeView& t, RowsView in, float scale, float* out, int width,
                  std::int64_t begin, std::int64_t end) {
  const std::int64_t n = t.pixels;
  for (std::int64_t a = begin; a < end; ++a) {
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::fill(0);
      for (int k = 0; k <= t.dimension; ++k)
        sum = sum + Vec<W>::fill(t.corner_weight[k * n + a]) *
                        Vec<W>::load(in.rows + (t.corner[k * n + a] & in.mask) * width + at);
      (sum * Vec<W>::fill(scale)).store(out + (a - begin) * width + at);
    }
  }
}

// With C_l the filtered mass at or above level l (C_0 the pixel's total mass, C_H = 0), the signed
// mass at a whole level h is C_0 - C_h - C_{h+1}, interpolated in between. Summation by parts gives
//   Σ_{l=1}^{H-1} s_l (C_{l-1} - C_{l+1}) - C_1,   s_l = clamp(t - (l-1), 0, 1),
// the same weights as in the splat: no label needs to look up its own level.
template <int W, int Corners>
void slice_levels_corners(const LatticeView& t, RowsView in, const float* level, const float* mass,
                          int slots, float scale, float* out, std::int64_t begin,
                          std::int64_t end) {
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  for (std::int64_t a = begin; a < end; ++a) {
    const float* row[Corners ? Corners : kMaxDimension + 1] = {};
    float weight[Corners ? Corners : kMaxDimension + 1] = {};
    for (int k = 0; k < corners; ++k) {
      row[k] = in.rows + (t.corner[k * n + a] & in.mask) * slots * W;
      weight[k] = scale * t.corner_weight[k * n + a];
    }
    const auto filtered = [&](int slot) {
      Vec<W> sum = Vec<W>::fill(weight[0]) * Vec<W>::load(row[0] + slot * W);
      for (int k = 1; k < corners; ++k)
        sum = sum + Vec<W>::fill(weight[k]) * Vec<W>::load(row[k] + slot * W);
      return sum;
    };
    const Vec<W> own = Vec<W>::load(level + a * W);
    Vec<W> below = Vec<W>::fill(mass[a]), here = filtered(0);
    Vec<W> total = Vec<W>::fill(0) - here;
    for (int slot = 0; slot < slots; ++slot) {
      const Vec<W> above = slot + 1 < slots ? filtered(slot + 1) : Vec<W>::fill(0);
      const Vec<W> share = clamp01(own - Vec<W>::fill(static_cast<float>(slot)));
      total = total + share * (below - above);
      below = here;
      here = above;
    }
    total.store(out + (a - begin) * W);
  }
}

template <int W>
void slice_levels_lanes(const LatticeView& t, RowsView in, const float* level, const float* mass,
                        int slots, float scale, float* out, std::int64_t begin, std::int64_t end) {
  auto* unrolled = slice_levels_corners<W, 0>;
  if (t.dimension == 2) unrolled = slice_levels_corners<W, 3>;
  if (t.dimension == 3) unrolled = slice_levels_corners<W, 4>;
  if (t.dimension == 5) unrolled = slice_levels_corners<W, 6>;
  unrolled(t, in, level, mass, slots, scale, out, begin, end);
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

void splat_levels(const LatticeView& t, const float* level, float* out, int slots, int lanes,
                  std::int64_t begin, std::int64_t end) {
  (lanes == 8 ? splat_levels_lanes<8> : splat_levels_lanes<4>)(t, level, out, slots, begin, end);
}

void blur(const std::int32_t* axis, std::int32_t vertices, RowsView in, const float* zeros,
          const float* own, const float* add, float* out, int width, std::int64_t begin,
          std::int64_t end) {
  by_width(width, blur_blocks<4>, blur_blocks<8>, blur_blocks<16>)(axis, vertices, in, zeros, own,
                                                                   add, out, width, begin, end);
}

void slice(const LatticeView& t, RowsView in, float scale, float* out, int width,
           std::int64_t begin, std::int64_t end) {
  by_width(width, slice_blocks<4>, slice_blocks<8>, slice_blocks<16>)(t, in, scale, out, width,
                                                                      begin, end);
}

void slice_levels(const LatticeView& t, RowsView in, const float* level, const float* mass,
                  int slots, int lanes, float scale, float* out, std::int64_t begin,
                  std::int64_t end) {
  (lanes == 8 ? slice_levels_lanes<8> : slice_levels_lanes<4>)(t, in, level, mass, slots, scale,
                                                               out, begin, end);
}

}  // namespace

extern const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA);
const Rows DENSECRF_CONCAT(rows_, DENSECRF_ISA) = {
    DENSECRF_STRING(DENSECRF_ISA), splat, splat_levels, blur, slice, slice_levels};

}  // namespace densecrf
