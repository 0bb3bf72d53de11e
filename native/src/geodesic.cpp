#include "densecrf/geodesic.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "densecrf/memory.hpp"

namespace densecrf {

namespace {

// Where a neighbour is that comes before a pixel; the other half of them mirrors these.
struct Offset {
  std::int64_t z, y, x;
};

// Those in earlier rows, and the one to the left first of all.
std::vector<Offset> earlier(bool volume) {
  std::vector<Offset> all{{0, 0, -1}};
  for (const std::int64_t x : {-1, 0, 1}) all.push_back({0, -1, x});
  if (volume)
    for (const std::int64_t y : {-1, 0, 1})
      for (const std::int64_t x : {-1, 0, 1}) all.push_back({-1, y, x});
  return all;
}

class Sweeps {
 public:
  Sweeps(const ColoredGrid& grid, Team& team)
      : grid_(grid), offsets_(earlier(grid.shape[0] > 1)), n_(grid.pixels()) {
    lengths_.reset(static_cast<std::int64_t>(offsets_.size()) * n_);
    team.run(rows(), 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) measure(row);
    });
  }

  void forth(float* d) const {
    for (std::int64_t row = 0; row < rows(); ++row) {
      float* here = d + row * width();
      each_in_earlier_row(row, [=](std::int64_t x, std::int64_t shift, float length) {
        here[x] = std::min(here[x], here[x + shift] + length);
      });
      const float* left = lengths(0) + row * width();
      for (std::int64_t x = 1; x < width(); ++x) here[x] = std::min(here[x], here[x - 1] + left[x]);
    }
  }

  void back(float* d) const {
    for (std::int64_t row = rows() - 1; row >= 0; --row) {
      float* here = d + row * width();
      const float* left = lengths(0) + row * width();
      for (std::int64_t x = width() - 2; x >= 0; --x)
        here[x] = std::min(here[x], here[x + 1] + left[x + 1]);
      each_in_earlier_row(row, [=](std::int64_t x, std::int64_t shift, float length) {
        here[x + shift] = std::min(here[x + shift], here[x] + length);
      });
    }
  }

 private:
  std::int64_t width() const { return grid_.shape[2]; }
  std::int64_t rows() const { return grid_.shape[0] * grid_.shape[1]; }
  std::int64_t shift_of(const Offset& o) const {
    return (o.z * grid_.shape[1] + o.y) * width() + o.x;
  }
  float* lengths(std::size_t k) { return lengths_.data() + static_cast<std::int64_t>(k) * n_; }
  const float* lengths(std::size_t k) const {
    return lengths_.data() + static_cast<std::int64_t>(k) * n_;
  }
  // Calls a function for each pixel of a row and each neighbour in an earlier one, at x + shift.
  template <typename Function>
  void each_in_earlier_row(std::int64_t row, Function function) const {
    for (std::size_t k = 1; k < offsets_.size(); ++k) {
      if (!inside(row, offsets_[k])) continue;
      const std::int64_t shift = shift_of(offsets_[k]);
      const float* length = lengths(k) + row * width();
      const auto [first, last] = columns(offsets_[k]);
      for (std::int64_t x = first; x < last; ++x) function(x, shift, length[x]);
    }
  }
  // Whether a row has the neighbouring row.
  bool inside(std::int64_t row, const Offset& o) const {
    const std::int64_t z = row / grid_.shape[1] + o.z;
    const std::int64_t y = row % grid_.shape[1] + o.y;
    return z >= 0 && y >= 0 && y < grid_.shape[1];
  }
  // The columns whose neighbour is in the grid.
  std::array<std::int64_t, 2> columns(const Offset& o) const {
    return {std::max<std::int64_t>(0, -o.x), width() - std::max<std::int64_t>(0, o.x)};
  }

  void measure(std::int64_t row) {
    for (std::size_t k = 0; k < offsets_.size(); ++k) {
      const Offset& o = offsets_[k];
      if (!inside(row, o)) continue;
      const float way =
          grid_.step * grid_.step * static_cast<float>(o.z * o.z + o.y * o.y + o.x * o.x);
      const auto [first, last] = columns(o);
      for (std::int64_t x = first; x < last; ++x) {
        const std::int64_t a = row * width() + x;
        const float* here = grid_.colors + a * grid_.channels;
        const float* there = grid_.colors + (a + shift_of(o)) * grid_.channels;
        float sum = way;
        for (int c = 0; c < grid_.channels; ++c) sum += (here[c] - there[c]) * (here[c] - there[c]);
        lengths(k)[a] = std::sqrt(sum);
      }
    }
  }

  const ColoredGrid& grid_;
  std::vector<Offset> offsets_;
  std::int64_t n_;
  Buffer<float> lengths_;
};

}  // namespace

void shorten_distances(const ColoredGrid& grid, float* distances, int planes, int rounds,
                       Team& team) {
  const Sweeps sweeps(grid, team);
  team.run(planes, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      for (int round = 0; round < rounds; ++round) {
        team.checkpoint(thread);
        sweeps.forth(distances + plane * grid.pixels());
        sweeps.back(distances + plane * grid.pixels());
      }
    }
  });
}

}  // namespace densecrf
