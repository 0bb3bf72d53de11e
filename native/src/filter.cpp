#include "densecrf/filter.hpp"

#include <algorithm>
#include <vector>

#include "densecrf/rows.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kVertexGrain = 2048;
constexpr std::int64_t kPixelGrain = 4096;
constexpr std::int64_t kShortLabel = 100'000'000;  // floats touched: some 0.1 s
constexpr int kApron = 16;  // floats before and after the rows that a slice may touch

// Runs a loop over a range either on all threads of a team or on the calling thread alone.
struct Loop {
  Team* team;  // null: alone
  template <class F>
  void operator()(std::int64_t n, std::int64_t grain, F&& body) const {
    if (team) {
      team->run(n, grain, [&](std::int64_t b, std::int64_t e, int) { body(b, e); });
    } else {
      body(std::int64_t{0}, n);
    }
  }
};

// Three arrays of one row a vertex (and a row of zeros for missing neighbours).
class Workspace {
 public:
  Workspace(const Lattice& lattice, int width) : width_(width), vertices_(lattice.vertices()) {
    const std::int64_t size = static_cast<std::int64_t>(vertices_ + 1) * width + 2 * kApron;
    for (auto& buffer : buffers_) {
      buffer.reset(size);
      std::fill(buffer.data(), buffer.data() + kApron, 0.0f);
      std::fill(buffer.data() + size - kApron - width, buffer.data() + size, 0.0f);
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
  Buffer<float> buffers_[3];
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
  Buffer<float> pixels(n * widest);
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

// One label: scores to levels, splat, blur, slice.
void filter_one_ordered(const Lattice& lattice, const float* scores, float* out, Levels levels,
                        const float* mass, BlurOrder order, float factor, bool accumulate,
                        Workspace& work, float* t, int width, const Loop& loop) {
  const Rows& r = rows();
  const std::int64_t n = lattice.pixels();
  loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t a = begin; a < end; ++a) t[a] = levels.of(scores[a]);
  });
  loop(lattice.vertices(), kVertexGrain, [&](std::int64_t begin, std::int64_t end) {
    r.splat_levels(lattice.view(), t, work.splatted(), width, begin, end);
  });
  const float* blurred = work.blur(*lattice.topology, order, loop);
  const float scale = mean_scale(lattice, order);
  loop(n, kPixelGrain, [&](std::int64_t begin, std::int64_t end) {
    r.slice_levels(lattice.view(), blurred, t, mass, levels.count, scale, factor, accumulate, out,
                   width, begin, end);
  });
}

}  // namespace

std::int64_t ordered_workspace(const Lattice& lattice, int levels) {
  return 3 * static_cast<std::int64_t>(lattice.vertices() + 1) * row_width(levels - 1) +
         lattice.pixels();
}

void filter_ordered(const Lattice& lattice, const float* scores, float* out, int channels,
                    Levels levels, const float* mass, BlurOrder order, float factor,
                    bool accumulate, Team& team) {
  const std::int64_t n = lattice.pixels();
  const int width = row_width(levels.count - 1);
  const auto one = [&](std::int64_t c, Workspace& work, float* t, const Loop& loop) {
    filter_one_ordered(lattice, scores + c * n, out + c * n, levels, mass, order, factor,
                       accumulate, work, t, width, loop);
  };
  // A label a thread needs no barriers, but one long label must not keep Ctrl-C waiting.
  const std::int64_t rows_touched = (n + 2 * lattice.vertices()) * (lattice.dimension() + 1);
  const bool short_labels = rows_touched < kShortLabel / width;
  if (channels >= 2 * team.size() && short_labels && team.size() > 1) {
    std::vector<std::unique_ptr<Workspace>> works(static_cast<std::size_t>(team.size()));
    std::vector<Buffer<float>> ts(works.size());
    team.run(channels, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      auto& work = works[static_cast<std::size_t>(thread)];
      auto& t = ts[static_cast<std::size_t>(thread)];
      if (!work) {
        work = std::make_unique<Workspace>(lattice, width);
        t.reset(n);
      }
      for (std::int64_t c = begin; c < end; ++c) one(c, *work, t.data(), Loop{nullptr});
    });
    return;
  }
  Workspace work(lattice, width);
  Buffer<float> t(n);
  for (int c = 0; c < channels; ++c) one(c, work, t.data(), Loop{&team});
}

}  // namespace densecrf
