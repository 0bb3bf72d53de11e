#include "densecrf/grid.hpp"

#include <algorithm>

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = 16384;  // floats of a plane that one task convolves

// out = in convolved along one axis of a (outer, length, inner) array; zero beyond the border.
void convolve_axis(const float* in, float* out, std::int64_t outer, std::int64_t length,
                   std::int64_t inner, const std::vector<float>& taps, Team& team) {
  const std::int64_t radius = static_cast<std::int64_t>(taps.size()) - 1;
  const std::int64_t lines = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, inner));
  const auto add = [&](float* to, const float* from, float weight, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
  };
  if (inner == 1) {  // shifts within a line
    team.run(outer, std::max<std::int64_t>(1, kGrain / length),
             [&](std::int64_t begin, std::int64_t end, int) {
               for (std::int64_t o = begin; o < end; ++o) {
                 const float* from = in + o * length;
                 float* to = out + o * length;
                 for (std::int64_t i = 0; i < length; ++i) to[i] = taps[0] * from[i];
                 for (std::int64_t r = 1; r <= std::min(radius, length - 1); ++r) {
                   add(to + r, from, taps[r], length - r);
                   add(to, from + r, taps[r], length - r);
                 }
               }
             });
    return;
  }
  team.run(outer * length, lines, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t at = line % length;
      const float* from = in + line * inner;
      float* to = out + line * inner;
      for (std::int64_t i = 0; i < inner; ++i) to[i] = taps[0] * from[i];
      for (std::int64_t r = 1; r <= radius; ++r) {
        if (at >= r) add(to, from - r * inner, taps[r], inner);
        if (at + r < length) add(to, from + r * inner, taps[r], inner);
      }
    }
  });
}

// Convolves `values` along all axes, with `scratch` of the same size; returns where the result is.
float* convolve(const Grid& grid, float* values, float* scratch, Team& team) {
  std::int64_t inner = grid.pixels();
  std::int64_t outer = 1;
  for (std::size_t axis = 0; axis < grid.shape.size(); ++axis) {
    inner /= grid.shape[axis];
    convolve_axis(values, scratch, outer, grid.shape[axis], inner, grid.taps[axis], team);
    std::swap(values, scratch);
    outer *= grid.shape[axis];
  }
  return values;
}

template <class F>
void each_pixel(std::int64_t n, Team& team, F&& body) {
  team.run(n, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t a = begin; a < end; ++a) body(a);
  });
}

}  // namespace

std::int64_t Grid::pixels() const {
  std::int64_t n = 1;
  for (const std::int64_t length : shape) n *= length;
  return n;
}

void grid_plain(const Grid& grid, const float* in, const float* columns, const float* rows,
                float* out, int channels, Team& team) {
  const std::int64_t n = grid.pixels();
  Buffer<float> values(n), scratch(n);
  for (int c = 0; c < channels; ++c) {
    const float* from = in + c * n;
    float* to = out + c * n;
    each_pixel(n, team, [&](std::int64_t a) { values[a] = columns[a] * from[a]; });
    const float* filtered = convolve(grid, values.data(), scratch.data(), team);
    each_pixel(n, team, [&](std::int64_t a) { to[a] = rows[a] * filtered[a]; });
  }
}

// With C_q the filtered mass at or above level q, the signed mass at t = h + f is
// C_0 - [(1-f) C_h + C_{h+1} + f C_{h+2}]; one level at a time, so the workspace is four planes.
void grid_ordered(const Grid& grid, const float* scores, const float* columns, const float* rows,
                  float* out, int channels, Levels levels, const float* mass, Team& team) {
  const std::int64_t n = grid.pixels();
  Buffer<float> t(n), values(n), scratch(n), below(n);
  for (int c = 0; c < channels; ++c) {
    const float* y = scores + c * n;
    float* to = out + c * n;
    each_pixel(n, team, [&](std::int64_t a) {
      t[a] = levels.of(y[a]);
      below[a] = t[a] < 1 ? (1 - t[a]) * mass[a] : 0.0f;
    });
    for (int q = 1; q < levels.count; ++q) {
      const float floor = static_cast<float>(q - 1);
      each_pixel(n, team, [&](std::int64_t a) {
        values[a] = columns[a] * std::min(std::max(t[a] - floor, 0.0f), 1.0f);
      });
      const float* filtered = convolve(grid, values.data(), scratch.data(), team);
      each_pixel(n, team, [&](std::int64_t a) {
        const int h = static_cast<int>(t[a]);
        const float f = t[a] - static_cast<float>(h);
        const float part = q == h ? 1 - f : q == h + 1 ? 1.0f : q == h + 2 ? f : 0.0f;
        below[a] += part * rows[a] * filtered[a];
      });
    }
    each_pixel(n, team, [&](std::int64_t a) { to[a] = mass[a] - below[a]; });
  }
}

}  // namespace densecrf
