// What the solvers do to each pixel on its own, over label-major arrays (labels, n), shared among
// threads: see simd/pixel_kernels.hpp for each operation.
#pragma once

#include <array>
#include <cstdint>

#include "densecrf/parallel.hpp"

namespace densecrf {

struct Planes {
  int labels;
  std::int64_t n;
};

void project_simplex(Planes, const float* z, float* out, Team& team);

// The lower bound, ⟨g, v⟩ and the slope of the last move.
std::array<double, 3> descend(Planes, const float* phi, const float* r, const float* v,
                              const float* step, const float* lipschitz, const float* previous,
                              float* out, Team& team);

void mean_field_update(Planes, const float* phi, const float* filtered, const float* y,
                       const float* own, float* out, Team& team);

void potts_messages(Planes, const float* filtered, const float* y, const float* own, float* out,
                    Team& team);

void argmax(Planes, const float* z, std::int64_t* out, Team& team);

// Unary and pairwise costs, and the number of pixels that gain.
std::array<double, 3> icm_moves(Planes, const float* phi, const float* received,
                                const std::int64_t* present, int count, const float* others,
                                const std::int64_t* labels, std::int64_t* best, float* gain,
                                Team& team);

// The gap and the objective.
std::array<double, 2> lmo(Planes, const float* linear, const float* h, const float* c,
                          const float* y, std::int64_t* best, Team& team);

void step_to_vertex(Planes, const std::int64_t* labels, const float* y, float step, float* out,
                    Team& team);

// Σ_a min_i (phi_ai + factor · r_ai), summed in double.
double lower_bound(Planes, const float* phi, const float* r, float factor, float* least,
                   Team& team);

// The least and the largest number of each plane of u + v, (labels, 2); v may be null.
void extents(Planes, const float* u, const float* v, float* out, Team& team);

// Each plane of z + y, z may be null, less its least number and compressed into `span` between its
// two ends of width `edge`, which are kept; `extents` as above.
void compress_potentials(Planes, const float* z, const float* y, const float* extents, float span,
                         float edge, float* out, Team& team);

// r = factor · r, less a share of the mass that makes every plane add up to 0; planes of zeros
// stay.
void balance(Planes, float* r, const float* mass, double total_mass, float factor, Team& team);

// ⟨u, v⟩ in double; Σ|u - v| and max|u - v|; u + share · (u - v), also added to a total.
double inner(Planes, const float* u, const float* v, Team& team);
// Σ_a weight_a u_a,label(a), or without weights where they are null. Throws std::out_of_range where
// there is no such label.
double sum_at(Planes, const float* u, const std::int64_t* labels, const float* weights, Team& team);
// Σ_a u_ai (1 - u_ai) of each label: 0 where the label is decided at all pixels.
void undecided(Planes, const float* u, double* out, Team& team);
void accumulate(Planes, const float* u, float* total, Team& team);  // total += u
std::array<double, 2> difference(Planes, const float* u, const float* v, Team& team);
void extrapolate(Planes, const float* u, const float* v, float share, float* out, Team& team);
void add_extrapolated(Planes, const float* u, const float* v, float share, float* total,
                      Team& team);

// Of each plane: Σ_a max(0, least_a - costs_a), summed in double.
void shortfalls(Planes, const float* costs, const float* least, double* out, Team& team);

// A primal-dual step of one label against the least costs of others, in place:
// y <- clamp(y - step (costs - least), 0, 1) and z <- z + twice y_after - y_before.
void price_step(std::int64_t n, const float* costs, const float* least, const float* step,
                float twice, float* y, float* z, Team& team);

}  // namespace densecrf
