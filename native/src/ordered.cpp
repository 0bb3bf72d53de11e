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
#include "level_rows.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

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
              float tile[kLevelTile * LanePlan::kMostLanes];
              for (std::int64_t a = begin; a < end; a += kLevelTile) {
                const std::int64_t stop = std::min(end, a + kLevelTile);
                kernels.slice_levels(view, vertices, t, mass, vectors, lanes, scale, tile, a, stop);
                add_rows(tile, ranges, block.count, lanes, out, n, a, stop);
              }
            });
      });
}

}  // namespace densecrf
