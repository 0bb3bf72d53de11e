#include "densecrf/pixelwise.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "deterministic_sums.hpp"
#include "simd/pixel_kernels.hpp"

namespace densecrf {

namespace {

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

void step_to_vertex(Planes planes, const std::int64_t* labels, const float* y, float step,
                    float* out, Team& team) {
  sum_over_tiles<1>(planes, team, [&](const Tile& tile, std::int64_t a, double*) {
    pixel_kernels().step_to_vertex(tile, labels + a, y + a, step, out + a);
  });
}

double lower_bound(Planes planes, const float* phi, const float* r, float factor, float* out,
                   Team& team) {
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
          if (out) std::copy(least, least + count, out + tile);
        }
      })[0];
}

namespace {

// The planes as one long vector.
std::int64_t length(Planes planes) {
  return planes.labels * planes.n;
}

constexpr int kLanes = 16;              // sums side by side, for the compiler to vectorise
constexpr std::int64_t kPiece = 16384;  // pixels

std::int64_t pieces_of(Planes planes) {
  return (planes.n + kPiece - 1) / kPiece;
}

// Calls each(i, lane) for all i in [begin, end).
template <class Each>
void in_lanes(std::int64_t begin, std::int64_t end, Each&& each) {
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) each(i + lane, lane);
  for (int lane = 0; i < end; ++i, ++lane) each(i, lane);
}

// Calls body(label, begin, end, piece) for pieces of planes, numbered from 0.
template <class Body>
void for_each_piece(Planes planes, Team& team, Body&& body) {
  const std::int64_t pieces = pieces_of(planes);
  team.run(planes.labels * pieces, 1, [&](std::int64_t piece, std::int64_t, int) {
    const std::int64_t begin = piece % pieces * kPiece;
    body(piece / pieces, begin, std::min(planes.n, begin + kPiece), piece);
  });
}

}  // namespace

void extents(Planes planes, const float* u, const float* v, float* out, Team& team) {
  const std::int64_t pieces = pieces_of(planes);
  std::vector<std::pair<float, float>> found(static_cast<std::size_t>(planes.labels * pieces));
  for_each_piece(planes, team, [&](std::int64_t i, std::int64_t begin, std::int64_t end, auto at) {
    const float* plane = u + i * planes.n;
    float least[kLanes], largest[kLanes];
    std::fill(least, least + kLanes, HUGE_VALF);
    std::fill(largest, largest + kLanes, -HUGE_VALF);
    const auto among = [&](float value, int lane) {
      least[lane] = std::min(least[lane], value);
      largest[lane] = std::max(largest[lane], value);
    };
    if (const float* other = from(v, i * planes.n))
      in_lanes(begin, end, [&](std::int64_t a, int lane) { among(plane[a] + other[a], lane); });
    else
      in_lanes(begin, end, [&](std::int64_t a, int lane) { among(plane[a], lane); });
    found[static_cast<std::size_t>(at)] = {*std::min_element(least, least + kLanes),
                                           *std::max_element(largest, largest + kLanes)};
  });
  for (std::int64_t i = 0; i < planes.labels; ++i) {
    out[2 * i] = HUGE_VALF;
    out[2 * i + 1] = -HUGE_VALF;
    for (std::int64_t at = i * pieces; at < (i + 1) * pieces; ++at) {
      const auto [least, largest] = found[static_cast<std::size_t>(at)];
      out[2 * i] = std::min(out[2 * i], least);
      out[2 * i + 1] = std::max(out[2 * i + 1], largest);
    }
  }
}

void compress_potentials(Planes planes, const float* z, const float* y, const float* extents,
                         float span, float edge, float* out, Team& team) {
  for_each_piece(planes, team, [&](std::int64_t i, std::int64_t begin, std::int64_t end, auto) {
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
      for (std::int64_t a = begin; a < end; ++a) after[a] = compressed(before[a] + own[a] - least);
    else
      for (std::int64_t a = begin; a < end; ++a) after[a] = compressed(own[a] - least);
  });
}

void balance(Planes planes, float* r, const float* mass, double total_mass, float factor,
             Team& team) {
  struct Piece {
    double sum = 0;
    bool zero = true;
  };
  const std::int64_t pieces = pieces_of(planes);
  std::vector<Piece> found(static_cast<std::size_t>(planes.labels * pieces));
  for_each_piece(planes, team, [&](std::int64_t i, std::int64_t begin, std::int64_t end, auto at) {
    const float* plane = r + i * planes.n;
    double lanes[kLanes] = {};
    in_lanes(begin, end, [&](std::int64_t a, int lane) { lanes[lane] += plane[a]; });
    Piece& piece = found[static_cast<std::size_t>(at)];
    for (const double lane : lanes) piece.sum += lane;
    piece.zero =
        piece.sum == 0 && std::all_of(plane + begin, plane + end, [](float x) { return x == 0; });
  });
  std::vector<Piece> planes_found(static_cast<std::size_t>(planes.labels));
  for (std::size_t i = 0; i < planes_found.size(); ++i)
    for (std::int64_t at = 0; at < pieces; ++at) {
      const Piece& piece = found[i * static_cast<std::size_t>(pieces) + at];
      planes_found[i].sum += piece.sum;
      planes_found[i].zero = planes_found[i].zero && piece.zero;
    }
  for_each_piece(planes, team, [&](std::int64_t i, std::int64_t begin, std::int64_t end, auto) {
    const Piece& own = planes_found[static_cast<std::size_t>(i)];
    if (own.zero) return;
    float* plane = r + i * planes.n;
    const float share = total_mass > 0 ? static_cast<float>(factor * own.sum / total_mass) : 0.0f;
    for (std::int64_t a = begin; a < end; ++a) plane[a] = factor * plane[a] - share * mass[a];
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

double sum_at(Planes planes, const float* u, const std::int64_t* labels, const float* weights,
              Team& team) {
  return sum_over_chunks<1>(planes.n, team,
                            [&](std::int64_t begin, std::int64_t end, double* sums) {
                              for (std::int64_t a = begin; a < end; ++a) {
                                if (labels[a] < 0 || labels[a] >= planes.labels)
                                  throw std::out_of_range("labels: out of range");
                                const double own = u[labels[a] * planes.n + a];
                                sums[0] += weights ? weights[a] * own : own;
                              }
                            })[0];
}

void undecided(Planes planes, const float* u, double* out, Team& team) {
  const std::int64_t pieces = pieces_of(planes);
  std::vector<double> found(static_cast<std::size_t>(planes.labels * pieces));
  for_each_piece(planes, team, [&](std::int64_t i, std::int64_t begin, std::int64_t end, auto at) {
    const float* plane = u + i * planes.n;
    double lanes[kLanes] = {};
    in_lanes(begin, end,
             [&](std::int64_t a, int lane) { lanes[lane] += plane[a] * (1 - plane[a]); });
    found[static_cast<std::size_t>(at)] = std::accumulate(lanes, lanes + kLanes, 0.0);
  });
  for (std::int64_t i = 0; i < planes.labels; ++i)
    out[i] = std::accumulate(found.begin() + i * pieces, found.begin() + (i + 1) * pieces, 0.0);
}

void accumulate(Planes planes, const float* u, float* total, Team& team) {
  team.run(length(planes), chunk_of(length(planes)),
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i) total[i] += u[i];
           });
}

std::array<double, 2> difference(Planes planes, const float* u, const float* v, Team& team) {
  const std::int64_t size = length(planes);
  const std::int64_t grain = chunk_of(size);
  std::vector<float> most(static_cast<std::size_t>((size + grain - 1) / grain), 0.0f);
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
        most[static_cast<std::size_t>(begin / grain)] =
            *std::max_element(largest, largest + kLanes);
      });
  const float largest = most.empty() ? 0.0f : *std::max_element(most.begin(), most.end());
  return {total[0], largest};
}

void extrapolate(Planes planes, const float* u, const float* v, float share, float* out,
                 Team& team) {
  team.run(length(planes), chunk_of(length(planes)),
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i) out[i] = u[i] + share * (u[i] - v[i]);
           });
}

void add_extrapolated(Planes planes, const float* u, const float* v, float share, float* total,
                      Team& team) {
  team.run(length(planes), chunk_of(length(planes)),
           [&](std::int64_t begin, std::int64_t end, int) {
             for (std::int64_t i = begin; i < end; ++i) total[i] += u[i] + share * (u[i] - v[i]);
           });
}

void shortfalls(Planes planes, const float* costs, const float* least, double* out, Team& team) {
  for (int i = 0; i < planes.labels; ++i) {
    const float* own = costs + i * planes.n;
    out[i] =
        sum_over_chunks<1>(planes.n, team, [&](std::int64_t begin, std::int64_t end, double* sums) {
          for (std::int64_t tile = begin; tile < end; tile += kTile) {
            float lanes[kLanes] = {};
            in_lanes(tile, std::min(end, tile + kTile), [&](std::int64_t a, int lane) {
              lanes[lane] += std::max(0.0f, least[a] - own[a]);
            });
            for (const float lane : lanes) sums[0] += lane;
          }
        })[0];
  }
}

void price_step(std::int64_t n, const float* costs, const float* least, const float* step,
                float twice, float* y, float* z, Team& team) {
  team.run(n, chunk_of(n), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t a = begin; a < end; ++a) {
      const float after = std::min(std::max(y[a] - step[a] * (costs[a] - least[a]), 0.0f), 1.0f);
      z[a] += twice * after - y[a];
      y[a] = after;
    }
  });
}

}  // namespace densecrf
