// Which labels the ordered filter handles side by side, and how many floats their rows take.
#pragma once

#include <cstdint>
#include <vector>

#include "channel_blocks.hpp"
#include "densecrf/filter.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

// The levels between which a channel's scores lie. Scores within one cell, such as those of labels
// that matter nowhere, need two levels, however many there are in all.
struct LevelRange {
  int channel;
  int first;
  int slots;  // one less than its levels; 0 where all scores have one level

  static LevelRange of(int channel, const float* extents, Levels levels);
};

struct LanePlan {
  static constexpr int kMostLanes = RowKernels::kVector;

  std::vector<LevelRange> ranges;    // of the channels with more than one level, the longest first
  std::vector<ChannelBlock> blocks;  // consecutive ranges; pixel_width is the number of lanes

  LanePlan(const Lattice& lattice, const Scores& scores);
};

}  // namespace densecrf
