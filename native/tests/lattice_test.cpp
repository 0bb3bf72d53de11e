// The lattice against the definition of its simplices, and its filter against a dense product.
#include "check.hpp"

using namespace densecrf;
using namespace densecrf::test;

namespace {

// S · B_d ... B_0 · Sᵀ by dense matrices over the vertices, in double.
Matrix dense_filter(const Lattice& lattice, bool reversed) {
  const Topology& t = *lattice.topology;
  const auto n = static_cast<std::size_t>(t.pixels);
  const auto m = static_cast<std::size_t>(t.vertices);
  std::vector<double> values(m * n, 0.0), next(m * n);
  for (std::size_t a = 0; a < n; ++a)
    for (int k = 0; k <= t.dimension; ++k) {
      const std::int64_t slot = k * t.pixels + static_cast<std::int64_t>(a);
      values[static_cast<std::size_t>(t.corner[slot]) * n + a] += lattice.corner_weight[slot];
    }
  for (int i = 0; i <= t.dimension; ++i) {
    const std::int32_t* axis = t.axis(reversed ? t.dimension - i : i);
    for (std::size_t v = 0; v < m; ++v)
      for (std::size_t b = 0; b < n; ++b) {
        double sum = values[v * n + b];
        for (int side = 0; side < 2; ++side) {
          const auto other = static_cast<std::size_t>(axis[2 * v + static_cast<std::size_t>(side)]);
          if (other < m) sum += 0.5 * values[other * n + b];
        }
        next[v * n + b] = sum;
      }
    values.swap(next);
  }
  Matrix out(n * n, 0.0);
  for (std::size_t a = 0; a < n; ++a)
    for (int k = 0; k <= t.dimension; ++k) {
      const std::int64_t slot = k * t.pixels + static_cast<std::int64_t>(a);
      for (std::size_t b = 0; b < n; ++b)
        out[a * n + b] += lattice.scale() * lattice.corner_weight[slot] *
                          values[static_cast<std::size_t>(t.corner[slot]) * n + b];
    }
  return out;
}

void check_geometry(const Lattice& lattice) {
  const Topology& t = *lattice.topology;
  for (std::int64_t a = 0; a < t.pixels; ++a) {
    double sum = 0;
    for (int k = 0; k <= t.dimension; ++k) {
      const float weight = lattice.corner_weight[k * t.pixels + a];
      CHECK(weight >= 0);
      CHECK(t.corner[k * t.pixels + a] >= 0 && t.corner[k * t.pixels + a] < t.vertices);
      sum += weight;
    }
    CHECK_NEAR(sum, 1, 1e-5);
  }
  for (int j = 0; j <= t.dimension; ++j)
    for (std::int64_t v = 0; v < t.vertices; ++v) {
      const std::int32_t next = t.axis(j)[2 * v];
      CHECK(next >= 0 && next <= t.vertices && next != v);
      if (next < t.vertices) CHECK(t.axis(j)[2 * static_cast<std::int64_t>(next) + 1] == v);
    }
  for (std::int64_t v = 0; v < t.vertices; ++v)
    for (std::int64_t e = t.row_begin[v] + 1; e < t.row_begin[v + 1]; ++e)
      CHECK(t.entry_pixel[e - 1] < t.entry_pixel[e]);
}

void test_dimension(int d, float spread) {
  const std::int64_t n = 40;
  Team team(2);
  const auto features = random_floats(static_cast<std::size_t>(n * d), 7, spread);
  const Lattice lattice = build_lattice(features.data(), n, d, team);
  check_geometry(lattice);
  const Matrix forward = matrix_of(lattice, Blur::kForward, team);
  const Matrix symmetric = matrix_of(lattice, Blur::kSymmetric, team);
  const Matrix dense = dense_filter(lattice, false), reversed = dense_filter(lattice, true);
  std::vector<double> diagonal(static_cast<std::size_t>(n));
  lattice.diagonal(diagonal.data(), team);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    CHECK_NEAR(forward[i], dense[i], 1e-6);
    CHECK_NEAR(symmetric[i], 0.5 * (dense[i] + reversed[i]), 1e-6);
    CHECK(symmetric[i] >= 0);
    const std::size_t a = i / static_cast<std::size_t>(n), b = i % static_cast<std::size_t>(n);
    CHECK_NEAR(symmetric[i], symmetric[b * static_cast<std::size_t>(n) + a], 1e-6);
    if (a == b) CHECK_NEAR(diagonal[a], dense[i], 1e-6);
  }
}

void test_scaled() {
  const std::int64_t n = 30;
  Team team(1);
  const auto features = random_floats(static_cast<std::size_t>(n * 3), 1, 2);
  const auto rows = random_floats(static_cast<std::size_t>(n), 2);
  const auto columns = random_floats(static_cast<std::size_t>(n), 3);
  const Lattice lattice = build_lattice(features.data(), n, 3, team);
  const Matrix plain = matrix_of(lattice, Blur::kSymmetric, team);
  const Lattice weighted = lattice.scaled(columns.data(), rows.data(), team);
  const Matrix scaled = matrix_of(weighted, Blur::kSymmetric, team);
  for (std::size_t a = 0; a < static_cast<std::size_t>(n); ++a)
    for (std::size_t b = 0; b < static_cast<std::size_t>(n); ++b)
      CHECK_NEAR(scaled[a * 30 + b], rows[a] * plain[a * 30 + b] * columns[b], 1e-6);
}

void test_far_features_are_refused() {
  Team team(2);
  for (const double far : {1e12, -1e300, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    const double features[] = {0, 0, far, 1};
    bool refused = false;
    try {
      build_lattice(features, 2, 2, team);
    } catch (const std::out_of_range&) {
      refused = true;
    }
    CHECK(refused);
  }
}

void test_many_chunks_are_the_same_bits() {
  const std::int64_t n = 50'000;
  const auto features = random_floats(static_cast<std::size_t>(n * 2), 5, 40);
  Team one(1), three(3);
  const Lattice a = build_lattice(features.data(), n, 2, one);
  const Lattice b = build_lattice(features.data(), n, 2, three);
  CHECK(a.vertices() == b.vertices());
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    CHECK(a.topology->corner[i] == b.topology->corner[i]);
    CHECK(a.entry_weight[i] == b.entry_weight[i]);
  }
  check_geometry(a);
}

}  // namespace

int main() {
  for (const int d : {1, 2, 3, 5, 8, 20, 64})
    for (const float spread : {0.0f, 1.0f, 6.0f}) test_dimension(d, spread);
  test_scaled();
  test_far_features_are_refused();
  test_many_chunks_are_the_same_bits();
}
