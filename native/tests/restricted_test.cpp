// Lattice::restricted: the operator among some pixels is the submatrix of the whole one.
#include <cassert>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/lattice.hpp"

using namespace densecrf;

namespace {

using Matrix = std::vector<float>;

Matrix matrix_of(const Lattice& lattice, Blur blur, Team& team) {
  const std::int64_t n = lattice.pixels();
  Matrix identity(static_cast<std::size_t>(n * n), 0.0f), out(identity.size());
  for (std::int64_t a = 0; a < n; ++a) identity[static_cast<std::size_t>(a * n + a)] = 1;
  filter_plain(lattice, {identity.data(), n, 1}, {out.data(), n, 1}, static_cast<int>(n), blur,
               1.0f, false, team);
  return out;  // element (b, a): what pixel b gives to pixel a
}

void check_submatrix(const Lattice& whole, const std::vector<std::int32_t>& pixels, Team& team) {
  const auto count = static_cast<std::int64_t>(pixels.size());
  const Lattice part = whole.restricted(pixels.data(), count, team);
  assert(part.pixels() == count && part.dimension() == whole.dimension());
  assert(part.vertices() <= whole.vertices());
  for (const Blur blur : {Blur::kForward, Blur::kSymmetric}) {
    const Matrix all = matrix_of(whole, blur, team), some = matrix_of(part, blur, team);
    for (std::int64_t b = 0; b < count; ++b)
      for (std::int64_t a = 0; a < count; ++a) {
        const float wanted = all[static_cast<std::size_t>(pixels[static_cast<std::size_t>(b)]) *
                                     static_cast<std::size_t>(whole.pixels()) +
                                 static_cast<std::size_t>(pixels[static_cast<std::size_t>(a)])];
        assert(std::fabs(some[static_cast<std::size_t>(b * count + a)] - wanted) < 1e-6f);
      }
  }
  std::vector<double> all(static_cast<std::size_t>(whole.pixels())), some(pixels.size());
  whole.diagonal(all.data(), team);
  part.diagonal(some.data(), team);
  for (std::size_t a = 0; a < some.size(); ++a)
    assert(std::fabs(some[a] - all[static_cast<std::size_t>(pixels[a])]) < 1e-6);
}

std::vector<std::int32_t> subset(std::int64_t n, double share, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  std::vector<std::int32_t> out;
  for (std::int64_t a = 0; a < n; ++a)
    if (uniform(random) < share) out.push_back(static_cast<std::int32_t>(a));
  if (out.empty()) out.push_back(static_cast<std::int32_t>(n / 2));
  return out;
}

}  // namespace

int main() {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<float> weight(0.5f, 2.0f);
  for (const int threads : {1, 3}) {
    Team team(threads);
    for (const int d : {1, 2, 3, 5, 8}) {
      for (const double scale : {0.2, 1.0}) {
        const std::int64_t n = 70;
        std::vector<double> features(static_cast<std::size_t>(n * d));
        for (double& f : features) f = scale * normal(random);
        const Lattice whole = build_lattice(features.data(), n, d, team);
        std::vector<float> rows(static_cast<std::size_t>(n));
        for (float& r : rows) r = weight(random);
        const Lattice weighted = whole.scaled(rows.data(), rows.data(), team);
        for (const double share : {0.0, 0.1, 0.6, 1.1}) {
          const auto pixels = subset(n, share, random);
          check_submatrix(whole, pixels, team);
          check_submatrix(weighted, pixels, team);
        }
      }
    }
  }
  std::puts("restricted lattices are submatrices");
  return 0;
}
