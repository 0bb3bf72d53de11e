// The ordered filter, Σ_b k_ab sign(y_a - y_b) per label: the paper's modified filtering (Algorithm
// 3, "Modified filtering algorithm") for [y_a >= y_b] less that for [y_a <= y_b], in one pass.
//
// clang-format off
//   here                                            the paper's Algorithm 3
//   ----------------------------------------------  ---------------------------------------------
//   level_rows()
//   for all b:  t_b <- y_b (H-1)                    h_b <- floor(y_b (H-1))
//
//   splat_levels()                                  Splatting
//   for all l in P, b in N(l), h in 1 .. H-1:       for all l in P, b in N(l), h in h_b .. H-1:
//     v_lh <- v_lh + w_lb clamp(t_b-(h-1), 0, 1)      v_lh <- v_lh + w_lb v_b
//
//   BlockFilter                                     Blurring at each level independently
//   for all h:  v'_h <- k (x) v_h                   for all h:  v'_h <- k (x) v_h
//
//   slice_levels()                                  Slicing
//   for all a:                                      for all a:
//     C_h <- Σ_{l in N(a)} w_la v'_lh                 v'_a <- v'_a + w_la v'_l,h_a
//     out_a <- below(t_a) - above(t_a)
// clang-format on
//
// A level holds the mass at or above it (Alg. 3: at or below; the total is known, so either will
// do), hence C_0 = Σ_b k_ab = mass_a and C_H = 0 need not be stored, and one pass serves both
// indicators: at a whole level h the mass below is C_0 - C_h and that above is C_{h+1}. A
// fractional level belongs to the two nearest levels in linear proportion, in the splat and in the
// slice; `Levels::hard` floors t instead, which is the paper's binning.
//
// algorithm3.cpp is the literal two-pass transcription. lane_plan.hpp decides which labels share a
// row; the inner loops are splat_levels and slice_levels of simd/row_kernels.cpp.
#include <algorithm>

#include "channel_blocks.hpp"
#include "densecrf/filter.hpp"
#include "lane_plan.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kTile = 64;  // pixels that are converted or sliced together
constexpr int kMostLanes = LanePlan::kMostLanes;

// t of pixels [begin, end) for `count` labels, each counted from the first level of its range, as
// rows of `lanes`; 0 where there is no label.
void level_rows(const Scores& scores, std::int64_t n, const LevelRange* ranges, int count,
                int lanes, float* out, std::int64_t begin, std::int64_t end) {
  const Levels levels = scores.levels;
  float tile[kMostLanes * kTile];
  for (std::int64_t at = begin; at < end; at += kTile) {
    const std::int64_t pixels = std::min(end - at, kTile);
    for (int c = 0; c < count; ++c) {
      const std::int64_t first = ranges[c].channel * n + at;
      const float* y = scores.values + first;
      const auto lowest = static_cast<float>(ranges[c].first);
      float* t = tile + c * kTile;
      if (scores.offsets)
        for (std::int64_t a = 0; a < pixels; ++a)
          t[a] = levels.within(y[a] + scores.offsets[first + a]) - lowest;
      else
        for (std::int64_t a = 0; a < pixels; ++a) t[a] = levels.within(y[a]) - lowest;
      if (levels.hard)
        for (std::int64_t a = 0; a < pixels; ++a) t[a] = static_cast<float>(static_cast<int>(t[a]));
    }
    row_kernels().to_rows(tile, kTile, count, lanes, out + at * lanes, pixels);
  }
}

// Adds rows of `lanes` labels to the labels' planes.
void add_rows(const float* rows, const LevelRange* ranges, int count, int lanes, const Output& out,
              std::int64_t n, std::int64_t begin, std::int64_t end) {
  float tile[kMostLanes * kTile];
  row_kernels().to_planes(rows, count, lanes, out.factor, false, tile, kTile, end - begin);
  for (int c = 0; c < count; ++c) {
    float* plane = out.values + ranges[c].channel * n + begin;
    for (std::int64_t a = 0; a < end - begin; ++a) plane[a] += tile[c * kTile + a];
  }
}

}  // namespace

void filter_ordered(const Lattice& lattice, const Scores& scores, const float* mass, Blur blur,
                    Output out, Team& team) {
  const RowKernels& kernels = row_kernels();
  const LatticeView view = lattice.view();
  const std::int64_t n = lattice.pixels();
  const float scale = lattice.scale();
  const LanePlan plan(lattice, scores);
  for_each_block(
      lattice, plan.blocks, blur, team, [&](const ChannelBlock& block, float* t, auto&& run) {
        const int lanes = block.pixel_width, vectors = block.vertex_width / RowKernels::kVector;
        const LevelRange* ranges = plan.ranges.data() + block.first;
        run(
            [&](std::int64_t begin, std::int64_t end) {
              level_rows(scores, n, ranges, block.count, lanes, t, begin, end);
            },
            [&](float* vertices, std::int64_t begin, std::int64_t end) {
              kernels.splat_levels(view, t, vertices, vectors, lanes, begin, end);
            },
            [&](VertexRows vertices, std::int64_t begin, std::int64_t end) {
              float tile[kTile * kMostLanes];
              for (std::int64_t a = begin; a < end; a += kTile) {
                const std::int64_t stop = std::min(end, a + kTile);
                kernels.slice_levels(view, vertices, t, mass, vectors, lanes, scale, tile, a, stop);
                add_rows(tile, ranges, block.count, lanes, out, n, a, stop);
              }
            });
      });
}

}  // namespace densecrf
