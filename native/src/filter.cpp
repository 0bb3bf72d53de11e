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

float mean_scale(const Lattice& lattice, BlurOrder order) {
  return lattice.scale() * (order == BlurOrder::kSymmetric ? 0.5f : 1.0f);
}

// A block of channels as rows of pixels, and back: the strided side is walked in small tiles.
void gather_rows(Plane<const float> in, int channels, int width, float* out, std::int64_t begin,
                 std::int64_t end) {
  for (std::int64_t a = begin; a < end; ++a) {
    float* row = out + a * width;
    for (int c = 0; c < channels; ++c)
      row[c] = in.data[c * in.channel_stride + a * in.pixel_stride];
    std::fill(row + channels, row + width, 0.0f);
  }
}

void scatter_rows(const float* in, int channels, int width, float factor, bool accumulate,
                  Plane<float> out, std::int64_t begin, std::int64_t end) {
  for (int c = 0; c < channels; ++c) {
    float* to = out.data + c * out.channel_stride;
    for (std::int64_t a = begin; a < end; ++a) {
      const float value = factor * in[(a - begin) * width + c];
      float& target = to[a * out.pixel_stride];
      target = accumulate ? target + value : value;
    }
  }
}

// What one block of channels needs: rows of pixels and a sweep.
struct Widths {
  int pixels;
  int vertices;
};
struct Workspace {
  Buffer<float> pixels;
  Sweep sweep;
  Workspace(const Lattice& lattice, Widths widths, BlurOrder order, bool alone)
      : pixels(lattice.pixels() * widths.pixels), sweep(lattice, widths.vertices, order, alone) {}
};

// Calls block(first, workspace, run) for the blocks of `step` channels. run(before, splat, slice)
// filters one: before(begin, end) prepares pixels, the others are those of Sweep. Where one sweep
// does with windows of rows, each thread takes blocks of its own; otherwise, and where there are
// too few blocks, all threads work on one.
template <class Block>
void each_block(const Lattice& lattice, int channels, int step, Widths widths, BlurOrder order,
                Team& team, const Block& block) {
  const std::int64_t n = lattice.pixels();
  const std::int64_t blocks = (channels + step - 1) / step;
  auto shared = std::make_unique<Workspace>(lattice, widths, order, blocks >= team.size());
  if (!shared->sweep.windowed()) {
    for (std::int64_t b = 0; b < blocks; ++b)
      block(static_cast<int>(b) * step, *shared, [&](auto&& before, auto&& splat, auto&& slice) {
        team.run(n, kPixelGrain,
                 [&](std::int64_t begin, std::int64_t end, int) { before(begin, end); });
        shared->sweep.by_stages(splat, slice, team);
      });
    return;
  }
  std::vector<std::unique_ptr<Workspace>> own(static_cast<std::size_t>(team.size()));
  own[0] = std::move(shared);
  team.run(blocks, 1, [&](std::int64_t b, std::int64_t, int thread) {
    auto& work = own[static_cast<std::size_t>(thread)];
    if (!work) work = std::make_unique<Workspace>(lattice, widths, order, true);
    block(static_cast<int>(b) * step, *work, [&](auto&& before, auto&& splat, auto&& slice) {
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
  const int width = row_width(std::min(channels, kBlock));
  const float scale = mean_scale(lattice, order);
  each_block(lattice, channels, kBlock, {width, width}, order, team,
             [&](int first, Workspace& work, auto&& run) {
               const int count = std::min(kBlock, channels - first);
               const Plane<const float> from{in.data + first * in.channel_stride, in.channel_stride,
                                             in.pixel_stride};
               const Plane<float> to{out.data + first * out.channel_stride, out.channel_stride,
                                     out.pixel_stride};
               run(
                   [&](std::int64_t begin, std::int64_t end) {
                     gather_rows(from, count, width, work.pixels.data(), begin, end);
                   },
                   [&](float* vertices, std::int64_t begin, std::int64_t end) {
                     r.splat(view, work.pixels.data(), vertices, width, begin, end);
                   },
                   [&](RowsView vertices, std::int64_t begin, std::int64_t end) {
                     float tile[kTile * kBlock];
                     for (std::int64_t a = begin; a < end; a += kTile) {
                       const std::int64_t stop = std::min(end, a + kTile);
                       r.slice(view, vertices, scale, tile, width, a, stop);
                       scatter_rows(tile, count, width, factor, accumulate, to, a, stop);
                     }
                   });
             });
}

namespace {

// Floats of workspace for `lanes` labels side by side.
std::int64_t ordered_floats(const Lattice& lattice, int lanes, int levels) {
  return Sweep::floats(lattice, lanes * (levels - 1), false) + lanes * lattice.pixels();
}

// Labels that are filtered side by side: eight, or four where there are no more of them, where the
// rows of eight would take too much memory, or where the threads would share the blocks unevenly.
int label_lanes(const Lattice& lattice, int channels, int levels, int threads) {
  const std::int64_t bytes = 4 * ordered_floats(lattice, 8, levels);
  const std::int64_t scores = 4 * channels * lattice.pixels();
  if (channels <= 4 || bytes > std::max(kGenerous, 2 * scores)) return 4;
  const auto rounds = [&](int lanes) {
    const int blocks = (channels + lanes - 1) / lanes;
    return (blocks + threads - 1) / threads;
  };
  return 10 * rounds(8) <= 7 * rounds(4) ? 8 : 4;
}

// The levels of `count` labels as rows of `lanes`; level 0 where there is no label.
void level_rows(const float* scores, std::int64_t n, int count, int lanes, Levels levels,
                float* out, std::int64_t begin, std::int64_t end) {
  for (std::int64_t tile = begin; tile < end; tile += kTile)
    for (int c = 0; c < lanes; ++c)
      for (std::int64_t a = tile; a < std::min(end, tile + kTile); ++a)
        out[a * lanes + c] = c < count ? levels.of(scores[c * n + a]) : 0.0f;
}

}  // namespace

std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads) {
  const int lanes = label_lanes(lattice, channels, levels, threads);
  const std::int64_t windows =
      Sweep::floats(lattice, lanes * (levels - 1), true) + lanes * lattice.pixels();
  return std::max(ordered_floats(lattice, lanes, levels), threads * windows);
}

void filter_ordered(const Lattice& lattice, const float* scores, float* out, int channels,
                    Levels levels, const float* mass, BlurOrder order, float factor,
                    bool accumulate, Team& team) {
  const int lanes = label_lanes(lattice, channels, levels.count, team.size());
  const int slots = levels.count - 1;
  const Rows& r = rows();
  const LatticeView view = lattice.view();
  const std::int64_t n = lattice.pixels();
  const float scale = mean_scale(lattice, order);
  each_block(lattice, channels, lanes, {lanes, slots * lanes}, order, team,
             [&](int first, Workspace& work, auto&& run) {
               const int count = std::min(lanes, channels - first);
               const Plane<float> to{out + first * n, n, 1};
               float* t = work.pixels.data();
               run(
                   [&](std::int64_t begin, std::int64_t end) {
                     level_rows(scores + first * n, n, count, lanes, levels, t, begin, end);
                   },
                   [&](float* vertices, std::int64_t begin, std::int64_t end) {
                     r.splat_levels(view, t, vertices, slots, lanes, begin, end);
                   },
                   [&](RowsView vertices, std::int64_t begin, std::int64_t end) {
                     float tile[kTile * 8];
                     for (std::int64_t a = begin; a < end; a += kTile) {
                       const std::int64_t stop = std::min(end, a + kTile);
                       r.slice_levels(view, vertices, t, mass, slots, lanes, scale, tile, a, stop);
                       scatter_rows(tile, count, lanes, factor, accumulate, to, a, stop);
                     }
                   });
             });
}

}  // namespace densecrf
