#include "densecrf/filter.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "densecrf/rows.hpp"
#include "sweep.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGenerous = 256 << 20;  // bytes of workspace that nobody will mind
constexpr std::int64_t kTile = 64;             // pixels that are sliced together
constexpr std::int64_t kPixelGrain = 2048;

// A block of channels as rows of pixels, and back.
void gather_rows(Plane<const float> in, int channels, int width, float* out, std::int64_t begin,
                 std::int64_t end) {
  if (in.pixel_stride == 1) {
    rows().to_rows(in.data + begin, in.channel_stride, channels, width, out + begin * width,
                   end - begin);
    return;
  }
  for (std::int64_t a = begin; a < end; ++a) {
    float* row = out + a * width;
    for (int c = 0; c < channels; ++c)
      row[c] = in.data[c * in.channel_stride + a * in.pixel_stride];
    std::fill(row + channels, row + width, 0.0f);
  }
}

void scatter_rows(const float* in, int channels, int width, float factor, bool accumulate,
                  Plane<float> out, std::int64_t begin, std::int64_t end) {
  if (out.pixel_stride == 1) {
    rows().to_planes(in, channels, width, factor, accumulate, out.data + begin, out.channel_stride,
                     end - begin);
    return;
  }
  for (std::int64_t a = begin; a < end; ++a)
    for (int c = 0; c < channels; ++c) {
      float& target = out.data[c * out.channel_stride + a * out.pixel_stride];
      target = (accumulate ? target : 0.0f) + factor * in[(a - begin) * width + c];
    }
}

// Some channels that are filtered side by side: rows of so many floats for pixels and for vertices.
struct Block {
  int first;
  int count;
  int pixel_width;
  int vertex_width;
};

// What one block needs: rows of pixels and a sweep.
struct Workspace {
  Buffer<float> pixels;
  Sweep sweep;
  Workspace(const Lattice& lattice, const Block& widest, BlurOrder order, bool alone)
      : pixels(lattice.topology->pixel_shelf.take(lattice.pixels() * widest.pixel_width)),
        sweep(lattice, widest.vertex_width, order, alone),
        shelf_(lattice.topology->pixel_shelf) {}
  ~Workspace() { shelf_.leave(std::move(pixels)); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Shelf& shelf_;
};

// Calls filter(block, pixels, run) for every block, of which the first is the widest.
// run(before, splat, slice) filters it: before(begin, end) prepares pixels, the others are those of
// Sweep. Where one sweep does with windows of rows, each thread takes blocks of its own; otherwise,
// and where there are too few blocks, all threads work on one.
template <class Filter>
void each_block(const Lattice& lattice, const std::vector<Block>& blocks, BlurOrder order,
                Team& team, const Filter& filter) {
  if (blocks.empty()) return;
  const std::int64_t n = lattice.pixels();
  const auto count = static_cast<std::int64_t>(blocks.size());
  auto shared = std::make_unique<Workspace>(lattice, blocks[0], order, count >= team.size());
  if (!shared->sweep.windowed()) {
    for (const Block& block : blocks) {
      shared->sweep.use_width(block.vertex_width);
      filter(block, shared->pixels.data(), [&](auto&& before, auto&& splat, auto&& slice) {
        team.run(n, kPixelGrain,
                 [&](std::int64_t begin, std::int64_t end, int) { before(begin, end); });
        shared->sweep.by_lines(splat, slice, team);
      });
    }
    return;
  }
  std::vector<std::unique_ptr<Workspace>> own(static_cast<std::size_t>(team.size()));
  own[0] = std::move(shared);
  team.run(count, 1, [&](std::int64_t b, std::int64_t, int thread) {
    const Block& block = blocks[static_cast<std::size_t>(b)];
    auto& work = own[static_cast<std::size_t>(thread)];
    if (!work) work = std::make_unique<Workspace>(lattice, blocks[0], order, true);
    work->sweep.use_width(block.vertex_width);
    filter(block, work->pixels.data(), [&](auto&& before, auto&& splat, auto&& slice) {
      for (std::int64_t a = 0; a < n; a += kPixelGrain) {
        before(a, std::min(n, a + kPixelGrain));
        team.checkpoint(thread);
      }
      work->sweep.in_one(splat, slice, [&] { team.checkpoint(thread); });
    });
  });
}

}  // namespace

void filter_plain(const Lattice& lattice, Plane<const float> in, Plane<float> out, int channels,
                  BlurOrder order, float factor, bool accumulate, Team& team) {
  constexpr int kBlock = 16;
  const Rows& r = rows();
  const LatticeView view = lattice.view();
  const float scale = lattice.scale();
  std::vector<Block> blocks;
  for (int first = 0; first < channels; first += kBlock) {
    const int count = std::min(kBlock, channels - first);
    blocks.push_back({first, count, row_width(count), row_width(count)});
  }
  each_block(lattice, blocks, order, team, [&](const Block& block, float* pixels, auto&& run) {
    const auto [first, count, width, same] = block;
    const Plane<const float> from{in.data + first * in.channel_stride, in.channel_stride,
                                  in.pixel_stride};
    const Plane<float> to{out.data + first * out.channel_stride, out.channel_stride,
                          out.pixel_stride};
    run(
        [&, count = count, width = width](std::int64_t begin, std::int64_t end) {
          gather_rows(from, count, width, pixels, begin, end);
        },
        [&, width = width](float* vertices, std::int64_t begin, std::int64_t end) {
          r.splat(view, pixels, vertices, width, begin, end);
        },
        [&, count = count, width = width](RowsView vertices, std::int64_t begin, std::int64_t end) {
          float tile[kTile * kBlock];
          for (std::int64_t a = begin; a < end; a += kTile) {
            const std::int64_t stop = std::min(end, a + kTile);
            r.slice(view, vertices, scale, false, tile, width, a, stop);
            scatter_rows(tile, count, width, factor, accumulate, to, a, stop);
          }
        });
  });
}

namespace {

int vertex_width(int lanes, int levels) {
  return Rows::kVector * row_vectors(levels - 1, lanes);
}

// Floats of workspace for `lanes` labels side by side.
std::int64_t ordered_floats(const Lattice& lattice, int lanes, int levels, bool windowed) {
  return Sweep::floats(lattice, vertex_width(lanes, levels), windowed) + lanes * lattice.pixels();
}

// Most labels that are filtered side by side: eight, or four where the rows of eight would take too
// much memory.
int most_lanes(const Lattice& lattice, int channels, int levels) {
  const std::int64_t bytes = 4 * ordered_floats(lattice, 8, levels, false);
  const std::int64_t scores = 4 * channels * lattice.pixels();
  return bytes > std::max(kGenerous, 2 * scores) ? 4 : 8;
}

// Blocks of at most `widest` labels, the rest in narrower ones but not below `narrowest`.
std::vector<Block> split_labels(int channels, int levels, int widest, int narrowest) {
  std::vector<Block> blocks;
  int lanes = widest;
  for (int first = 0; first < channels; first += lanes) {
    while (lanes > narrowest && lanes > channels - first) lanes /= 2;
    blocks.push_back(
        {first, std::min(lanes, channels - first), lanes, vertex_width(lanes, levels)});
  }
  return blocks;
}

// How long threads take that fetch one block after the other, in floats of a row.
int duration(const std::vector<Block>& blocks, int threads) {
  constexpr int kWalk = 16;  // what walking over the lattice costs
  std::vector<int> busy(static_cast<std::size_t>(threads), 0);
  for (const Block& block : blocks)
    *std::min_element(busy.begin(), busy.end()) += kWalk + block.vertex_width;
  return *std::max_element(busy.begin(), busy.end());
}

// Wider blocks fill their vectors better and walk less often, narrow ones waste no lanes on labels
// that are not there and are easier to share: what is best for one and for two threads together.
// (Not for those at hand: the lanes' order of summation would show in the last bits.)
std::vector<Block> label_blocks(const Lattice& lattice, int channels, int levels) {
  const auto cost = [](const std::vector<Block>& blocks) {
    return 2 * duration(blocks, 1) + duration(blocks, 2);
  };
  std::vector<Block> best;
  for (int widest = most_lanes(lattice, channels, levels); widest >= 1; widest /= 2)
    for (int narrowest = widest; narrowest >= 1; narrowest /= 2) {
      auto blocks = split_labels(channels, levels, widest, narrowest);
      if (best.empty() || cost(blocks) < cost(best)) best = std::move(blocks);
    }
  return best;
}

// The levels of `count` labels as rows of `lanes`; level 0 where there is no label.
void level_rows(const float* scores, std::int64_t n, int count, int lanes, Levels levels,
                float* out, std::int64_t begin, std::int64_t end) {
  float tile[8 * kTile];
  for (std::int64_t first = begin; first < end; first += kTile) {
    const std::int64_t pixels = std::min(end - first, kTile);
    for (int c = 0; c < count; ++c)
      for (std::int64_t a = 0; a < pixels; ++a)
        tile[c * kTile + a] = levels.of(scores[c * n + first + a]);
    rows().to_rows(tile, kTile, count, lanes, out + first * lanes, pixels);
  }
}

}  // namespace

std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads) {
  if (channels == 0) return 0;
  const int lanes = label_blocks(lattice, channels, levels)[0].pixel_width;
  return std::max(ordered_floats(lattice, lanes, levels, false),
                  threads * ordered_floats(lattice, lanes, levels, true));
}

void filter_ordered(const Lattice& lattice, const float* scores, float* out, int channels,
                    Levels levels, const float* mass, BlurOrder order, float factor,
                    bool accumulate, Team& team) {
  const Rows& r = rows();
  const LatticeView view = lattice.view();
  const std::int64_t n = lattice.pixels();
  const float scale = lattice.scale();
  const auto blocks = label_blocks(lattice, channels, levels.count);
  each_block(lattice, blocks, order, team, [&](const Block& block, float* t, auto&& run) {
    const int lanes = block.pixel_width, vectors = block.vertex_width / Rows::kVector;
    const Plane<float> to{out + block.first * n, n, 1};
    run(
        [&](std::int64_t begin, std::int64_t end) {
          level_rows(scores + block.first * n, n, block.count, lanes, levels, t, begin, end);
        },
        [&](float* vertices, std::int64_t begin, std::int64_t end) {
          r.splat_levels(view, t, vertices, vectors, lanes, begin, end);
        },
        [&](RowsView vertices, std::int64_t begin, std::int64_t end) {
          float tile[kTile * 8];
          for (std::int64_t a = begin; a < end; a += kTile) {
            const std::int64_t stop = std::min(end, a + kTile);
            r.slice_levels(view, vertices, t, mass, vectors, lanes, scale, tile, a, stop);
            scatter_rows(tile, block.count, lanes, factor, accumulate, to, a, stop);
          }
        });
  });
}

}  // namespace densecrf
