// Filters channels in blocks, side by side.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "block_filter.hpp"
#include "densecrf/filter.hpp"

namespace densecrf {

// Some channels that are filtered side by side: rows of so many floats for pixels and for vertices.
struct ChannelBlock {
  int first;
  int count;
  int pixel_width;
  int vertex_width;
};

// The memory of one block: rows of pixels, and the filter's rows of vertices.
struct Workspace {
  Buffer<float> pixels;
  BlockFilter filter;
  Workspace(const Lattice& lattice, const ChannelBlock& widest, Blur blur, bool single_thread)
      : pixels(lattice.topology->pixel_buffers.take(lattice.pixels() * widest.pixel_width)),
        filter(lattice, widest.vertex_width, blur, single_thread),
        buffers_(lattice.topology->pixel_buffers) {}
  ~Workspace() { buffers_.give_back(std::move(pixels)); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  BufferCache& buffers_;
};

// Calls filter(block, pixels, run) for every block. run(before, splat, slice) filters it:
// before(begin, end) prepares rows of pixels, the others are those of BlockFilter. Each thread
// filters blocks of its own, in one sweep, where windows are small and there are blocks enough;
// otherwise all threads share each block, axis by axis.
template <class Filter>
void for_each_block(const Lattice& lattice, const std::vector<ChannelBlock>& blocks, Blur blur,
                    Team& team, const Filter& filter) {
  constexpr std::int64_t kPixelGrain = 2048;
  if (blocks.empty()) return;
  const std::int64_t n = lattice.pixels();
  const auto count = static_cast<std::int64_t>(blocks.size());
  ChannelBlock widest = blocks[0];
  for (const ChannelBlock& block : blocks) {
    widest.pixel_width = std::max(widest.pixel_width, block.pixel_width);
    widest.vertex_width = std::max(widest.vertex_width, block.vertex_width);
  }
  auto shared = std::make_unique<Workspace>(lattice, widest, blur, count >= team.size());
  if (!shared->filter.windowed()) {
    for (const ChannelBlock& block : blocks) {
      shared->filter.use_width(block.vertex_width);
      filter(block, shared->pixels.data(), [&](auto&& before, auto&& splat, auto&& slice) {
        team.run(n, kPixelGrain,
                 [&](std::int64_t begin, std::int64_t end, int) { before(begin, end); });
        shared->filter.axis_by_axis(splat, slice, team);
      });
    }
    return;
  }
  std::vector<std::unique_ptr<Workspace>> own(static_cast<std::size_t>(team.size()));
  own[0] = std::move(shared);
  team.run(count, 1, [&](std::int64_t b, std::int64_t, int thread) {
    const ChannelBlock& block = blocks[static_cast<std::size_t>(b)];
    auto& work = own[static_cast<std::size_t>(thread)];
    if (!work) work = std::make_unique<Workspace>(lattice, widest, blur, true);
    work->filter.use_width(block.vertex_width);
    filter(block, work->pixels.data(), [&](auto&& before, auto&& splat, auto&& slice) {
      for (std::int64_t a = 0; a < n; a += kPixelGrain) {
        before(a, std::min(n, a + kPixelGrain));
        team.checkpoint(thread);
      }
      work->filter.in_one_sweep(splat, slice, [&] { team.checkpoint(thread); });
    });
  });
}

}  // namespace densecrf
