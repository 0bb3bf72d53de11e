#include "densecrf/filter.hpp"

#include <algorithm>
#include <vector>

#include "channel_blocks.hpp"
#include "simd/row_kernels.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kTile = 64;  // pixels that are sliced together

// A block of channels as rows of pixels, and back.
void gather_rows(Plane<const float> in, int channels, int width, float* out, std::int64_t begin,
                 std::int64_t end) {
  if (in.pixel_stride == 1) {
    row_kernels().to_rows(in.data + begin, in.channel_stride, channels, width, out + begin * width,
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
    row_kernels().to_planes(in, channels, width, factor, accumulate, out.data + begin,
                            out.channel_stride, end - begin);
    return;
  }
  for (std::int64_t a = begin; a < end; ++a)
    for (int c = 0; c < channels; ++c) {
      float& target = out.data[c * out.channel_stride + a * out.pixel_stride];
      target = (accumulate ? target : 0.0f) + factor * in[(a - begin) * width + c];
    }
}

}  // namespace

void filter_plain(const Lattice& lattice, Plane<const float> in, Plane<float> out, int channels,
                  Blur blur, float factor, bool accumulate, Team& team) {
  constexpr int kBlock = 16;
  const RowKernels& r = row_kernels();
  const LatticeView view = lattice.view();
  const float scale = lattice.scale();
  std::vector<ChannelBlock> blocks;
  for (int first = 0; first < channels; first += kBlock) {
    const int count = std::min(kBlock, channels - first);
    blocks.push_back({first, count, row_width(count), row_width(count)});
  }
  for_each_block(lattice, blocks, blur, team,
                 [&](const ChannelBlock& block, float* pixels, auto&& run) {
                   const auto [first, count, width, same] = block;
                   const Plane<const float> from{in.data + first * in.channel_stride,
                                                 in.channel_stride, in.pixel_stride};
                   const Plane<float> to{out.data + first * out.channel_stride, out.channel_stride,
                                         out.pixel_stride};
                   run(
                       [&, count = count, width = width](std::int64_t begin, std::int64_t end) {
                         gather_rows(from, count, width, pixels, begin, end);
                       },
                       [&, width = width](float* vertices, std::int64_t begin, std::int64_t end) {
                         r.splat(view, pixels, vertices, width, begin, end);
                       },
                       [&, count = count, width = width](VertexRows vertices, std::int64_t begin,
                                                         std::int64_t end) {
                         float tile[kTile * kBlock];
                         for (std::int64_t a = begin; a < end; a += kTile) {
                           const std::int64_t stop = std::min(end, a + kTile);
                           r.slice(view, vertices, scale, false, tile, width, a, stop);
                           scatter_rows(tile, count, width, factor, accumulate, to, a, stop);
                         }
                       });
                 });
}

}  // namespace densecrf
