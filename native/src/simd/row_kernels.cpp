// The inner loops of the filters, compiled once for each instruction set: see isa.hpp. Lattices
// come as plain pointers (LatticeView).
#include "simd/wide.hpp"

namespace densecrf {
namespace {

inline void prefetch(const void* p) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(p);
#else
  (void)p;
#endif
}

constexpr std::int64_t kAhead = 16;  // entries whose pixels are fetched beforehand

template <int W, class Real>
void splat_blocks(const LatticeView& t, const Real* in, Real* out, int width, std::int64_t begin,
                  std::int64_t end) {
  using Columns = Vec<W, Real>;
  const std::int64_t entries = t.row_begin[t.vertices];
  for (std::int64_t v = begin; v < end; ++v) {
    for (int at = 0; at < width; at += W) {
      const auto row = [&](std::int64_t e) {
        return in + static_cast<std::int64_t>(t.entry_pixel[e]) * width + at;
      };
      Columns sum = Columns::fill(0);
      for (std::int64_t e = t.row_begin[v]; e < t.row_begin[v + 1]; ++e) {
        if (e + kAhead < entries) prefetch(row(e + kAhead));
        sum = sum + Columns::fill(t.entry_weight[e]) * Columns::load(row(e));
      }
      sum.store(out + (v - begin) * width + at);
    }
  }
}

template <int W, int Corners>
void add_corners(const LatticeView& t, const float* in, float* rows, int width, std::int64_t begin,
                 std::int64_t end) {
  using Columns = Vec<W>;
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  for (std::int64_t a = begin; a < end; ++a)
    for (int at = 0; at < width; at += W) {
      const Columns own = Columns::load(in + (a - begin) * width + at);
      for (int k = 0; k < corners; ++k) {
        float* row = rows + static_cast<std::int64_t>(t.corner[k * n + a]) * width + at;
        (Columns::load(row) + Columns::fill(t.corner_weight[k * n + a]) * own).store(row);
      }
    }
}

template <int W>
void add_blocks(const LatticeView& t, const float* in, float* rows, int width, std::int64_t begin,
                std::int64_t end) {
  auto* unrolled = add_corners<W, 0>;
  if (t.dimension == 2) unrolled = add_corners<W, 3>;
  if (t.dimension == 3) unrolled = add_corners<W, 4>;
  if (t.dimension == 5) unrolled = add_corners<W, 6>;
  unrolled(t, in, rows, width, begin, end);
}

// `Count` vectors of a row at a time, as many as there are registers for.
template <int Lanes, int Count>
void splat_vectors(const LatticeView& t, const float* level, float* out, int vectors, int first,
                   std::int64_t begin, std::int64_t end) {
  const std::int32_t* pixel = t.entry_pixel;
  const float* weight = t.entry_weight;
  const std::int64_t entries = t.row_begin[t.vertices];
  Wide slot[Count];
  for (int p = 0; p < Count; ++p)
    slot[p] = Groups<Lanes>::number() * Wide::fill(static_cast<float>(vectors)) +
              Wide::fill(static_cast<float>(first + p));
  for (std::int64_t v = begin; v < end; ++v) {
    Wide sum[Count];
    for (Wide& s : sum) s = Wide::fill(0);
    const std::int64_t last = t.row_begin[v + 1];
    for (std::int64_t e = t.row_begin[v]; e < last; ++e) {
      if (e + kAhead < entries)
        prefetch(level + static_cast<std::int64_t>(pixel[e + kAhead]) * Lanes);
      const Wide w = Wide::fill(weight[e]);
      const Wide own = Groups<Lanes>::repeat(level + static_cast<std::int64_t>(pixel[e]) * Lanes);
      for (int p = 0; p < Count; ++p) sum[p] = sum[p] + w * clamp01(own - slot[p]);
    }
    for (int p = 0; p < Count; ++p) sum[p].store(out + ((v - begin) * vectors + first + p) * kWide);
  }
}

template <int Lanes>
void splat_levels_lanes(const LatticeView& t, const float* level, float* out, int vectors,
                        std::int64_t begin, std::int64_t end) {
  using Splat =
      void (*)(const LatticeView&, const float*, float*, int, int, std::int64_t, std::int64_t);
  constexpr int kMost = 10;
  static constexpr Splat by_count[kMost] = {splat_vectors<Lanes, 1>, splat_vectors<Lanes, 2>,
                                            splat_vectors<Lanes, 3>, splat_vectors<Lanes, 4>,
                                            splat_vectors<Lanes, 5>, splat_vectors<Lanes, 6>,
                                            splat_vectors<Lanes, 7>, splat_vectors<Lanes, 8>,
                                            splat_vectors<Lanes, 9>, splat_vectors<Lanes, 10>};
  const int parts = (vectors + kMost - 1) / kMost;
  for (int g = 0; g < parts; ++g) {
    const int first = vectors * g / parts;
    by_count[vectors * (g + 1) / parts - first - 1](t, level, out, vectors, first, begin, end);
  }
}

template <int W>
void blur_blocks(const std::int32_t* axis, std::int32_t vertices, VertexRows in, const float* zeros,
                 const float* own, bool mean, float* out, int width, std::int64_t begin,
                 std::int64_t end) {
  const Vec<W> half = Vec<W>::fill(0.5f);
  const auto row = [&](std::int64_t v) {
    return v == vertices ? zeros : in.rows + (v & in.mask) * width;
  };
  for (std::int64_t v = begin; v < end; ++v) {
    const float* next = row(axis[2 * v]);
    const float* previous = row(axis[2 * v + 1]);
    const std::int64_t offset = (v - begin) * width;
    for (int at = 0; at < width; at += W) {
      Vec<W> sum = Vec<W>::load(own + offset + at) +
                   half * (Vec<W>::load(next + at) + Vec<W>::load(previous + at));
      if (mean) sum = half * (sum + Vec<W>::load(out + offset + at));
      sum.store(out + offset + at);
    }
  }
}

// `yes ? a : b`, not to be compiled to a branch.
template <class Real>
DENSECRF_INLINE Real* either(bool yes, Real* a, Real* b) {
  const auto mask = -static_cast<std::uintptr_t>(yes);
  return reinterpret_cast<Real*>((reinterpret_cast<std::uintptr_t>(a) & mask) |
                                 (reinterpret_cast<std::uintptr_t>(b) & ~mask));
}

// Without branches, since lines are short: between them `lines` visits the row of zeros, whose blur
// goes nowhere. Each row is read once and written once.
template <int W, int Count, class Real = float>
void blur_columns(const std::int32_t* lines, std::int64_t begin, std::int64_t end,
                  std::int32_t vertices, Real* rows, int width) {
  using Columns = Vec<W, Real>;
  constexpr std::int64_t kPrefetch = 32;  // vertices ahead
  const auto row = [&](std::int32_t v) { return rows + static_cast<std::int64_t>(v) * width; };
  const Columns half = Columns::fill(Real{0.5});
  Columns previous[Count], own[Count];
  for (int p = 0; p < Count; ++p) previous[p] = own[p] = Columns::fill(0);  // begins between lines
  Real nowhere[W * Count];
  for (std::int64_t i = begin; i < end; ++i) {
    if (i + kPrefetch < end)
      for (int p = 0; p < Count; ++p) prefetch(row(lines[i + kPrefetch]) + p * W);
    const Real* following = row(lines[i + 1]);
    Real* out = either(lines[i] == vertices, nowhere, row(lines[i]));
    for (int p = 0; p < Count; ++p) {
      const Columns next = Columns::load(following + p * W);
      (own[p] + half * (next + previous[p])).store(out + p * W);
      previous[p] = own[p];
      own[p] = next;
    }
  }
}

template <int W, int Corners, class Real>
void slice_corners(const LatticeView& t, RowsOf<Real> in, Real scale, bool accumulate, Real* out,
                   int width, std::int64_t begin, std::int64_t end) {
  using Columns = Vec<W, Real>;
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  for (std::int64_t a = begin; a < end; ++a) {
    const Real* row[Corners ? Corners : kMaxDimension + 1] = {};
    Real weight[Corners ? Corners : kMaxDimension + 1] = {};
    for (int k = 0; k < corners; ++k) {
      row[k] = in.rows + (t.corner[k * n + a] & in.mask) * width;
      weight[k] = scale * t.corner_weight[k * n + a];
    }
    for (int at = 0; at < width; at += W) {
      Real* to = out + (a - begin) * width + at;
      Columns sum = Columns::fill(weight[0]) * Columns::load(row[0] + at);
      for (int k = 1; k < corners; ++k)
        sum = sum + Columns::fill(weight[k]) * Columns::load(row[k] + at);
      (accumulate ? Columns::load(to) + sum : sum).store(to);
    }
  }
}

template <int W, class Real>
void slice_blocks(const LatticeView& t, RowsOf<Real> in, Real scale, bool accumulate, Real* out,
                  int width, std::int64_t begin, std::int64_t end) {
  auto* unrolled = slice_corners<W, 0, Real>;
  if (t.dimension == 2) unrolled = slice_corners<W, 3, Real>;
  if (t.dimension == 3) unrolled = slice_corners<W, 4, Real>;
  if (t.dimension == 5) unrolled = slice_corners<W, 6, Real>;
  unrolled(t, in, scale, accumulate, out, width, begin, end);
}

void slice_one(const LatticeView& t, VertexRows in, float scale, bool accumulate,
               const std::int32_t* column, float* out, int width, std::int64_t begin,
               std::int64_t end) {
  const std::int64_t n = t.pixels;
  for (std::int64_t a = begin; a < end; ++a) {
    const auto value = [&](int k) {
      return in.rows[(t.corner[k * n + a] & in.mask) * width + column[a - begin]];
    };
    float sum = scale * t.corner_weight[a] * value(0);
    for (int k = 1; k <= t.dimension; ++k)
      sum = sum + scale * t.corner_weight[k * n + a] * value(k);
    out[a - begin] = accumulate ? out[a - begin] + sum : sum;
  }
}

// With C_l the filtered mass at or above level l (C_0 the pixel's total mass, C_H = 0), the signed
// mass at a whole level h is C_0 - C_h - C_{h+1}, interpolated in between. Summation by parts gives
//   Σ_{l=1}^{H-1} s_l (C_{l-1} - C_{l+1}) - C_1,   s_l = clamp(t - (l-1), 0, 1),
// the same weights as in the splat: no label needs to look up its own level.
template <int Lanes, int Corners>
void slice_levels_corners(const LatticeView& t, VertexRows in, const float* level,
                          const float* mass, int vectors, float scale, float* out,
                          std::int64_t begin, std::int64_t end) {
  using Label = Groups<Lanes>;
  const std::int64_t n = t.pixels;
  const int corners = Corners ? Corners : t.dimension + 1;
  const Wide first_slot = Label::number() * Wide::fill(static_cast<float>(vectors));
  for (std::int64_t a = begin; a < end; ++a) {
    const float* row[Corners ? Corners : kMaxDimension + 1] = {};
    float weight[Corners ? Corners : kMaxDimension + 1] = {};
    for (int k = 0; k < corners; ++k) {
      row[k] = in.rows + (t.corner[k * n + a] & in.mask) * vectors * kWide;
      weight[k] = scale * t.corner_weight[k * n + a];
    }
    const auto filtered = [&](int p) {
      Wide sum = Wide::fill(weight[0]) * Wide::load(row[0] + p * kWide);
      for (int k = 1; k < corners; ++k)
        sum = sum + Wide::fill(weight[k]) * Wide::load(row[k] + p * kWide);
      return sum;
    };
    const Wide own = Label::repeat(level + a * Lanes) - first_slot;
    const Wide first = filtered(0), last = vectors > 1 ? filtered(vectors - 1) : first;
    Wide below = Label::up(last, Wide::fill(mass[a])), here = first, total = Wide::fill(0);
    for (int p = 0; p < vectors; ++p) {
      const Wide above = p + 2 < vectors   ? filtered(p + 1)
                         : p + 1 < vectors ? last
                                           : Label::down(first);
      total = total + clamp01(own - Wide::fill(static_cast<float>(p))) * (below - above);
      below = here;
      here = above;
    }
    total = Label::sum(total) - first;
    std::memcpy(out + (a - begin) * Lanes, &total.v, Lanes * sizeof(float));
  }
}

template <int Lanes>
void slice_levels_lanes(const LatticeView& t, VertexRows in, const float* level, const float* mass,
                        int vectors, float scale, float* out, std::int64_t begin,
                        std::int64_t end) {
  auto* unrolled = slice_levels_corners<Lanes, 0>;
  if (t.dimension == 2) unrolled = slice_levels_corners<Lanes, 3>;
  if (t.dimension == 3) unrolled = slice_levels_corners<Lanes, 4>;
  if (t.dimension == 5) unrolled = slice_levels_corners<Lanes, 6>;
  unrolled(t, in, level, mass, vectors, scale, out, begin, end);
}

// With t_a = h + f, s(t_a, t_b) = 1 - (1-f) C_h - C_{h+1} - f C_{h+2}, where C_q is how much of b
// lies at or above level q, clamp(t_b - (q-1), 0, 1).
template <int W, class Real>
void ordered_pairs_width(const EntriesView& k, const Real* t, Real* out, std::int64_t begin,
                         std::int64_t end) {
  using Labels = Vec<W, Real>;
  const Labels one = Labels::fill(1);
  for (std::int64_t a = begin; a < end; ++a) {
    Real whole[W];
    for (int i = 0; i < W; ++i) whole[i] = static_cast<Real>(static_cast<int>(t[a * W + i]));
    const Labels h = Labels::load(whole), f = Labels::load(t + a * W) - h, rest = one - f;
    Labels sum = Labels::fill(0);
    for (std::int64_t e = k.begin[a]; e < k.begin[a + 1]; ++e) {
      const Labels d = Labels::load(t + static_cast<std::int64_t>(k.pixel[e]) * W) - h;
      const Labels above = rest * clamp01(d + one) + clamp01(d) + f * clamp01(d - one);
      sum = sum + Labels::fill(static_cast<Real>(k.value[e])) * (one - above);
    }
    sum.store(out + (a - begin) * W);
  }
}

// Picks the block that divides the row.
template <class Function>
Function* by_width(int width, Function* four, Function* eight, Function* sixteen) {
  return width % 16 == 0 ? sixteen : width % 8 == 0 ? eight : four;
}

void splat(const LatticeView& t, const float* in, float* out, int width, std::int64_t begin,
           std::int64_t end) {
  by_width(width, splat_blocks<4, float>, splat_blocks<8, float>, splat_blocks<16, float>)(
      t, in, out, width, begin, end);
}

void add(const LatticeView& t, const float* in, float* rows, int width, std::int64_t begin,
         std::int64_t end) {
  by_width(width, add_blocks<4>, add_blocks<8>, add_blocks<16>)(t, in, rows, width, begin, end);
}

template <class Function>
Function* by_lanes(int lanes, Function* one, Function* two, Function* four, Function* eight,
                   Function* sixteen) {
  return lanes == 1 ? one : lanes == 2 ? two : lanes == 4 ? four : lanes == 8 ? eight : sixteen;
}

void splat_levels(const LatticeView& t, const float* level, float* out, int vectors, int lanes,
                  std::int64_t begin, std::int64_t end) {
  by_lanes(lanes, splat_levels_lanes<1>, splat_levels_lanes<2>, splat_levels_lanes<4>,
           splat_levels_lanes<8>, splat_levels_lanes<16>)(t, level, out, vectors, begin, end);
}

void blur(const std::int32_t* axis, std::int32_t vertices, VertexRows in, const float* zeros,
          const float* own, bool mean, float* out, int width, std::int64_t begin,
          std::int64_t end) {
  by_width(width, blur_blocks<4>, blur_blocks<8>, blur_blocks<16>)(axis, vertices, in, zeros, own,
                                                                   mean, out, width, begin, end);
}

void blur_lines(const std::int32_t* lines, std::int64_t begin, std::int64_t end,
                std::int32_t vertices, float* rows, int width, int columns) {
  auto* chosen = columns == 4           ? blur_columns<4, 1>
                 : columns == 8         ? blur_columns<8, 1>
                 : columns == kWide     ? blur_columns<kWide, 1>
                 : columns == 2 * kWide ? blur_columns<kWide, 2>
                 : columns == 3 * kWide ? blur_columns<kWide, 3>
                 : columns == 4 * kWide ? blur_columns<kWide, 4>
                                        : blur_columns<kWide, 5>;
  chosen(lines, begin, end, vertices, rows, width);
}

void slice(const LatticeView& t, VertexRows in, float scale, bool accumulate, float* out, int width,
           std::int64_t begin, std::int64_t end) {
  by_width(width, slice_blocks<4, float>, slice_blocks<8, float>, slice_blocks<16, float>)(
      t, in, scale, accumulate, out, width, begin, end);
}

void slice_levels(const LatticeView& t, VertexRows in, const float* level, const float* mass,
                  int vectors, int lanes, float scale, float* out, std::int64_t begin,
                  std::int64_t end) {
  by_lanes(lanes, slice_levels_lanes<1>, slice_levels_lanes<2>, slice_levels_lanes<4>,
           slice_levels_lanes<8>,
           slice_levels_lanes<16>)(t, in, level, mass, vectors, scale, out, begin, end);
}

constexpr int kDoubles = RowKernels::kDoubles;

void splat_doubles(const LatticeView& t, const double* in, double* out, std::int64_t begin,
                   std::int64_t end) {
  splat_blocks<kDoubles>(t, in, out, kDoubles, begin, end);
}

void blur_doubles(const std::int32_t* lines, std::int64_t begin, std::int64_t end,
                  std::int32_t vertices, double* rows) {
  blur_columns<kDoubles, 1>(lines, begin, end, vertices, rows, kDoubles);
}

void slice_doubles(const LatticeView& t, const double* rows, double scale, bool accumulate,
                   double* out, std::int64_t begin, std::int64_t end) {
  slice_blocks<kDoubles, double>(t, {rows, INT64_MAX}, scale, accumulate, out, kDoubles, begin,
                                 end);
}

void ordered_pairs(const EntriesView& k, const float* t, int lanes, float* out, std::int64_t begin,
                   std::int64_t end) {
  by_width(lanes, ordered_pairs_width<4, float>, ordered_pairs_width<8, float>,
           ordered_pairs_width<16, float>)(k, t, out, begin, end);
}

void ordered_pairs_doubles(const EntriesView& k, const double* t, double* out, std::int64_t begin,
                           std::int64_t end) {
  ordered_pairs_width<kDoubles>(k, t, out, begin, end);
}

}  // namespace

extern const RowKernels DENSECRF_CONCAT(row_kernels_, DENSECRF_ISA);
const RowKernels DENSECRF_CONCAT(row_kernels_, DENSECRF_ISA) = {DENSECRF_STRING(DENSECRF_ISA),
                                                                to_rows,
                                                                to_planes,
                                                                splat,
                                                                add,
                                                                splat_levels,
                                                                blur,
                                                                blur_lines,
                                                                slice,
                                                                slice_one,
                                                                slice_levels,
                                                                splat_doubles,
                                                                blur_doubles,
                                                                slice_doubles,
                                                                ordered_pairs,
                                                                ordered_pairs_doubles};

}  // namespace densecrf
