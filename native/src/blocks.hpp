// Channels are filtered in blocks, side by side.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "block_filter.hpp"
#include "densecrf/filter.hpp"

namespace densecrf {

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

// Calls filter(block, pixels, run) for every block. run(before, splat, slice) filters it:
// before(begin, end) prepares pixels, the others are those of Sweep. Where one sweep does with
// windows of rows, each thread takes blocks of its own; otherwise, and where there are too few
// blocks, all threads work on one.
template <class Filter>
void each_block(const Lattice& lattice, const std::vector<Block>& blocks, BlurOrder order,
                Team& team, const Filter& filter) {
  constexpr std::int64_t kPixelGrain = 2048;
  if (blocks.empty()) return;
  const std::int64_t n = lattice.pixels();
  const auto count = static_cast<std::int64_t>(blocks.size());
  Block widest = blocks[0];
  for (const Block& block : blocks) {
    widest.pixel_width = std::max(widest.pixel_width, block.pixel_width);
    widest.vertex_width = std::max(widest.vertex_width, block.vertex_width);
  }
  auto shared = std::make_unique<Workspace>(lattice, widest, order, count >= team.size());
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
    if (!work) work = std::make_unique<Workspace>(lattice, widest, order, true);
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

}  // namespace densecrf
