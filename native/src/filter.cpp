#include "densecrf/filter.hpp"

#include <algorithm>
#include <vector>

#include "densecrf/rows.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kVertexGrain = 2048;
constexpr std::int64_t kPixelGrain = 4096;
constexpr int kApron = 16;  // floats before and after the rows that a slice may touch

// Runs a loop over a range on all threads of a team.
struct Loop {
  Team* team;
  template <class F>
  void operator()(std::int64_t n, std::int64_t grain, F&& body) const {
    team->run(n, grain, [&](std::int64_t b, std::int64_t e, int) { body(b, e); });
  }
};

// Three arrays of one row a vertex (and a row of zeros for missing neighbours).
class Workspace {
 public:
  Workspace(const Lattice& lattice, int width)
      : width_(width),
        vertices_(lattice.vertices()),
        size_(static_cast<std::int64_t>(vertices_ + 1) * width + 2 * kApron),
        buffers_{{lattice.topology->scratch, size_},
                 {lattice.topology->scratch, size_},
                 {lattice.topology->scratch, size_}} {
    for (auto& buffer : buffers_) {
      std::fill(buffer.data(), buffer.data() + kApron, 0.0f);
      std::fill(buffer.data() + size_ - kApron - width, buffer.data() + size_, 0.0f);
    }
  }
  float* splatted() { return row(0); }

  // Blurs what lies in splatted(); returns where the result is. Doubled in the symmetric order: the
  // sum of both, not their mean.
  const float* blur(const Topology& topology, BlurOrder order, const Loop& loop) {
    const int d = topology.dimension;
    const Rows& r = rows();
    const auto pass = [&](int axis, const float* in, const float* add, float* out) {
      loop(vertices_, kVertexGrain, [&](std::int64_t begin, std::int64_t end) {
        r.blur(topology.axis(axis), in, add, out, width_, begin, end);
      });
    };
    const float* forward = row(0);
    for (int j = 0; j <= d; ++j) {
      float* out = row(j % 2 == 0 ? 1 : 2);
      pass(j, forward, nullptr, out);
      forward = out;
    }
    if (order == BlurOrder::kForward) return forward;
    float* free[2] = {row(0), forward == row(1) ? row(2) : row(1)};
    const float* in = free[0];
    for (int j = d; j >= 0; --j) {
      float* out = in == free[0] ? free[1] : free[0];
      pass(j, in, j == 0 ? forward : nullptr, out);
      in = out;
    }
    return in;
  }

 private:
  float* row(int which) { return buffers_[which].data() + kApron; }
  int width_;
  std::int32_t vertices_;
  std::int64_t size_;
  Borrowed buffers_[3];
};

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

}  // namespace

void filter_plain(const Lattice& lattice, Plane<const float> in, Plane<float> out, int channels,
                  BlurOrder order, float factor, bool accumulate, Team& team) {
  constexpr int kBlock = 16;
  constexpr std::int64_t kTile = 64;
  const Rows& r = rows();
  const std::int64_t n = lattice.pixels();
  const int widest = row_width(std::min(channels, kBlock));
  Borrowed pixels(lattice.topology->scratch, n * widest);
  Workspace work(lattice, widest);
  const Loop loop{&team};
  for (int first = 0; first < channels; first += kBlock) {
    const int count = std::min(kBlock, channels - first);
    const int width = widest;
    const Plane<const float> from{in.data + first * in.channel_stride, in.channel_stride,
                                  in.pixel_stride};
    const Plane<float> to{out.data + first * out.channel_stride, out.channel_stride,
                          out.pixel_stride};
    loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
      gather_rows(from, count, width, pixels.data(), begin, end);
    });
    loop(lattice.vertices(), kVertexGrain, [&](std::int64_t begin, std::int64_t end) {
      r.splat(lattice.view(), pixels.data(), work.splatted(), width, begin, end);
    });
    const float* blurred = work.blur(*lattice.topology, order, loop);
    const float scale = mean_scale(lattice, order);
    loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
      float tile[kTile * kBlock];
      for (std::int64_t a = begin; a < end; a += kTile) {
        const std::int64_t stop = std::min(end, a + kTile);
        r.slice(lattice.view(), blurred, scale, tile, width, a, stop);
        scatter_rows(tile, count, width, factor, accumulate, to, a, stop);
      }
    });
  }
}

namespace {

// How labels share a row: as many side by side as fill its lanes best. Wide rows make the blur's
// random access worth its while; where vertices are many, narrower ones bound the workspace.
struct Packing {
  int labels;
  int width;

  Packing(const Lattice& lattice, int channels, int levels) {
    const int each = levels - 1;
    const std::int64_t vertices = lattice.vertices();
    const int lanes = 4 * vertices <= lattice.pixels() ? 64 : 48;
    const int most = std::clamp(lanes / each, 1, std::min(channels, LevelBlock::kLabels));
    const int blocks = (channels + most - 1) / most;
    labels = (channels + blocks - 1) / blocks;
    width = (labels * each + 15) / 16 * 16;
  }
};

// The lanes' labels and floors of a block.
class Lanes {
 public:
  Lanes(const Packing& packing, int levels) : label_(packing.width), floor_(packing.width) {
    const int each = levels - 1;
    for (int l = 0; l < packing.width; ++l) {
      const bool used = l < packing.labels * each;
      label_[l] = used ? l / each : 0;
      floor_[l] = used ? static_cast<float>(l % each) : static_cast<float>(levels);
    }
  }
  LevelBlock block(const Packing& packing, int labels, int levels) const {
    return {labels, levels, packing.width, label_.data(), floor_.data()};
  }

 private:
  Buffer<std::int32_t> label_;
  Buffer<float> floor_;
};

// Labels whose scores are not all in one place: the others' output is zero.
std::vector<int> labels_in_order(const float* scores, int channels, std::int64_t n, Levels levels,
                                 Team& team) {
  std::vector<char> flat(static_cast<std::size_t>(channels), 1);
  team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t c = begin; c < end; ++c) {
      const float first = levels.of(scores[c * n]);
      for (std::int64_t a = 0; a < n && flat[c]; ++a)
        flat[c] = levels.of(scores[c * n + a]) == first;
    }
  });
  std::vector<int> active;
  for (int c = 0; c < channels; ++c)
    if (!flat[c]) active.push_back(c);
  return active;
}

// The levels of a block's labels, a row a pixel.
void level_rows(const float* const* scores, int labels, Levels levels, float* t, std::int64_t begin,
                std::int64_t end) {
  constexpr std::int64_t kTile = 256;
  float line[LevelBlock::kLabels][kTile] = {};
  for (std::int64_t tile = begin; tile < end; tile += kTile) {
    const std::int64_t count = std::min(kTile, end - tile);
    for (int g = 0; g < labels; ++g)
      for (std::int64_t a = 0; a < count; ++a) line[g][a] = levels.of(scores[g][tile + a]);
    for (std::int64_t a = 0; a < count; ++a)
      for (int g = 0; g < LevelBlock::kLabels; ++g)
        t[(tile + a) * LevelBlock::kLabels + g] = line[g][a];
  }
}

}  // namespace

std::int64_t ordered_workspace(const Lattice& lattice, int levels) {
  const Packing widest(lattice, LevelBlock::kLabels, levels);
  return 3 * static_cast<std::int64_t>(lattice.vertices() + 1) * widest.width +
         LevelBlock::kLabels * lattice.pixels();
}

void filter_ordered(const Lattice& lattice, const float* scores, float* out, int channels,
                    Levels levels, const float* mass, BlurOrder order, float factor,
                    bool accumulate, Team& team) {
  const Rows& r = rows();
  const std::int64_t n = lattice.pixels();
  const LatticeView view = lattice.view();
  const std::vector<int> active = labels_in_order(scores, channels, n, levels, team);
  if (!accumulate) std::fill(out, out + channels * n, 0.0f);
  if (active.empty()) return;
  const Packing packing(lattice, static_cast<int>(active.size()), levels.count);
  const Lanes lanes(packing, levels.count);
  const Loop loop{&team};
  Workspace work(lattice, packing.width);
  Borrowed t(lattice.topology->scratch, n * LevelBlock::kLabels);
  const float scale = mean_scale(lattice, order);
  for (std::size_t first = 0; first < active.size(); first += packing.labels) {
    const int count =
        static_cast<int>(std::min<std::size_t>(packing.labels, active.size() - first));
    const LevelBlock block = lanes.block(packing, count, levels.count);
    const float* from[LevelBlock::kLabels];
    float* to[LevelBlock::kLabels];
    for (int g = 0; g < count; ++g) {
      from[g] = scores + active[first + g] * n;
      to[g] = out + active[first + g] * n;
    }
    loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
      level_rows(from, count, levels, t.data(), begin, end);
    });
    loop(lattice.vertices(), kVertexGrain, [&](std::int64_t begin, std::int64_t end) {
      r.splat_levels(view, block, t.data(), work.splatted(), begin, end);
    });
    const float* blurred = work.blur(*lattice.topology, order, loop);
    loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
      r.slice_levels(view, block, blurred, t.data(), mass, scale, factor, accumulate, to, begin,
                     end);
    });
  }
}

}  // namespace densecrf
