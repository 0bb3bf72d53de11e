// Filtering in the order of the scores, all levels of some labels in one pass.
#include <algorithm>
#include <cmath>
#include <vector>

#include "blocks.hpp"
#include "densecrf/filter.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGenerous = 4 << 20;  // bytes of workspace that nobody will mind
constexpr std::int64_t kTile = 64;           // pixels that are sliced together
constexpr int kMostLanes = Rows::kVector;

int vertex_width(int lanes, int levels) {
  return Rows::kVector * row_vectors(levels - 1, lanes);
}

// Floats of workspace for `lanes` labels side by side.
std::int64_t ordered_floats(const Lattice& lattice, int lanes, int levels, bool windowed) {
  return Sweep::floats(lattice, vertex_width(lanes, levels), windowed) + lanes * lattice.pixels();
}

// Most labels that are filtered side by side over all levels: eight, or four where the rows of
// eight would take too much memory.
int most_lanes(const Lattice& lattice, int channels, int levels) {
  const std::int64_t bytes = 4 * ordered_floats(lattice, 8, levels, false);
  const std::int64_t scores = 4 * channels * lattice.pixels();
  return bytes > std::max(kGenerous, 3 * scores) ? 4 : 8;
}

// The levels that a channel's scores lie between. Scores within one cell, as those of labels that
// matter nowhere, need two levels, whatever the number of all.
struct Span {
  int channel;
  int first;
  int slots;  // one less than its levels; none where all scores have one level

  static Span of(int channel, const float* extents, Levels levels) {
    const float least = levels.of(extents[0]), largest = levels.of(extents[1]);
    const int first = static_cast<int>(std::floor(least));
    const int last = static_cast<int>(std::ceil(largest));
    return {channel, first, least < largest ? last - first : 0};
  }
};

// Those that have an order, the longest first.
std::vector<Span> spans_of(const float* extents, int channels, Levels levels) {
  std::vector<Span> spans;
  for (int c = 0; c < channels; ++c) {
    const Span span = Span::of(c, extents + 2 * c, levels);
    if (span.slots > 0) spans.push_back(span);
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.slots > b.slots; });
  return spans;
}

constexpr int kWalk = 8;  // what walking over the lattice costs, in floats of a row

// The cheapest blocks of at most `widest` labels, with rows of at most `limit` floats: from the
// last span to the first, the best way to begin with a block there.
std::vector<Block> split_spans(const std::vector<Span>& spans, int widest, int limit) {
  const int count = static_cast<int>(spans.size());
  std::vector<std::pair<int, int>> best(static_cast<std::size_t>(count) + 1, {0, 0});
  for (int first = count - 1; first >= 0; --first) {
    auto& [cost, chosen] = best[static_cast<std::size_t>(first)];
    const int slots = spans[static_cast<std::size_t>(first)].slots;
    for (int lanes = widest; lanes >= 1; lanes /= 2) {
      const int width = vertex_width(lanes, slots + 1);
      if (width > limit && lanes > 1) continue;
      const int rest = best[static_cast<std::size_t>(std::min(count, first + lanes))].first;
      if (chosen == 0 || kWalk + width + rest < cost) {
        cost = kWalk + width + rest;
        chosen = lanes;
      }
    }
  }
  std::vector<Block> blocks;
  for (int first = 0; first < count;) {
    const int lanes = best[static_cast<std::size_t>(first)].second;
    const int slots = spans[static_cast<std::size_t>(first)].slots;
    blocks.push_back(
        {first, std::min(lanes, count - first), lanes, vertex_width(lanes, slots + 1)});
    first += lanes;
  }
  return blocks;
}

// How long threads take that fetch one block after the other, in floats of a row.
int duration(const std::vector<Block>& blocks, int threads) {
  std::vector<int> busy(static_cast<std::size_t>(threads), 0);
  for (const Block& block : blocks)
    *std::min_element(busy.begin(), busy.end()) += kWalk + block.vertex_width;
  return *std::max_element(busy.begin(), busy.end());
}

// Wider blocks fill their vectors better and walk less often, narrow ones waste no lanes on labels
// that are not there and are easier to share: what is best for one and for two threads together.
// (Not for those at hand: the lanes' order of summation would show in the last bits.)
std::vector<Block> label_blocks(const Lattice& lattice, int channels, int levels,
                                const std::vector<Span>& spans) {
  const auto cost = [](const std::vector<Block>& blocks) {
    return 2 * duration(blocks, 1) + duration(blocks, 2);
  };
  const int limit = vertex_width(most_lanes(lattice, channels, levels), levels);
  std::vector<Block> best;
  for (int widest = kMostLanes; widest >= 1; widest /= 2) {
    auto blocks = split_spans(spans, widest, limit);
    if (best.empty() || cost(blocks) < cost(best)) best = std::move(blocks);
  }
  return best;
}

// The levels of some labels, counted from their first, as rows of `lanes`; 0 where there is no
// label.
void level_rows(const float* scores, const float* offsets, std::int64_t n, const Span* spans,
                int count, int lanes, Levels levels, float* out, std::int64_t begin,
                std::int64_t end) {
  float tile[kMostLanes * kTile];
  for (std::int64_t first = begin; first < end; first += kTile) {
    const std::int64_t pixels = std::min(end - first, kTile);
    for (int c = 0; c < count; ++c) {
      const float* plane = scores + spans[c].channel * n + first;
      const auto lowest = static_cast<float>(spans[c].first);
      if (const float* offset = offsets ? offsets + (plane - scores) : nullptr)
        for (std::int64_t a = 0; a < pixels; ++a)
          tile[c * kTile + a] = levels.within(plane[a] + offset[a]) - lowest;
      else
        for (std::int64_t a = 0; a < pixels; ++a)
          tile[c * kTile + a] = levels.within(plane[a]) - lowest;
      if (levels.hard)
        for (std::int64_t a = 0; a < pixels; ++a)
          tile[c * kTile + a] = static_cast<float>(static_cast<int>(tile[c * kTile + a]));
    }
    rows().to_rows(tile, kTile, count, lanes, out + first * lanes, pixels);
  }
}

// Rows of `lanes` labels are added to their planes.
void return_rows(const float* rows_of_pixels, const Span* spans, int count, int lanes, float factor,
                 float* out, std::int64_t n, std::int64_t begin, std::int64_t end) {
  float tile[kMostLanes * kTile];
  rows().to_planes(rows_of_pixels, count, lanes, factor, false, tile, kTile, end - begin);
  for (int c = 0; c < count; ++c) {
    float* plane = out + spans[c].channel * n + begin;
    for (std::int64_t a = 0; a < end - begin; ++a) plane[a] += tile[c * kTile + a];
  }
}

}  // namespace

std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads) {
  if (channels == 0) return 0;
  const int lanes = most_lanes(lattice, channels, levels);
  const std::int64_t pixels = (kMostLanes - lanes) * lattice.pixels();  // few levels, many labels
  return std::max(ordered_floats(lattice, lanes, levels, false) + pixels,
                  threads * (ordered_floats(lattice, lanes, levels, true) + pixels));
}

void filter_ordered(const Lattice& lattice, const float* scores, const float* offsets,
                    const float* extents, float* out, int channels, Levels levels,
                    const float* mass, BlurOrder order, float factor, bool accumulate, Team& team) {
  const Rows& r = rows();
  const LatticeView view = lattice.view();
  const std::int64_t n = lattice.pixels();
  const float scale = lattice.scale();
  if (!accumulate) std::fill(out, out + channels * n, 0.0f);
  const auto spans = spans_of(extents, channels, levels);
  const auto blocks = label_blocks(lattice, channels, levels.count, spans);
  each_block(lattice, blocks, order, team, [&](const Block& block, float* t, auto&& run) {
    const int lanes = block.pixel_width, vectors = block.vertex_width / Rows::kVector;
    const Span* own = spans.data() + block.first;
    run(
        [&](std::int64_t begin, std::int64_t end) {
          level_rows(scores, offsets, n, own, block.count, lanes, levels, t, begin, end);
        },
        [&](float* vertices, std::int64_t begin, std::int64_t end) {
          r.splat_levels(view, t, vertices, vectors, lanes, begin, end);
        },
        [&](RowsView vertices, std::int64_t begin, std::int64_t end) {
          float tile[kTile * kMostLanes];
          for (std::int64_t a = begin; a < end; a += kTile) {
            const std::int64_t stop = std::min(end, a + kTile);
            r.slice_levels(view, vertices, t, mass, vectors, lanes, scale, tile, a, stop);
            return_rows(tile, own, block.count, lanes, factor, out, n, a, stop);
          }
        });
  });
}

}  // namespace densecrf
