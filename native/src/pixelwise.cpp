#include "densecrf/pixelwise.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "deterministic_sums.hpp"
#include "simd/pixel_kernels.hpp"

namespace densecrf {

namespace {

constexpr std::int64_t kGrain = kChunk;
constexpr int kTile = PixelKernels::kTile;

// Calls body(tile, first pixel, sums) for all tiles.
template <std::size_t Sums, class Body>
std::array<double, Sums> sum_over_tiles(Planes planes, Team& team, Body&& body) {
  return sum_over_chunks<Sums>(
      planes.n, team, [&](std::int64_t begin, std::int64_t end, double* sums) {
        std::vector<float> scratch(static_cast<std::size_t>(planes.labels) * kTile);
        for (std::int64_t a = begin; a < end; a += kTile) {
          const auto count = std::min<std::int64_t>(kTile, end - a);
          body(Tile{planes.n, planes.labels, static_cast<int>(count), scratch.data()}, a, sums);
        }
      });
}

const float* from(const float* vector, std::int64_t a) {
  return vector ? vector + a : nullptr;
}

}  // namespace

void project_simplex(Planes planes, const float* z, float* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().project(tile, z + a, out + a);
  });
}

std::array<double, 3> descend(Planes planes, const float* phi, const float* r, const float* v,
                              const float* step, const float* lipschitz, const float* previous,
                              float* out, Team& team) {
  return sum_over_tiles<3>(planes, team, [&](const Tile& tile, std::int64_t a, double* sums) {
    pixel_kernels().descend(tile, phi + a, r + a, v + a, step + a, lipschitz + a, previous + a,
                            out + a, sums);
  });
}

void mean_field_update(Planes planes, const float* phi, const float* filtered, const float* y,
                       const float* own, float* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().mean_field_update(tile, phi + a, from(filtered, a), planes.n, from(y, a),
                                      from(own, a), out + a);
  });
}

void potts_messages(Planes planes, const float* filtered, const float* y, const float* own,
                    float* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().messages(tile, filtered + a, y + a, own + a, out + a);
  });
}

void argmax(Planes planes, const float* z, std::int64_t* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().argmax(tile, z + a, out + a);
  });
}

std::array<double, 3> icm_moves(Planes planes, const float* phi, const float* received,
                                const std::int64_t* present, int count, const float* others,
                                const std::int64_t* labels, std::int64_t* best, float* gain,
                                Team& team) {
  return sum_over_tiles<3>(planes, team, [&](const Tile& tile, std::int64_t a, double* sums) {
    pixel_kernels().icm_moves(tile, phi + a, received + a, planes.n, present, count, others + a,
                              labels + a, best + a, gain + a, sums);
  });
}

std::array<double, 2> lmo(Planes planes, const float* linear, const float* h, const float* c,
                          const float* y, std::int64_t* best, Team& team) {
  return sum_over_tiles<2>(planes, team, [&](const Tile& tile, std::int64_t a, double* sums) {
    pixel_kernels().lmo(tile, linear + a, h + a, c + a, y + a, best + a, sums);
  });
}

double curvature(Planes planes, const std::int64_t* labels, const float* y, const float* target,
                 const float* h, const float* c, Team& team) {
  return sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double* sums) {
    pixel_kernels().curvature(tile, labels + a, y + a, target + a, h + a, c + a, sums);
  })[0];
}

void step_to_vertex(Planes planes, const std::int64_t* labels, const float* y, float step,
                    float* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().step_to_vertex(tile, labels + a, y + a, step, out + a);
  });
}

double lower_bound(Planes planes, const float* phi, const float* r, float factor, Team& team) {
  const auto [labels, n] = planes;
  return sum_over_chunks<1>(
      n, team, [&, labels = labels, n = n](std::int64_t begin, std::int64_t end, double* sums) {
        float least[kTile];
        for (std::int64_t tile = begin; tile < end; tile += kTile) {
          const int count = static_cast<int>(std::min<std::int64_t>(kTile, end - tile));
          std::fill(least, least + count, 3.4e38f);
          for (int i = 0; i < labels; ++i)
            for (int a = 0; a < count; ++a)
              least[a] = std::min(least[a], phi[i * n + tile + a] + factor * r[i * n + tile + a]);
          for (int a = 0; a < count; ++a) sums[0] += least[a];
        }
      })[0];
}

namespace {

// The planes as one long vector.
std::int64_t length(Planes planes) {
  return planes.labels * planes.n;
}

constexpr int kLanes = 16;  // sums side by side, for the compiler to vectorise

// Calls each(i, lane) for all i in [begin, end).
template <class Each>
void in_lanes(std::int64_t begin, std::int64_t end, Each&& each) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) each(i + lane, lane);
  for (int lane = 0; i < end; ++i, ++lane) each(i, lane);
}

}  // namespace

void extents(Planes planes, const float* u, const float* v, float* out, Team& team) {
  team.run(planes.labels, 1, [&](std::int64_t i, std::int64_t, int) {
    const float* plane = u + i * planes.n;
    float least[kLanes], largest[kLanes];
    std::fill(least, least + kLanes, HUGE_VALF);
    std::fill(largest, largest + kLanes, -HUGE_VALF);
    const auto among = [&](float value, int lane) {
      least[lane] = std::min(least[lane], value);
      largest[lane] = std::max(largest[lane], value);
    };
    if (const float* other = from(v, i * planes.n))
      in_lanes(0, planes.n, [&](std::int64_t a, int lane) { among(plane[a] + other[a], lane); });
    else
      in_lanes(0, planes.n, [&](std::int64_t a, int lane) { among(plane[a], lane); });
    out[2 * i] = *std::min_element(least, least + kLanes);
    out[2 * i + 1] = *std::max_element(largest, largest + kLanes);
  });
}

void compress_potentials(Planes planes, const float* z, const float* y, const float* extents,
                         float span, float edge, float* out, Team& team) {
  team.run(planes.labels, 1, [&](std::int64_t i, std::int64_t, int) {
    const float least = extents[2 * i], top = extents[2 * i + 1] - least;
    const float slope = (span - 2 * edge) / std::max(top - 2 * edge, 1e-6f);
    const float* own = y + i * planes.n;
    const float* before = from(z, i * planes.n);
    float* after = out + i * planes.n;
    const auto compressed = [=](float u) {
      if (top <= span) return u;
      const float upper = u - (top - span), middle = edge + (u - edge) * slope;
      return u <= edge ? u : u >= top - edge ? upper : middle;
    };
    if (before)
      for (std::int64_t a = 0; a < planes.n; ++a) after[a] = compressed(before[a] + own[a] - least);
    else
      for (std::int64_t a = 0; a < planes.n; ++a) after[a] = compressed(own[a] - least);
  });
}

void balance(Planes planes, float* r, const float* mass, double total_mass, float factor,
             Team& team) {
  team.run(planes.labels, 1, [&](std::int64_t i, std::int64_t, int) {
    float* plane = r + i * planes.n;
    double lanes[kLanes] = {};
    in_lanes(0, planes.n, [&](std::int64_t a, int lane) { lanes[lane] += plane[a]; });
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    if (sum == 0 && std::all_of(plane, plane + planes.n, [](float x) { return x == 0; })) return;
    const float share = total_mass > 0 ? static_cast<float>(factor * sum / total_mass) : 0.0f;
    for (std::int64_t a = 0; a < planes.n; ++a) plane[a] = factor * plane[a] - share * mass[a];
  });
}

double inner(Planes planes, const float* u, const float* v, Team& team) {
  return sum_over_chunks<1>(
      length(planes), team, [&](std::int64_t begin, std::int64_t end, double* sums) {
        double lanes[kLanes] = {};
        in_lanes(begin, end, [&](std::int64_t at, int lane) {
          lanes[lane] += static_cast<double>(u[at]) * static_cast<double>(v[at]);
        });
        for (const double lane : lanes) sums[0] += lane;
      })[0];
}

std::array<double, 2> difference(Planes planes, const float* u, const float* v, Team& team) {
  const std::int64_t size = length(planes);
  std::vector<float> most(static_cast<std::size_t>((size + kGrain - 1) / kGrain), 0.0f);
  const auto total =
      sum_over_chunks<1>(size, team, [&](std::int64_t begin, std::int64_t end, double* sums) {
        double lanes[kLanes] = {};
        float largest[kLanes] = {};
        in_lanes(begin, end, [&](std::int64_t at, int lane) {
          const float distance = std::fabs(u[at] - v[at]);
          lanes[lane] += distance;
          largest[lane] = std::max(largest[lane], distance);
        });
        for (const double lane : lanes) sums[0] += lane;
        most[static_cast<std::size_t>(begin / kGrain)] =
            *std::max_element(largest, largest + kLanes);
      });
  const float largest = most.empty() ? 0.0f : *std::max_element(most.begin(), most.end());
  return {total[0], largest};
}

void extrapolate(Planes planes, const float* u, const float* v, float share, float* out,
                 Team& team) {
  team.run(length(planes), kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = u[i] + share * (u[i] - v[i]);
  });
}

}  // namespace densecrf
