// The lanes of a vector are shared among labels: `lanes` of them side by side, each with as many
// slots as it has levels less one.
#include "lane_plan.hpp"

#include <algorithm>
#include <cmath>

namespace densecrf {

namespace {

constexpr std::int64_t kFreeBytes = 4 << 20;  // of workspace, whatever the size of the scores
constexpr int kVisitCost = 8;                 // of visiting all vertices once, in floats of a row

int vertex_width(int lanes, int levels) {
  return RowKernels::kVector * row_vectors(levels - 1, lanes);
}

// Floats of workspace for `lanes` labels side by side.
std::int64_t workspace_floats(const Lattice& lattice, int lanes, int levels, bool windowed) {
  return BlockFilter::floats(lattice, vertex_width(lanes, levels), windowed) +
         lanes * lattice.pixels();
}

// Most labels side by side over all levels: eight, or four where the rows of eight would take too
// much memory.
int most_lanes(const Lattice& lattice, int channels, int levels) {
  const std::int64_t bytes = 4 * workspace_floats(lattice, 8, levels, false);
  const std::int64_t scores = 4 * channels * lattice.pixels();
  return bytes > std::max(kFreeBytes, 3 * scores) ? 4 : 8;
}

// The cheapest blocks of at most `widest` labels, with rows of at most `limit` floats, by dynamic
// programming from the last range to the first: the best way to begin with a block there.
std::vector<ChannelBlock> cheapest_blocks(const std::vector<LevelRange>& ranges, int widest,
                                          int limit) {
  struct Choice {
    int cost = 0, lanes = 0;
  };
  const std::size_t count = ranges.size();
  std::vector<Choice> best(count + 1);
  for (std::size_t first = count; first-- > 0;) {
    Choice& choice = best[first];
    for (int lanes = widest; lanes >= 1; lanes /= 2) {
      const int width = vertex_width(lanes, ranges[first].slots + 1);
      if (width > limit && lanes > 1) continue;
      const int cost = kVisitCost + width + best[std::min(count, first + lanes)].cost;
      if (choice.lanes == 0 || cost < choice.cost) choice = {cost, lanes};
    }
  }
  std::vector<ChannelBlock> blocks;
  for (std::size_t first = 0; first < count; first += static_cast<std::size_t>(best[first].lanes)) {
    const int lanes = best[first].lanes;
    const int labels = std::min(lanes, static_cast<int>(count - first));
    blocks.push_back(
        {static_cast<int>(first), labels, lanes, vertex_width(lanes, ranges[first].slots + 1)});
  }
  return blocks;
}

// How long threads take that fetch one block after the other, in floats of a row.
int duration(const std::vector<ChannelBlock>& blocks, int threads) {
  std::vector<int> busy(static_cast<std::size_t>(threads), 0);
  for (const ChannelBlock& block : blocks)
    *std::min_element(busy.begin(), busy.end()) += kVisitCost + block.vertex_width;
  return *std::max_element(busy.begin(), busy.end());
}

}  // namespace

LevelRange LevelRange::of(int channel, const float* extents, Levels levels) {
  const float least = levels.of(extents[0]), largest = levels.of(extents[1]);
  const int first = static_cast<int>(std::floor(least));
  const int last = static_cast<int>(std::ceil(largest));
  return {channel, first, least < largest ? last - first : 0};
}

// Wider blocks fill their vectors better and visit the vertices less often; narrow ones waste no
// lanes on missing labels and are easier to share: the best for one and for two threads together.
// (Not for the threads at hand: the lanes' order of summation would show in the last bits.)
LanePlan::LanePlan(const Lattice& lattice, const Scores& scores) {
  for (int c = 0; c < scores.channels; ++c) {
    const LevelRange range = LevelRange::of(c, scores.extents + 2 * c, scores.levels);
    if (range.slots > 0) ranges.push_back(range);
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const LevelRange& a, const LevelRange& b) { return a.slots > b.slots; });
  const auto cost = [](const std::vector<ChannelBlock>& some) {
    return 2 * duration(some, 1) + duration(some, 2);
  };
  const int levels = scores.levels.count;
  const int limit = vertex_width(most_lanes(lattice, scores.channels, levels), levels);
  for (int widest = kMostLanes; widest >= 1; widest /= 2) {
    auto some = cheapest_blocks(ranges, widest, limit);
    if (blocks.empty() || cost(some) < cost(blocks)) blocks = std::move(some);
  }
}

std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads) {
  if (channels == 0) return 0;
  const int lanes = most_lanes(lattice, channels, levels);
  const std::int64_t pixels =
      (LanePlan::kMostLanes - lanes) * lattice.pixels();  // few levels, many labels
  return std::max(workspace_floats(lattice, lanes, levels, false) + pixels,
                  threads * (workspace_floats(lattice, lanes, levels, true) + pixels));
}

}  // namespace densecrf
