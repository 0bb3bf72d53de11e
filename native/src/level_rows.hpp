// Levels of pixels as rows of labels side by side, and results back to the labels' planes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "densecrf/filter.hpp"
#include "lane_plan.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

inline constexpr std::int64_t kLevelTile = 64;  // pixels that are converted or sliced together

// t of pixels [begin, end) for `count` labels, each counted from the first level of its range, as
// rows of `lanes`; 0 where there is no label.
inline void level_rows(const Scores& scores, std::int64_t n, const LevelRange* ranges, int count,
                       int lanes, float* out, std::int64_t begin, std::int64_t end) {
  const Levels levels = scores.levels;
  float tile[LanePlan::kMostLanes * kLevelTile];
  for (std::int64_t at = begin; at < end; at += kLevelTile) {
    const std::int64_t pixels = std::min(end - at, kLevelTile);
    for (int c = 0; c < count; ++c) {
      const std::int64_t first = ranges[c].channel * n + at;
      const float* y = scores.values + first;
      const auto lowest = static_cast<float>(ranges[c].first);
      float* t = tile + c * kLevelTile;
      if (scores.offsets)
        for (std::int64_t a = 0; a < pixels; ++a)
          t[a] = levels.within(y[a] + scores.offsets[first + a]) - lowest;
      else
        for (std::int64_t a = 0; a < pixels; ++a) t[a] = levels.within(y[a]) - lowest;
      if (levels.hard)
        for (std::int64_t a = 0; a < pixels; ++a) t[a] = static_cast<float>(static_cast<int>(t[a]));
    }
    row_kernels().to_rows(tile, kLevelTile, count, lanes, out + at * lanes, pixels);
  }
}

// Adds rows of `lanes` labels to the labels' planes.
inline void add_rows(const float* rows, const LevelRange* ranges, int count, int lanes,
                     const Output& out, std::int64_t n, std::int64_t begin, std::int64_t end) {
  float tile[LanePlan::kMostLanes * kLevelTile];
  row_kernels().to_planes(rows, count, lanes, out.factor, false, tile, kLevelTile, end - begin);
  for (int c = 0; c < count; ++c) {
    float* plane = out.values + ranges[c].channel * n + begin;
    for (std::int64_t a = 0; a < end - begin; ++a) plane[a] += tile[c * kLevelTile + a];
  }
}

}  // namespace densecrf
